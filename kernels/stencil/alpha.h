// SPDX-License-Identifier: MIT
// Premultiplied alpha: colours are multiplied by alpha before a filter and divided by it after.
// Max is 255 or 65535. All functions work in place.
#pragma once

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

// What happens to colours around a filter of a chain, so that the chain produces the same samples
// as its filters run one after the other on files.
enum conv_alpha_step {
    CONV_ALPHA_NOTHING,
    CONV_ALPHA_MULTIPLY,
    CONV_ALPHA_DIVIDE,
    CONV_ALPHA_RENEW, // divided and multiplied again
    // Alpha at the plane's source is copied to its result.
    CONV_ALPHA_RESTORE,
};

// The step before the first filter of `count`, with index -1, or after filter `index`. Bit i of
// `kept`: filter i takes colours as they are.
static inline enum conv_alpha_step conv_alpha_step_after(unsigned kept, int index, int count)
{
    bool divides = index >= 0 && !(kept >> index & 1);
    bool multiplies = index + 1 < count && !(kept >> (index + 1) & 1);
    return divides      ? multiplies ? CONV_ALPHA_RENEW : CONV_ALPHA_DIVIDE
           : multiplies ? CONV_ALPHA_MULTIPLY
                        : CONV_ALPHA_NOTHING;
}

// Does a step to the colours at plane->dst with plane->alpha, which has the stride of dst. Does
// nothing if alpha is NULL. CONV_ALPHA_RESTORE: where planes lie as in plane->src.
void conv_alpha_run(enum conv_alpha_step step, const struct conv_stencil_plane *plane, int depth);

// The same on the device, for a table of planes in device memory; `stream` is a cudaStream_t. Only
// queues the work. With `before`, the colours at plane->src, whose alpha lies as that of dst does.
// CONV_ERR_DEVICE if the launch failed.
enum conv_status conv_cuda_alpha_run(enum conv_alpha_step step, bool before,
                                     const struct conv_stencil_plane *d_planes, int count,
                                     int depth, void *stream);

#ifdef __cplusplus
}
#endif
