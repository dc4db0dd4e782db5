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

// Packs weights that are on the device into d_packed, `count` elements, queued into `stream`:
// element i is that of `index` among the weights, `weight_count` of them, followed by the bias
// (NULL: zeros), or 0 for -1, or -0 for -2. CONV_ERR_DEVICE as above.
enum conv_status conv_cuda_layer_gather(float *d_packed, const int32_t *d_index, size_t count,
                                        const float *d_weights, size_t weight_count,
                                        const float *d_bias, void *stream);

// The fast kernels.
extern const struct conv_layer_variant conv_cuda_layer_gemm, conv_cuda_layer_window,
    conv_cuda_layer_few, conv_cuda_layer_uniform, conv_cuda_layer_bulk, conv_cuda_layer_direct,
    conv_cuda_layer_mma_half, conv_cuda_layer_wgmma, conv_cuda_layer_wgmma_half,
    conv_cuda_layer_strips, conv_cuda_layer_strips_half, conv_cuda_layer_points_wgmma,
    conv_cuda_layer_points_tf32;

#ifdef __cplusplus
}
#endif

#endif
