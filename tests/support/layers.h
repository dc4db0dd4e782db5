// SPDX-License-Identifier: MIT
// Layers of float32, for tests to vary.
#pragma once

#include "kernels/layer/layer.h"

// Dense, without padding; a kernel has `kernel` x `kernel` taps.
static inline struct conv_layer layer_of(int channels, int maps, int kernel, const float *weights)
{
    return (struct conv_layer){
        .channels = channels,
        .maps = maps,
        .kernel_height = kernel,
        .kernel_width = kernel,
        CONV_LAYER_DENSE,
        .border = CONV_BORDER_CONSTANT,
        .input = CONV_ELEMENT_F32,
        .input_divisor = 1,
        .output = CONV_ELEMENT_F32,
        .weights = weights,
    };
}
