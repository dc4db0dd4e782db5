// SPDX-License-Identifier: MIT
// What the files of the CUDA tenant share: cuda.c (open, close, staging), cuda_lane.c (a group's
// way through a stream), cuda_copies.c (copies alone, timed), cuda_device.c (devices and errors).
#ifndef CONV_BACKEND_CUDA_PARTS_H
#define CONV_BACKEND_CUDA_PARTS_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "kernels/stencil.h"

// One filter of the chain, ready for both depths.
struct conv_cuda_step {
    struct conv_stencil stencil[2]; // 8 bits, 16 bits
    const struct conv_variant *variant[2];
};

struct conv_backend {
    int device;
    uint8_t *d_stencils; // what the steps' stencils have uploaded
    int step_count;
    bool premultiplied;
    struct conv_cuda_step steps[];
};

// --- cuda_device.c -------------------------------------------------------------------------------

// "CUDA failed to DOING: reason". CONV_ERR_MEMORY or CONV_ERR_DEVICE. Also takes the error off the
// thread's record, where the check after a later launch would find it.
enum conv_status conv_cuda_device_report(struct conv_err *err, cudaError_t code, const char *doing);

// At least 1, or CONV_ERR_DEVICE with what the machine lacks.
enum conv_status conv_cuda_device_count(int *count, struct conv_err *err);

// 90 = 9.0.
enum conv_status conv_cuda_device_capability(int device, int *capability, struct conv_err *err);

// The current device is a thread's own, and lanes and staging are used by many threads.
enum conv_status conv_cuda_device_use(const struct conv_backend *backend, struct conv_err *err);

// --- cuda_lane.c: see struct conv_backend_ops ----------------------------------------------------

size_t conv_cuda_lane_table_bytes(int step_count);
enum conv_status conv_cuda_lane_open(struct conv_backend *backend, struct conv_lane **lane,
                                     size_t bytes, struct conv_err *err);
void conv_cuda_lane_close(struct conv_lane *lane);
enum conv_status conv_cuda_lane_run(struct conv_lane *lane, struct conv_group *group,
                                    struct conv_err *err);
enum conv_status conv_cuda_lane_again(struct conv_lane *lane, struct conv_group *group,
                                      uint64_t *ns, struct conv_err *err);
enum conv_status conv_cuda_lane_copy(struct conv_lane *lane, struct conv_group *group, uint64_t *ns,
                                     struct conv_err *err);

// --- cuda_copies.c -------------------------------------------------------------------------------

enum conv_status conv_cuda_copies_time(struct conv_backend *backend,
                                       const struct conv_copy_test *test, uint64_t *ns,
                                       struct conv_err *err);

#endif
