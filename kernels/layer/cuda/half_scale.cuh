// SPDX-License-Identifier: MIT
// Weights of a layer scaled for kernels that multiply float32 as sums of binary16 (mma.cu,
// wgmma.cu, strips.cu). Host code; any thread.
#ifndef CONV_KERNELS_LAYER_CUDA_HALF_SCALE_CUH
#define CONV_KERNELS_LAYER_CUDA_HALF_SCALE_CUH

#include <math.h>

#include "kernels/layer/layer.h"

// The least magnitude of scaled weights: the low part of such a weight still has all its bits.
#define LEAST_SCALED 0x1p-12f

static inline size_t layer_tap_count(const struct conv_layer *layer)
{
    return (size_t)layer->channels * (size_t)layer->kernel_height * (size_t)layer->kernel_width;
}

// The power of two that makes the largest weight of a map 2^14 to 2^15; 0 if the weights differ too
// much in magnitude or are not finite.
static inline float half_scale(const float *weights, size_t taps)
{
    float largest = 0, least = INFINITY;
    for (size_t t = 0; t < taps; t++) {
        float magnitude = fabsf(weights[t]);
        if (!(magnitude < INFINITY))
            return 0;
        if (magnitude > largest)
            largest = magnitude;
        if (magnitude > 0 && magnitude < least)
            least = magnitude;
    }
    if (largest == 0)
        return 1;
    if (largest < 0x1p-100f || largest > 0x1p100f)
        return 0;
    float scale = ldexpf(1, 14 - ilogbf(largest));
    return least * scale < LEAST_SCALED ? 0 : scale;
}

// Whether the weights of each map can be scaled.
static inline bool half_scales_exist(const struct conv_layer *layer)
{
    size_t taps = layer_tap_count(layer);
    for (int m = 0; m < layer->maps; m++)
        if (half_scale(layer->weights + (size_t)m * taps, taps) == 0)
            return false;
    return true;
}

#endif
