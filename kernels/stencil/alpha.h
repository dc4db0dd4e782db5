// SPDX-License-Identifier: MIT
// Premultiplied alpha: colours are multiplied by alpha before a filter and divided by it after.
// Only colours change; max is 255 or 65535. All functions work in place.
#ifndef CONV_KERNELS_STENCIL_ALPHA_H
#define CONV_KERNELS_STENCIL_ALPHA_H

#include "image/image.h"
#include "kernels/stencil/stencil.h"

#ifdef __cplusplus
extern "C" {
#endif

// round(colour * alpha / max); max is odd, so there are no ties.
CONV_HOST_DEVICE static inline uint32_t conv_alpha_multiply_sample(uint32_t colour, uint32_t alpha,
                                                                   uint32_t max)
{
    return (colour * alpha + max / 2) / max;
}

// alpha ? min(max, round_half_up(colour * max / alpha)) : 0. The sum is at most 65535^2 + 32767,
// which fits 32 bits.
CONV_HOST_DEVICE static inline uint32_t conv_alpha_divide_sample(uint32_t colour, uint32_t alpha,
                                                                 uint32_t max)
{
    if (alpha == 0)
        return 0;
    uint32_t value = (colour * max + alpha / 2) / alpha;
    return value < max ? value : max;
}

// Multiply or divide each colour of the image. Without alpha they do nothing.
void conv_alpha_multiply(const struct conv_image *image);
void conv_alpha_divide(const struct conv_image *image);

// Between two filters of a chain: divides the colours at plane->dst by plane->alpha and multiplies
// them again, so that the chain produces the same samples as its filters run one after the other on
// files. Does nothing if alpha is NULL.
void conv_alpha_renew(const struct conv_stencil_plane *plane, int depth);

// The same on the device, for a table of planes in device memory; `stream` is a cudaStream_t. Only
// queues the work. CONV_ERR_DEVICE if the launch failed.
enum conv_status conv_cuda_alpha_renew(const struct conv_stencil_plane *d_planes, int count,
                                       int depth, void *stream);

// Before the first filter and after the last one: multiplies or divides the colours at plane->dst
// by plane->alpha. Otherwise as above.
enum conv_status conv_cuda_alpha_multiply(const struct conv_stencil_plane *d_planes, int count,
                                          int depth, void *stream);
enum conv_status conv_cuda_alpha_divide(const struct conv_stencil_plane *d_planes, int count,
                                        int depth, void *stream);

#ifdef __cplusplus
}
#endif

#endif
