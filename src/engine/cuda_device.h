// SPDX-License-Identifier: MIT
// CUDA devices by ordinal, and CUDA's errors as messages. Any thread may call any of these.
#ifndef CONV_ENGINE_CUDA_DEVICE_H
#define CONV_ENGINE_CUDA_DEVICE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "base/err.h"
#include "engine/engine.h"

// "CUDA failed to DOING: reason". CONV_ERR_MEMORY if the device is out of memory, else
// CONV_ERR_DEVICE. Clears the thread's last error, which the check after a later launch would find.
enum conv_status conv_cuda_device_report(struct conv_err *err, cudaError_t code, const char *doing);

// False if there is no driver, so that opening a device fails at once. Takes microseconds and does
// not initialise CUDA, which takes 0.1 s and more.
bool conv_cuda_device_has_driver(void);

// At least 1, or CONV_ERR_DEVICE with what the machine lacks, and *count 0.
enum conv_status conv_cuda_device_count(int *count, struct conv_err *err);

// CONV_OK if the machine has a device of that number, else CONV_ERR_DEVICE.
enum conv_status conv_cuda_device_check(int device, struct conv_err *err);

// `devices` and `read_memory` of struct conv_device_ops.
enum conv_status conv_cuda_device_list(struct conv_device_info *info, int room, int *count,
                                       struct conv_err *err);
enum conv_status conv_cuda_device_read_memory(struct conv_device_info *info, int device,
                                              struct conv_err *err);

// The compute capability (90 = 9.0) by which kernels are chosen: of the device, or of the newest
// kernels for it in this program (kernels/common/cuda_code.h).
enum conv_status conv_cuda_device_capability(int device, int *capability, struct conv_err *err);

// Makes the device the current one of the calling thread.
enum conv_status conv_cuda_device_use(int device, struct conv_err *err);

#endif
