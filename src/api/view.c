// SPDX-License-Identifier: MIT
#include "api/api_view.h"

#include <stdlib.h>

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
        return conv_err_set(err, CONV_ERR_USAGE, "%s: `data` is NULL", name);
    if (view->width < 1 || view->height < 1)
        return conv_err_set(err, CONV_ERR_USAGE, "%s: a size of %d x %d; both must be at least 1",
                            name, view->width, view->height);
    if (view->channels < 1 || view->channels > CONV_IMAGE_MAX_CHANNELS)
        return conv_err_set(err, CONV_ERR_USAGE, "%s: %d channels; there must be 1 to 4", name,
                            view->channels);
    if (view->has_alpha && view->channels % 2 != 0)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: %d channels with alpha; only 2 and 4 can have it", name,
                            view->channels);
    if (view->reserved[0] || view->reserved[1])
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "%s: `reserved` is not 0", name);
    if (!sample || view->sample > most)
        return conv_err_set(err, CONV_ERR_USAGE, "%s: this sample type is not possible here", name);
    if (view->memory != CONV_HOST && view->memory != CONV_DEVICE)
        return conv_err_set(err, CONV_ERR_USAGE, "%s: `memory` is %d, not a kind of memory", name,
                            (int)view->memory);
    if ((uintptr_t)view->data % (uintptr_t)sample != 0)
        return conv_err_set(err, CONV_ERR_USAGE, "%s: `data` is not aligned to its samples", name);
    struct dimension sorted[DIMENSIONS];
    int count = sort_dimensions(sorted, view);
    for (int i = 0; i < count; i++) {
        int64_t last;
        if (sorted[i].stride < 0 || sorted[i].stride % sample != 0)
            return conv_err_set(
                err, CONV_ERR_USAGE,
                "%s: strides must be multiples of a sample's %d bytes, not negative", name,
                (int)sample);
        if (written && sorted[i].stride < extent)
            return conv_err_set(err, CONV_ERR_USAGE,
                                "%s: strides are too small, so that samples overlap", name);
        if (__builtin_mul_overflow(sorted[i].count - 1, sorted[i].stride, &last) ||
            __builtin_add_overflow(extent, last, &extent))
            return conv_err_set(err, CONV_ERR_USAGE, "%s: strides are too large", name);
    }
    if ((uint64_t)extent > UINTPTR_MAX - (uintptr_t)view->data)
        return conv_err_set(err, CONV_ERR_USAGE, "%s: strides are too large", name);
    return CONV_OK;
}

// Bytes from the first to the last sample of a checked view.
static size_t find_extent(const conv_image *view)
{
    return (size_t)((view->channels - 1) * view->channel_stride +
                    (view->width - 1) * view->column_stride +
                    (view->height - 1) * view->row_stride + conv_sample_bytes(view->sample));
}

// True if two elements of a view with these dimensions and samples of `size` bytes, shifted by
// `shift` bytes against each other, have bytes in common.
static bool meets_itself(const struct dimension *sorted, int count, int64_t shift, int64_t size)
{
    if (count == 0)
        return shift > -size && shift < size;
    const struct dimension *outer = &sorted[count - 1];
    int64_t steps = shift / outer->stride;
    // The remainder is less than a stride in either direction, since the inner dimensions extend
    // less.
    for (int64_t i = steps - 1; i <= steps + 1; i++)
        if (i > -outer->count && i < outer->count &&
            meets_itself(sorted, count - 1, shift - i * outer->stride, size))
            return true;
    return false;
}

bool conv_api_views_overlap(const conv_image *a, const conv_image *b)
{
    uintptr_t of_a = (uintptr_t)a->data, of_b = (uintptr_t)b->data;
    if (of_a + find_extent(a) <= of_b || of_b + find_extent(b) <= of_a)
        return false;
    struct dimension in_a[DIMENSIONS], in_b[DIMENSIONS];
    int count = sort_dimensions(in_a, a);
    bool same = count == sort_dimensions(in_b, b) && a->sample == b->sample;
    for (int i = 0; same && i < count; i++)
        same = in_a[i].count == in_b[i].count && in_a[i].stride == in_b[i].stride &&
               in_a[i].stride > 0;
    return !same || meets_itself(in_a, count, (int64_t)(of_b - of_a), conv_sample_bytes(a->sample));
}

bool conv_api_view_is(const conv_image *a, const conv_image *b)
{
    return a->data == b->data && a->sample == b->sample && a->row_stride == b->row_stride &&
           a->column_stride == b->column_stride && a->channel_stride == b->channel_stride;
}

struct conv_image conv_api_planes(const conv_image *view)
{
    struct conv_image image = {
        .width = view->width,
        .height = view->height,
        .channels = view->channels,
        .depth = 8 * (int)conv_sample_bytes(view->sample),
        .alpha = view->has_alpha,
    };
    for (int c = 0; c < view->channels; c++)
        image.plane[c] = (struct conv_plane){(uint8_t *)view->data + c * view->channel_stride,
                                             (ptrdiff_t)view->row_stride};
    return image;
}

conv_image conv_api_view_of(const struct conv_image *image)
{
    conv_image view = {
        .data = image->plane[0].data,
        .width = image->width,
        .height = image->height,
        .channels = image->channels,
        .sample = image->depth == 8    ? CONV_SAMPLE_U8
                  : image->depth == 16 ? CONV_SAMPLE_U16
                                       : CONV_SAMPLE_F32,
        .has_alpha = image->alpha,
        .row_stride = image->plane[0].stride,
        .column_stride = image->depth / 8,
    };
    if (image->channels > 1)
        view.channel_stride = image->plane[1].data - image->plane[0].data;
    return view;
}
