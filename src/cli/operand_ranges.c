// SPDX-License-Identifier: MIT
#include "cli/operand_ranges.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files/paths.h"

#define MOST 1000000

// "{first..last}" in a name.
struct range {
    const char *begin, *end; // the braces, and what follows them
    long first, last;
    int digits; // with leading zeros; 0: as many as needed
};

// A number of at most 9 digits. Returns what follows it; NULL if there is none.
static const char *parse_number(const char *text, long *number)
{
    char *end;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9)
        return NULL;
    *number = strtol(text, &end, 10);
    return end;
}

static bool find_range(struct range *range, const char *name)
{
    for (const char *at = strchr(name, '{'); at; at = strchr(at + 1, '{')) {
        const char *first = at + 1, *dots = parse_number(first, &range->first);
        if (!dots || strncmp(dots, "..", 2) != 0)
            continue;
        const char *last = dots + 2, *end = parse_number(last, &range->last);
        if (!end || *end != '}')
            continue;
        long longest = dots - first > end - last ? dots - first : end - last;
        bool padded = (first[0] == '0' && dots - first > 1) || (last[0] == '0' && end - last > 1);
        range->begin = at;
        range->end = end + 1;
        range->digits = padded ? (int)longest : 0;
        return true;
    }
    return false;
}

static enum conv_status add(struct conv_operand_ranges *ranges, const char *name,
                            struct conv_err *err)
{
    if (ranges->count == MOST)
        return conv_err_set(err, CONV_ERR_USAGE, "the ranges name more than %d inputs", MOST);
    // At a power of two the array is full and is doubled.
    if ((ranges->count & (ranges->count - 1)) == 0) {
        size_t room = ranges->count ? 2 * (size_t)ranges->count : 1;
        const char **names = realloc(ranges->names, room * sizeof *names);
        if (!names)
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the names of inputs");
        ranges->names = names;
    }
    ranges->names[ranges->count++] = name;
    return CONV_OK;
}

static enum conv_status add_made(struct conv_operand_ranges *ranges, char *name,
                                 struct conv_err *err)
{
    int count = ranges->made_count;
    if ((count & (count - 1)) == 0) {
        char **made = realloc(ranges->made, (count ? 2 * (size_t)count : 1) * sizeof *made);
        if (!made) {
            free(name);
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the names of inputs");
        }
        ranges->made = made;
    }
    ranges->made[ranges->made_count++] = name;
    return add(ranges, name, err);
}

// If a name has several ranges, the last one varies fastest.
static enum conv_status expand(struct conv_operand_ranges *ranges, const char *name,
                               struct conv_err *err)
{
    struct range range;
    enum conv_status status = CONV_OK;
    if (!find_range(&range, name)) {
        char *copy = strdup(name);
        return copy ? add_made(ranges, copy, err)
                    : conv_err_set(err, CONV_ERR_MEMORY, "no memory for the names of inputs");
    }
    long step = range.first <= range.last ? 1 : -1;
    for (long i = range.first; !status; i += step) {
        char next[PATH_MAX];
        int size = snprintf(next, sizeof next, "%.*s%0*ld%s", (int)(range.begin - name), name,
                            range.digits, i, range.end);
        if (size >= (int)sizeof next)
            return conv_err_set(err, CONV_ERR_LIMIT, "path too long");
        status = expand(ranges, next, err);
        if (i == range.last)
            break;
    }
    return status;
}

enum conv_status conv_operand_ranges_expand(struct conv_operand_ranges *ranges,
                                            const char *const *names, int count,
                                            struct conv_err *err)
{
    struct range range;
    enum conv_status status = CONV_OK;
    *ranges = (struct conv_operand_ranges){0};
    for (int i = 0; i < count && !status; i++) {
        bool expands = find_range(&range, names[i]) && !conv_paths_exists(names[i]);
        ranges->any |= expands;
        status = expands ? expand(ranges, names[i], err) : add(ranges, names[i], err);
    }
    return status;
}

void conv_operand_ranges_free(struct conv_operand_ranges *ranges)
{
    for (int i = 0; i < ranges->made_count; i++)
        free(ranges->made[i]);
    free(ranges->made);
    free(ranges->names);
    *ranges = (struct conv_operand_ranges){0};
}
