// SPDX-License-Identifier: MIT
// The CUDA variants of layer.h's table.
#ifndef CONV_KERNELS_LAYER_CUDA_CUDA_LAYERS_H
#define CONV_KERNELS_LAYER_CUDA_CUDA_LAYERS_H

#include "kernels/layer/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

// As conv_layer_pad on device memory, queued into batch->stream. CONV_ERR_DEVICE if the launch
// failed; cudaGetLastError returns the cause.
enum conv_status conv_cuda_layer_pad(const struct conv_layer *layer,
                                     const struct conv_layer_shape *shape,
                                     const struct conv_layer_batch *batch, float *d_dst);

// Multiply-adds in registers alone, for benchmarks: queues `blocks` blocks that repeat them `turns`
// times. Nothing is written to `d_out`, which has room for one float. CONV_ERR_DEVICE.
enum conv_status conv_cuda_layer_fma(float *d_out, int blocks, int turns, void *stream);
// The floating-point operations of that, two each.
double conv_cuda_layer_fma_flops(int blocks, int turns);

#ifdef __cplusplus
}
#endif

#endif
