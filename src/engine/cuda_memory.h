// SPDX-License-Identifier: MIT
// Device memory that grows, and host memory that copy engines and kernels reach.
#ifndef CONV_ENGINE_CUDA_MEMORY_H
#define CONV_ENGINE_CUDA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Starts as {0}. All calls with the device as the current one.
struct conv_cuda_memory {
    uint8_t *d_data;
    size_t bytes;
};

// Makes room for at least `bytes`; what was there before is lost if there was less. Allocating and
// freeing device memory stalls all of the device's streams, so up to `spare` more bytes are
// allocated for later needs if the device has them. `purpose` ends the message: "... of device
// memory PURPOSE". CONV_ERR_MEMORY or CONV_ERR_DEVICE, and then there is none.
enum conv_status conv_cuda_memory_reserve(struct conv_cuda_memory *memory, size_t bytes,
                                          size_t spare, const char *purpose, struct conv_err *err);
void conv_cuda_memory_free(struct conv_cuda_memory *memory); // {0} afterwards

// The same for host memory that kernels write to: pinned and mapped at the same address.
struct conv_cuda_mapped {
    uint8_t *h_data;
    size_t bytes;
};

// The content is lost if it grows. CONV_ERR_MEMORY or CONV_ERR_DEVICE, and then there is none.
enum conv_status conv_cuda_mapped_reserve(struct conv_cuda_mapped *memory, size_t bytes,
                                          const char *purpose, struct conv_err *err);
void conv_cuda_mapped_free(struct conv_cuda_mapped *memory); // {0} afterwards

// Pins plain memory for all devices, through one of them, so that copies run at the bus's speed and
// beside kernels. False if that fails. Memory that cannot be unpinned, as after a device was lost,
// must not be given back to the system: the driver would take other pages at its address for it.
// Any thread; both set the thread's current device.
bool conv_cuda_memory_pin(int device, void *memory, size_t bytes);
bool conv_cuda_memory_unpin(int device, void *memory);

#endif
