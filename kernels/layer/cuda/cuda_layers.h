// SPDX-License-Identifier: MIT
// The CUDA variants of layer.h's table.
#pragma once

#include "kernels/layer/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Like conv_layer_pad, on device memory, queued into batch->stream; `to`: F32, or F16 or BF16,
// rounded to nearest even. CONV_ERR_DEVICE if the launch failed; cudaGetLastError returns the
// cause.
enum conv_status conv_cuda_layer_pad(const struct conv_layer *layer,
                                     const struct conv_layer_shape *shape,
                                     const struct conv_layer_batch *batch, void *d_dst,
                                     enum conv_element to);

// What is left to do to the sums of a layer.
struct conv_layer_finish {
    int64_t planes, plane; // how many, of all images and maps; their samples
    int maps;
    bool last;           // maps are adjacent: there is one plane of them all
    const float *d_bias; // [maps], or NULL
    enum conv_activation activation;
    enum conv_element from, to; // F32, F16 or BF16
};

// Adds the bias to sums in device memory, applies the activation, and rounds to nearest even; src
// and dst are without gaps, and the same if `from` and `to` are. Queued into `stream`, status as
// above.
enum conv_status conv_cuda_layer_finish(const struct conv_layer_finish *finish, const void *src,
                                        void *dst, void *stream);

// Packs weights that are on the device into d_packed, `count` elements, queued into `stream`:
// element i is that of `index` among the weights, `weight_count` of them, followed by the bias
// (NULL: zeros), or 0 for -1, or -0 for -2. CONV_ERR_DEVICE as above.
enum conv_status conv_cuda_layer_gather(float *d_packed, const int32_t *d_index, size_t count,
                                        const float *d_weights, size_t weight_count,
                                        const float *d_bias, void *stream);

// The kernels, all of them in the exact order of additions.
extern const struct conv_layer_variant conv_cuda_layer_gemm, conv_cuda_layer_window,
    conv_cuda_layer_few, conv_cuda_layer_bulk, conv_cuda_layer_direct;

#ifdef __cplusplus
}
#endif
