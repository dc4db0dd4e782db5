// SPDX-License-Identifier: MIT
// Asynchronous copies of a thread to shared memory: done when it waits for them, not before.
#pragma once

#include <cuda_runtime.h>

static inline void __pipeline_memcpy_async(void *to, const void *from, size_t size,
                                           size_t zeros = 0)
{
    emulated::copy_later(to, from, size, zeros);
}

static inline void __pipeline_commit()
{
    emulated::commit_copies();
}

static inline void __pipeline_wait_prior(unsigned groups)
{
    emulated::finish_copies(groups);
}
