// SPDX-License-Identifier: MIT
// Copies of samples between image layouts: planes, interleaved samples, any strides; with
// conversion of sample types and channels. Plain C without CUDA types.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONV_LAYOUT_MAX_CHANNELS 4

// Sample (x, y) of channel c is at channel[c] + y * row + x * column. Strides are bytes, multiples
// of the size of a sample and not negative; channels begin at multiples of that size.
struct conv_layout_view {
    uint8_t *channel[CONV_LAYOUT_MAX_CHANNELS];
    int64_t row, column;
    int32_t channels;
    int32_t sample_bytes; // 1, 2: unsigned integers; 4: float32
    bool alpha;           // the last channel is alpha
    // Channels are planes of rows at multiples of 16 bytes, and the bytes after a row up to the
    // next multiple of 16 may be read (source) or overwritten (destination).
    bool padded;
};

// An image to copy in device memory. Source and destination do not overlap. Integers are widened by
// x * 257, narrowed by x / 257 (rounded), and converted to floats of the same value. A single
// colour channel is repeated for several; alpha is dropped, or added as the largest integer. Floats
// are only copied, and several colour channels are not reduced to one.
struct conv_layout_copy {
    struct conv_layout_view dst, src;
    int32_t width, height; // pixels, at least 1
};

static inline bool conv_layout_is_view(const struct conv_layout_view *view)
{
    return view->channels >= 1 && view->channels <= CONV_LAYOUT_MAX_CHANNELS &&
           view->channels > view->alpha &&
           (view->sample_bytes == 1 || view->sample_bytes == 2 || view->sample_bytes == 4);
}

// True if the copy is one of those above.
static inline bool conv_layout_can(const struct conv_layout_copy *copy)
{
    const struct conv_layout_view *dst = &copy->dst, *src = &copy->src;
    if (copy->width < 1 || copy->height < 1 || !conv_layout_is_view(dst) ||
        !conv_layout_is_view(src))
        return false;
    int dst_colors = dst->channels - dst->alpha, src_colors = src->channels - src->alpha;
    bool adds_alpha = dst->alpha && !src->alpha;
    return (dst_colors == src_colors || src_colors == 1) &&
           (src->sample_bytes < 4 || dst->sample_bytes == 4) &&
           !(adds_alpha && dst->sample_bytes == 4);
}

// Copies `width` samples of a row in host memory, with the same conversions. Strides are counted in
// samples, `to` and `from` are the bytes of one.
void conv_layout_copy_row(void *dst, int to, int64_t dst_stride, const void *src, int from,
                          int64_t src_stride, int64_t width);
// Sets samples to the largest integer, or floats to 1.
void conv_layout_fill_row(void *row, int bytes, int64_t stride, int64_t width);

// Queues all copies on `stream`, a cudaStream_t of the calling thread's current device: one launch
// for every 24 copies of the same sample types. `copies` has been read on return. On failure
// CONV_ERR_DEVICE; cudaGetLastError has the cause.
enum conv_status conv_cuda_layout_copy(const struct conv_layout_copy *copies, int count,
                                       void *stream);

#ifdef __cplusplus
}
#endif
