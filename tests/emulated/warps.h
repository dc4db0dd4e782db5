// SPDX-License-Identifier: MIT
// What the kernels of PNG decoding ask of warps and blocks beyond include/cuda_runtime.h, and their
// arithmetic.
#ifndef CONV_EMULATED_WARPS_H
#define CONV_EMULATED_WARPS_H

#include "block.h"
#include "shared.h"

#define __forceinline__ static inline

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

static inline uint32_t __brev(uint32_t bits)
{
    uint32_t reversed = 0;
    for (int i = 0; i < 32; i++)
        reversed |= (bits >> i & 1) << (31 - i);
    return reversed;
}

static inline int __clz(int bits)
{
    return bits ? __builtin_clz((unsigned)bits) : 32;
}

static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

static inline uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t sum)
{
    for (int i = 0; i < 32; i += 8)
        sum += (a >> i & 255) * (b >> i & 255);
    return sum;
}

// The lanes that have brought the same value.
static inline uint32_t __match_any_sync(uint32_t mask, uint32_t value,
                                        const char *file = __builtin_FILE(),
                                        int line = __builtin_LINE())
{
    auto lanes = emulated::exchange<uint32_t>({file, line}, mask, value);
    uint32_t same = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            same |= (uint32_t)(lanes[i] == value) << i;
    return same;
}

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

static inline void st_volatile_shared_u16(uint32_t to, uint16_t value)
{
    __atomic_store_n(at_shared<uint16_t>(to), value, __ATOMIC_RELAXED);
}

} // namespace ptx

#endif
