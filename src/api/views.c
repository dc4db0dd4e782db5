// SPDX-License-Identifier: MIT
// Checks of the caller's views, and of the memory that they share.
#include "api/api.h"

#include <stdlib.h>

#include "image/image.h"

enum { DIMENSIONS = 3 };

// The dimensions of a view that have more than one element, smallest stride first.
struct dimension {
    int64_t count, stride;
};

static int sort_dimensions(struct dimension sorted[DIMENSIONS], const conv_image *view)
{
    const struct dimension all[DIMENSIONS] = {{view->channels, view->channel_stride},
                                              {view->width, view->column_stride},
                                              {view->height, view->row_stride}};
    int used = 0;
    for (int i = 0; i < DIMENSIONS; i++) {
        if (all[i].count < 2)
            continue;
        int at = used++;
        for (; at > 0 && sorted[at - 1].stride > all[i].stride; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = all[i];
    }
    return used;
}

enum conv_status conv_api_check_view(const conv_image *view, conv_sample most, bool written,
                                     const char *name, struct conv_err *err)
{
    int64_t sample = conv_sample_bytes(view->sample), extent = sample;
    if (!view->data)
        return conv_err_usage(err, "%s: `data` is NULL", name);
    if (view->width < 1 || view->height < 1)
        return conv_err_usage(err, "%s: a size of %d x %d; both must be at least 1", name,
                              view->width, view->height);
    if (view->channels < 1 || view->channels > CONV_IMAGE_MAX_CHANNELS)
        return conv_err_usage(err, "%s: %d channels; there must be 1 to 4", name, view->channels);
    if (view->has_alpha && view->channels % 2 != 0)
        return conv_err_usage(err, "%s: %d channels with alpha; only 2 and 4 can have it", name,
                              view->channels);
    if (view->reserved[0] || view->reserved[1])
        return conv_err_unsupported(err, "%s: `reserved` is not 0", name);
    if (!sample || view->sample > most)
        return conv_err_usage(err, "%s: this sample type is not possible here", name);
    if (view->memory != CONV_HOST && view->memory != CONV_DEVICE)
        return conv_err_usage(err, "%s: `memory` is %d, not a kind of memory", name,
                              (int)view->memory);
    if ((uintptr_t)view->data % (uintptr_t)sample != 0)
        return conv_err_usage(err, "%s: `data` is not aligned to its samples", name);
    struct dimension sorted[DIMENSIONS];
    int count = sort_dimensions(sorted, view);
    for (int i = 0; i < count; i++) {
        int64_t last;
        if (sorted[i].stride < 0 || sorted[i].stride % sample != 0)
            return conv_err_usage(
                err, "%s: strides must be multiples of a sample's %d bytes, not negative", name,
                (int)sample);
        if (written && sorted[i].stride < extent)
            return conv_err_usage(err, "%s: strides are too small, so that samples overlap", name);
        if (__builtin_mul_overflow(sorted[i].count - 1, sorted[i].stride, &last) ||
            __builtin_add_overflow(extent, last, &extent))
            return conv_err_usage(err, "%s: strides are too large", name);
    }
    if ((uint64_t)extent > UINTPTR_MAX - (uintptr_t)view->data)
        return conv_err_usage(err, "%s: strides are too large", name);
    return CONV_OK;
}

enum conv_status conv_api_take_image(conv_context *context, conv_image *image, conv_memory memory,
                                     bool planar, struct conv_err *err)
{
    size_t bytes;
    void *data;
    if (__builtin_mul_overflow((size_t)image->width, (size_t)image->height, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)image->channels, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)conv_sample_bytes(image->sample), &bytes) ||
        bytes > PTRDIFF_MAX)
        return conv_err_limit(err, "an image of %d x %d is too large", image->width, image->height);
    enum conv_status status = conv_memory_take(context->device->pools, memory, bytes, &data, err);
    if (status)
        return status;
    *image = planar ? conv_image_planar(data, image->width, image->height, image->channels,
                                        image->sample, memory)
                    : conv_image_interleaved(data, image->width, image->height, image->channels,
                                             image->sample, memory);
    return CONV_OK;
}

// --- shared memory -------------------------------------------------------------------------------

// Spans are sorted by their first byte, so that only those whose extents overlap are compared. Two
// of these have a byte in common if the difference of their addresses, a sum of a multiple of each
// stride, can be made smaller than a block.

#define MOST_TERMS 6
#define MOST_STEPS 4096 // of one comparison; strides that contain each other take some ten
#define MOST_EXTENT (INT64_MAX / 8) // so that sums of all terms do not overflow

struct conv_api_span conv_api_apart_bytes(const void *data, size_t size, const int64_t axes[3][2])
{
    struct conv_api_span span = {.start = (uintptr_t)data, .size = (int64_t)size};
    span.end = span.start + size;
    for (int i = 0; axes && i < 3; i++) {
        span.axes[i].count = axes[i][0];
        span.axes[i].stride = axes[i][1];
        span.end += (uintptr_t)((axes[i][0] - 1) * axes[i][1]);
    }
    return span;
}

