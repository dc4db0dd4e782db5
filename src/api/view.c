// SPDX-License-Identifier: MIT
// Checks of the caller's views.
#include "api/api_context.h"
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
