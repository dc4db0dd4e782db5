// SPDX-License-Identifier: MIT
// What the kernels of PNG decoding ask of blocks beyond include/cuda_runtime.h.
#ifndef CONV_EMULATED_WARPS_H
#define CONV_EMULATED_WARPS_H

#include "block.h"
#include "shared.h"

#define __forceinline__ static inline

static inline int __syncthreads_or(int value, const char *file = __builtin_FILE(),
                                   int line = __builtin_LINE())
{
    return emulated::meet_block_with({file, line}, value != 0);
}

// Volatile accesses are for what other threads change meanwhile, which to the thread sanitizer are
// atomic ones.
namespace ptx
{

template <typename Word> static inline Word *at_shared(uint32_t address)
{
    return (Word *)emulated::shared_at(address, sizeof(Word), sizeof(Word));
}

static inline void ld_volatile_shared_u16(uint16_t &to, uint32_t from)
{
    to = __atomic_load_n(at_shared<uint16_t>(from), __ATOMIC_RELAXED);
}

static inline void ld_volatile_shared_u32(uint32_t &to, uint32_t from)
{
    to = __atomic_load_n(at_shared<uint32_t>(from), __ATOMIC_RELAXED);
}

static inline void st_volatile_shared_u32(uint32_t to, uint32_t value)
{
    __atomic_store_n(at_shared<uint32_t>(to), value, __ATOMIC_RELAXED);
}

} // namespace ptx

#endif