struct conv_api_span conv_api_apart_view(const conv_image *view, int item, bool written)
{
    const int64_t axes[3][2] = {{view->height, view->row_stride},
                                {view->width, view->column_stride},
                                {view->channels, view->channel_stride}};
    struct conv_api_span span =
        conv_api_apart_bytes(view->data, (size_t)conv_sample_bytes(view->sample), axes);
    span.item = item;
    span.written = written;
    return span;
}

// --- two spans -----------------------------------------------------------------------------------

// A multiple of a stride, from least to most.
struct term {
    int64_t stride, least, most;
};

// Adds the axes of a span, in the order of their strides; equal strides make one term.
static int add_terms(struct term terms[MOST_TERMS], int count, const struct conv_api_span *span,
                     int sign)
{
    for (int i = 0; i < 3; i++) {
        int64_t stride = span->axes[i].stride, steps = span->axes[i].count - 1;
        if (stride <= 0 || steps <= 0)
            continue;
        int at = 0;
        while (at < count && terms[at].stride < stride)
            at++;
        if (at == count || terms[at].stride != stride) {
            for (int k = count++; k > at; k--)
                terms[k] = terms[k - 1];
            terms[at] = (struct term){stride, 0, 0};
        }
        terms[at].least -= sign < 0 ? steps : 0;
        terms[at].most += sign > 0 ? steps : 0;
    }
    return count;
}

// The largest whole number that is not above a / b; b > 0.
static int64_t divide_down(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

// True if `from` plus some multiple of each term lies between `low` and `high`, both excluded.
static bool can_reach(const struct term *terms, int count, int64_t from, int64_t low, int64_t high,
                      int *steps)
{
    if (count == 0)
        return from > low && from < high;
    const struct term *term = &terms[count - 1];
    int64_t least = 0, most = 0; // what the other terms can add
    for (int i = 0; i < count - 1; i++) {
        least += terms[i].stride * terms[i].least;
        most += terms[i].stride * terms[i].most;
    }
    int64_t first = divide_down(low - from - most, term->stride) + 1;
    int64_t last = divide_down(high - from - least - 1, term->stride);
    first = first > term->least ? first : term->least;
    last = last < term->most ? last : term->most;
    for (int64_t i = first; i <= last; i++)
        if (--*steps < 0 || can_reach(terms, count - 1, from + i * term->stride, low, high, steps))
            return true;
    return false;
}

bool conv_api_apart_meet(const struct conv_api_span *a, const struct conv_api_span *b)
{
    struct term terms[MOST_TERMS];
    int steps = MOST_STEPS;
    if (a->start >= b->end || b->start >= a->end || a->size == 0 || b->size == 0)
        return false;
    if (a->end - a->start > MOST_EXTENT || b->end - b->start > MOST_EXTENT)
        return true;
    int count = add_terms(terms, add_terms(terms, 0, a, 1), b, -1);
    return can_reach(terms, count, (int64_t)(a->start - b->start), -a->size, b->size, &steps);
}

// --- all spans -----------------------------------------------------------------------------------

static int compare_starts(const void *a, const void *b)
{
    const struct conv_api_span *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static bool copy_instead(struct conv_api_span *a, struct conv_api_span *b)
{
    struct conv_api_span *read = a->written ? b : a;
    if (read->written || !read->may_copy)
        return false;
    read->is_copied = true;
    return true;
}

// Drops the spans of a list that end before `span` or are copied, and finds one that it meets.
// NULL: none.
static struct conv_api_span *find_meeting(struct conv_api_span **list, size_t *count,
                                          struct conv_api_span *span)
{
    size_t left = 0;
    for (size_t i = 0; i < *count; i++) {
        struct conv_api_span *other = list[i];
        if (other->end <= span->start)
            continue;
        if (conv_api_apart_meet(other, span) && !copy_instead(other, span))
            return other;
        if (!other->is_copied)
            list[left++] = other;
    }
    *count = left;
    return NULL;
}

enum conv_status conv_api_apart_take(conv_context *context, size_t most,
                                     struct conv_api_span **spans, struct conv_err *err)
{
    void *memory;
    enum conv_status status = conv_memory_take(
        context->device->pools, CONV_HOST,
        most * (sizeof **spans + 2 * sizeof(struct conv_api_span *)), &memory, err);
    if (!status)
        *spans = memory;
    return status;
}

bool conv_api_apart_clash(struct conv_api_span *spans, size_t count, size_t most,
                          const struct conv_api_span *clash[2])
{
    struct conv_api_span **written = (struct conv_api_span **)(spans + most);
    struct conv_api_span **read = written + count;
    size_t writes = 0, reads = 0;
    qsort(spans, count, sizeof *spans, compare_starts);
    for (size_t i = 0; i < count; i++) {
        struct conv_api_span *span = &spans[i], *other;
        other = find_meeting(written, &writes, span);
        if (!other && span->written)
            other = find_meeting(read, &reads, span);
        if (other) {
            clash[0] = other->written ? other : span;
            clash[1] = other->written ? span : other;
            return true;
        }
        if (span->written)
            written[writes++] = span;
        else if (!span->is_copied)
            read[reads++] = span;
    }
    return false;
}
