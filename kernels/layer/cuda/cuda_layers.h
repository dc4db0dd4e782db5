// SPDX-License-Identifier: MIT
// The CUDA variants of layer.h's table.
#ifndef CONV_KERNELS_LAYER_CUDA_CUDA_LAYERS_H
#define CONV_KERNELS_LAYER_CUDA_CUDA_LAYERS_H

#include "kernels/layer/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Like conv_layer_pad, on device memory, queued into batch->stream. CONV_ERR_DEVICE if the launch
// failed; cudaGetLastError returns the cause.
enum conv_status conv_cuda_layer_pad(const struct conv_layer *layer,
                                     const struct conv_layer_shape *shape,
                                     const struct conv_layer_batch *batch, float *d_dst);

// The fast kernels.
extern const struct conv_layer_variant conv_cuda_layer_few, conv_cuda_layer_uniform,
    conv_cuda_layer_tiles, conv_cuda_layer_rows, conv_cuda_layer_bulk, conv_cuda_layer_slices,
    conv_cuda_layer_points, conv_cuda_layer_direct, conv_cuda_layer_large, conv_cuda_layer_mma_half,
    conv_cuda_layer_wgmma, conv_cuda_layer_wgmma_half, conv_cuda_layer_strips,
    conv_cuda_layer_strips_half, conv_cuda_layer_points_bulk, conv_cuda_layer_points_wgmma,
    conv_cuda_layer_points_tf32;

// The ladder, from the first attempt on, one idea per step. Files ladder_*.cu.
extern const struct conv_layer_variant conv_cuda_layer_naive, conv_cuda_layer_constant,
    conv_cuda_layer_shared, conv_cuda_layer_shared_constant, conv_cuda_layer_hoisted,
    conv_cuda_layer_channels, conv_cuda_layer_specialised, conv_cuda_layer_atomics,
    conv_cuda_layer_tree, conv_cuda_layer_im2col, conv_cuda_layer_fused, conv_cuda_layer_register;
// For benchmarks and tests: other tiles.
extern const struct conv_layer_variant conv_cuda_layer_register_shapes[6];

// Only multiply-adds in registers, for benchmarks: queues `blocks` blocks that repeat them `turns`
// times. Nothing is written to `d_out`, which has room for one float. CONV_ERR_DEVICE.
enum conv_status conv_cuda_layer_fma(float *d_out, int blocks, int turns, void *stream);
// The number of floating-point operations of these, two per multiply-add.
double conv_cuda_layer_fma_flops(int blocks, int turns);

#ifdef __cplusplus
}
#endif

#endif
