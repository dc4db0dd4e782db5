// SPDX-License-Identifier: MIT
// The CUDA variants and their setup before the first launch. Plain C, so that the table, the
// backend and the tests see no CUDA type.
#pragma once

#include <stddef.h>

#include "kernels/stencil/stencil.h"

#ifdef __cplusplus
extern "C" {
#endif

// Running one needs an uploaded plan (below) and a batch with at least one tile, whose stream
// belongs to the calling thread's current device. After CONV_ERR_DEVICE, cudaGetLastError returns
// the cause.
extern const struct conv_variant conv_cuda_tma_mma, conv_cuda_tma_mma_wide,
    conv_cuda_tma_mma_wide16, conv_cuda_tma_mma_large, conv_cuda_mma, conv_cuda_tma,
    conv_cuda_tma_large, conv_cuda_separable, conv_cuda_blocked, conv_cuda_blocked_floats,
    conv_cuda_gradient, conv_cuda_decimated;

// `plan` and `run` of conv_cuda_decimated for float32 samples.
void conv_cuda_decimated_floats_plan(const struct conv_stencil *stencil,
                                     struct conv_stencil_plan *plan);
enum conv_status conv_cuda_decimated_floats_run(const struct conv_stencil_plan *plan,
                                                const struct conv_stencil_batch *batch);

// Bytes of device memory that one uploaded plan takes (a multiple of 256).
size_t conv_cuda_upload_bytes(void);

// Copies the data that kernels read from device memory to d_memory (conv_cuda_upload_bytes() bytes,
// 256-byte aligned, as from cudaMalloc) and sets plan->cuda for the calling thread's current
// device, the only one on which the plan can be run. The caller owns d_memory and keeps it as long
// as the plan is run. Done on return. CONV_ERR_DEVICE if a call of the runtime failed.
enum conv_status conv_cuda_upload(struct conv_stencil_plan *plan, void *d_memory);

#ifdef __cplusplus
}
#endif
