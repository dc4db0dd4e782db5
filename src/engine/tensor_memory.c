// SPDX-License-Identifier: MIT
#include "engine/tensor_memory.h"

#include <stdint.h>
#include <stdlib.h>

#define ALIGN 64

enum conv_status conv_tensor_memory_reserve(struct conv_tensor_memory *memory, size_t size,
                                            const char *what, struct conv_err *err)
{
    if (size <= memory->size)
        return CONV_OK;
    free(memory->data);
    size_t rounded = size > SIZE_MAX - ALIGN ? 0 : (size + ALIGN - 1) / ALIGN * ALIGN;
    memory->data = rounded ? aligned_alloc(ALIGN, rounded) : NULL;
    memory->size = memory->data ? rounded : 0;
    return memory->data ? CONV_OK
                        : conv_err_set(err, CONV_ERR_MEMORY, "no memory for %zu MiB of %s",
                                       (size >> 20) + 1, what);
}

enum conv_status conv_tensor_memory_stage(struct conv_tensor_memory *in, size_t in_bytes,
                                          struct conv_tensor_memory *out, size_t out_bytes,
                                          const char *what, void **h_in, void **h_out,
                                          struct conv_err *err)
{
    enum conv_status status = conv_tensor_memory_reserve(in, in_bytes ? in_bytes : 1, what, err);
    if (!status)
        status = conv_tensor_memory_reserve(out, out_bytes ? out_bytes : 1, what, err);
    *h_in = in->data;
    *h_out = out->data;
    return status;
}
