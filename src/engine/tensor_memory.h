// SPDX-License-Identifier: MIT
// Host memory that grows, for tensors. Aligned to 64 bytes. Starts as {0}; belongs to one thread at
// a time, and its owner frees `data`.
#ifndef CONV_ENGINE_TENSOR_MEMORY_H
#define CONV_ENGINE_TENSOR_MEMORY_H

#include <stddef.h>

#include "base/err.h"

struct conv_tensor_memory {
    void *data;
    size_t size; // bytes
};

// Makes it at least `size` bytes, which is not 0; the old contents are lost. `what` names the
// contents in messages. CONV_ERR_MEMORY: then there is no memory.
enum conv_status conv_tensor_memory_reserve(struct conv_tensor_memory *memory, size_t size,
                                            const char *what, struct conv_err *err);

// Sets *h_in and *h_out to staging memory of at least in_bytes and out_bytes (0 is fine).
enum conv_status conv_tensor_memory_stage(struct conv_tensor_memory *in, size_t in_bytes,
                                          struct conv_tensor_memory *out, size_t out_bytes,
                                          const char *what, void **h_in, void **h_out,
                                          struct conv_err *err);

#endif
