// SPDX-License-Identifier: MIT
// Images as callers of the library have them, with any strides: their planes, and copies between
// them in host memory.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "conv.h"
#include "image/image.h"

// True if two views are the same memory with the same strides.
bool conv_view_is(const conv_image *a, const conv_image *b);

// True if the samples of a row are contiguous in each channel, so that kernels can read or write
// the planes where they are.
static inline bool conv_view_is_planar(const conv_image *view)
{
    return view->column_stride == conv_sample_bytes(view->sample) || view->width == 1;
}

// True if the channels of a pixel are one after the other, without gaps between pixels.
static inline bool conv_view_is_packed(const conv_image *view)
{
    int64_t sample = conv_sample_bytes(view->sample);
    return view->column_stride == sample * view->channels &&
           (view->channels == 1 || view->channel_stride == sample);
}

// The planes of a planar view.
struct conv_image conv_view_planes(const conv_image *view);

// A planar view of an image in host memory, which has channels of one size.
conv_image conv_view_of(const struct conv_image *image);

// The view of an image as its file stores it, where `view` has it turned for display, as an
// orientation of Exif (1 to 8) says. Its strides may be negative.
conv_image conv_view_stored(const conv_image *view, int orientation);

// Copies rows between two views in host memory, which have the same size. Sample types and numbers
// of channels may differ as in conv_decode_options; F32 samples have the values of the integers
// that they are made from.
struct conv_view_copier {
    enum { CONV_VIEW_BY_CHANNEL, CONV_VIEW_AS_IT_IS, CONV_VIEW_SPLIT, CONV_VIEW_JOIN } how;
    const struct conv_unfilter *splits;
    const struct conv_filter_rows *joins;
};

// For views with these types, numbers of channels and strides, at any address.
void conv_view_copier_init(struct conv_view_copier *copier, const conv_image *dst,
                           const conv_image *src);
// Copies one row: `to` is its beginning in `dst`, `from` its beginning in `src`.
void conv_view_copier_row(const struct conv_view_copier *copier, const conv_image *dst, void *to,
                          const conv_image *src, const void *from);
// Copies rows [first, first + count).
void conv_view_copy(const conv_image *dst, const conv_image *src, int first, int count);
