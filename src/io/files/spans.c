// SPDX-License-Identifier: MIT
#include "io/files/spans.h"

#include <stdlib.h>
#include <string.h>

// The index of the first span that ends after `at`.
static size_t find(const struct conv_spans *spans, uint64_t at)
{
    size_t low = 0, high = spans->count;
    if (high > 0 && spans->spans[high - 1].end <= at)
        return high; // ascending, as nearly always
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (spans->spans[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum conv_status conv_spans_add(struct conv_spans *spans, uint64_t start, uint64_t end, bool *apart,
                                struct conv_err *err)
{
    size_t i = find(spans, start);
    *apart = i == spans->count || spans->spans[i].start >= end;
    if (!*apart)
        return CONV_OK;
    bool joins_next = i < spans->count && spans->spans[i].start == end;
    bool joins_last = i > 0 && spans->spans[i - 1].end == start;
    if (!joins_next && !joins_last && spans->count == spans->capacity) {
        size_t capacity = spans->capacity ? 2 * spans->capacity : 16;
        struct conv_span *more = realloc(spans->spans, capacity * sizeof *more);
        if (!more)
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the places of members");
        spans->spans = more;
        spans->capacity = capacity;
    }
    struct conv_span *next = spans->spans + i;
    if (joins_last && joins_next) {
        next[-1].end = next->end;
        memmove(next, next + 1, (--spans->count - i) * sizeof *next);
    } else if (joins_last) {
        next[-1].end = end;
    } else if (joins_next) {
        next->start = start;
    } else {
        memmove(next + 1, next, (spans->count++ - i) * sizeof *next);
        *next = (struct conv_span){start, end};
    }
    return CONV_OK;
}

void conv_spans_free(struct conv_spans *spans)
{
    free(spans->spans);
    *spans = (struct conv_spans){0};
}
