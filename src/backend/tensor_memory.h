// SPDX-License-Identifier: MIT
// Host memory that grows, for tensors. Aligned to 64 bytes. Starts as {0}; belongs to one thread at
// a time, and its owner frees `data`.
#ifndef CONV_BACKEND_TENSOR_MEMORY_H
#define CONV_BACKEND_TENSOR_MEMORY_H

#include <stddef.h>

#include "base/err.h"

struct conv_tensor_memory {
    void *data;
    size_t size; // bytes
};

// At least `size` bytes, which is not 0; what was there before is lost. `what` they hold, for the
// message. CONV_ERR_MEMORY: then there is no memory.
enum conv_status conv_tensor_memory_reserve(struct conv_tensor_memory *memory, size_t size,
                                            const char *what, struct conv_err *err);

// Staging memory of at least that many bytes (0 is fine), in *h_in and *h_out.
enum conv_status conv_tensor_memory_stage(struct conv_tensor_memory *in, size_t in_bytes,
                                          struct conv_tensor_memory *out, size_t out_bytes,
                                          const char *what, void **h_in, void **h_out,
                                          struct conv_err *err);

#endif
