// SPDX-License-Identifier: MIT
// The ladder of the course (docs/course): kernels from the first attempt on, one idea per step.
// Benchmarks and checks list them after the variants of stencil.h and layer.h; nothing else links
// them, so no choice returns one.
#pragma once

#include "kernels/layer/layer.h"
#include "kernels/stencil/stencil.h"

#ifdef __cplusplus
extern "C" {
#endif

struct conv_ladder_step {
    const struct conv_variant *variant;
    bool shape; // the step before it with another block shape
    // True: each plane of a batch is an image stored as RGBRGB..., whose `width` counts samples,
    // three per pixel.
    bool interleaved;
    bool product; // also in the table of stencil.h
};

// From the first step to the last; *count is set, to 0 without CUDA.
const struct conv_ladder_step *conv_ladder_steps(int *count);

struct conv_ladder_layer_step {
    const struct conv_layer_variant *variant;
    bool shape; // the step before it with another tile
};

const struct conv_ladder_layer_step *conv_ladder_layer_steps(int *count);

// Only multiply-adds in registers: queues `blocks` blocks that repeat them `turns` times. Nothing
// is written to `d_out`, which has room for one float. CONV_ERR_DEVICE.
enum conv_status conv_cuda_ladder_fma(float *d_out, int blocks, int turns, void *stream);
// The number of floating-point operations of these, two per multiply-add.
double conv_cuda_ladder_fma_flops(int blocks, int turns);

// The kernels.
extern const struct conv_variant conv_cuda_interleaved, conv_cuda_naive, conv_cuda_constant,
    conv_cuda_shared, conv_cuda_unrolled, conv_cuda_planes, conv_cuda_dp4a;
extern const struct conv_variant conv_cuda_shared_shapes[5], conv_cuda_unrolled_shapes[3];
extern const struct conv_variant conv_cuda_student; // defined with -DCONV_STUDENT=FILE only

extern const struct conv_layer_variant conv_cuda_layer_naive, conv_cuda_layer_constant,
    conv_cuda_layer_shared, conv_cuda_layer_shared_constant, conv_cuda_layer_hoisted,
    conv_cuda_layer_channels, conv_cuda_layer_specialised, conv_cuda_layer_atomics,
    conv_cuda_layer_tree, conv_cuda_layer_im2col, conv_cuda_layer_fused, conv_cuda_layer_register;
extern const struct conv_layer_variant conv_cuda_layer_register_shapes[6];

#ifdef __cplusplus
}
#endif
