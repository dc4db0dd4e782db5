// SPDX-License-Identifier: MIT
// Copies between views row by row and channel by channel.
#include "engine/view.h"

#include <string.h>

#include "base/features.h"
#include "image/interleave.h"
#include "kernels/layout/layout.h"
#include "png/cpu/filter_rows.h"
#include "png/cpu/unfilter.h"

bool conv_view_is(const conv_image *a, const conv_image *b)
{
    return a->data == b->data && a->sample == b->sample && a->row_stride == b->row_stride &&
           a->column_stride == b->column_stride && a->channel_stride == b->channel_stride;
}

struct conv_image conv_view_planes(const conv_image *view)
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

conv_image conv_view_of(const struct conv_image *image)
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

// TIFF 6.0, "Orientation": where the first row and the first column are.
conv_image conv_view_stored(const conv_image *view, int orientation)
{
    enum { RIGHT = 1 << 2 | 1 << 3 | 1 << 6 | 1 << 7, BOTTOM = 1 << 3 | 1 << 4 | 1 << 7 | 1 << 8 };
    int64_t x = view->column_stride, y = view->row_stride;
    uint8_t *data = view->data;
    if (RIGHT >> orientation & 1) {
        data += (view->width - 1) * x;
        x = -x;
    }
    if (BOTTOM >> orientation & 1) {
        data += (view->height - 1) * y;
        y = -y;
    }
    bool turned = orientation >= 5;
    conv_image stored = *view;
    stored.data = data;
    stored.width = turned ? view->height : view->width;
    stored.height = turned ? view->width : view->height;
    stored.column_stride = turned ? y : x;
    stored.row_stride = turned ? x : y;
    return stored;
}

// --- copies --------------------------------------------------------------------------------------

// The channel of the source that becomes channel c of the result; -1: opaque alpha.
static int source_channel(int c, int to, int from)
{
    bool to_alpha = to % 2 == 0, from_alpha = from % 2 == 0;
    if (to == from)
        return c;
    if (to_alpha && c == to - 1)
        return from_alpha ? from - 1 : -1;
    return from < 3 ? 0 : c;
}

void conv_view_copier_init(struct conv_view_copier *copier, const conv_image *dst,
                           const conv_image *src)
{
    *copier = (struct conv_view_copier){.how = CONV_VIEW_BY_CHANNEL};
    if (dst->sample != src->sample || dst->channels != src->channels)
        return;
    bool bytes = src->sample == CONV_SAMPLE_U8 && src->channels > 1;
    if (conv_view_is_packed(dst) && conv_view_is_packed(src)) {
        copier->how = CONV_VIEW_AS_IT_IS;
    } else if (bytes && conv_view_is_packed(src) && dst->column_stride == 1) {
        copier->how = CONV_VIEW_SPLIT;
        copier->splits = conv_unfilter_choose(conv_cpu_features());
    } else if (bytes && conv_view_is_packed(dst) && src->column_stride == 1) {
        copier->how = CONV_VIEW_JOIN;
        copier->joins = conv_filter_rows_choose(conv_cpu_features());
    }
}

// Vectors read CONV_UNFILTER_SLACK bytes more than they split, which the end of a row does not
// have: the last pixels are split one by one.
static void split_row(const struct conv_unfilter *functions, const conv_image *dst, uint8_t *out,
                      const uint8_t *row)
{
    int last = CONV_UNFILTER_SLACK / dst->channels + 1;
    last = last < dst->width ? last : dst->width;
    struct conv_image part = {.width = dst->width - last, .channels = dst->channels, .depth = 8};
    for (int c = 0; c < dst->channels; c++)
        part.plane[c].data = out + c * dst->channel_stride;
    if (part.width > 0)
        functions->split(&part, 0, row);
    for (int c = 0; c < dst->channels; c++)
        part.plane[c].data += part.width;
    row += (size_t)part.width * (size_t)dst->channels;
    part.width = last;
    conv_interleave_split(&part, 0, row);
}

static void join_row(const struct conv_filter_rows *functions, const conv_image *src, uint8_t *out,
                     const uint8_t *row)
{
    const uint8_t *planes[CONV_IMAGE_MAX_CHANNELS];
    for (int c = 0; c < src->channels; c++)
        planes[c] = row + c * src->channel_stride;
    functions->join(out, planes, src->channels, (size_t)src->width);
}

static void copy_channels(const conv_image *dst, const conv_image *src, uint8_t *dst_row,
                          const uint8_t *src_row)
{
    int to = (int)conv_sample_bytes(dst->sample), from = (int)conv_sample_bytes(src->sample);
    for (int c = 0; c < dst->channels; c++) {
        int channel = source_channel(c, dst->channels, src->channels);
        uint8_t *out = dst_row + c * dst->channel_stride;
        if (channel < 0)
            conv_layout_fill_row(out, to, dst->column_stride / to, dst->width);
        else
            conv_layout_copy_row(out, to, dst->column_stride / to,
                                 src_row + channel * src->channel_stride, from,
                                 src->column_stride / from, dst->width);
    }
}

void conv_view_copier_row(const struct conv_view_copier *copier, const conv_image *dst, void *to,
                          const conv_image *src, const void *from)
{
    switch (copier->how) {
    case CONV_VIEW_AS_IT_IS:
        memcpy(to, from, (size_t)(src->width * src->column_stride));
        break;
    case CONV_VIEW_SPLIT:
        split_row(copier->splits, dst, to, from);
        break;
    case CONV_VIEW_JOIN:
        join_row(copier->joins, src, to, from);
        break;
    case CONV_VIEW_BY_CHANNEL:
        copy_channels(dst, src, to, from);
        break;
    }
}

void conv_view_copy(const conv_image *dst, const conv_image *src, int first, int count)
{
    struct conv_view_copier copier;
    conv_view_copier_init(&copier, dst, src);
    for (int y = first; y < first + count; y++)
        conv_view_copier_row(&copier, dst, (uint8_t *)dst->data + y * dst->row_stride, src,
                             (const uint8_t *)src->data + y * src->row_stride);
}
