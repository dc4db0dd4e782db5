// SPDX-License-Identifier: MIT
// The part of CUDA C++ that kernels/stencil/cuda/ uses, for an ordinary compiler: the declarations
// that nvcc provides without an include, for compute capability 9.0. Barriers and collectives are
// in block.h.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "block.h"
#include "cuda_runtime_api.h"
#include "launch.h"
#include "ptx.h"

#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL

#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)

#define threadIdx (emulated::thread_index())
#define blockIdx (emulated::block_index())
#define blockDim (emulated::block_shape())
#define gridDim (emulated::grid_shape())

struct alignas(8) uint2 {
    uint32_t x, y;
};

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};

struct alignas(8) float2 {
    float x, y;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

// --- arithmetic ----------------------------------------------------------------------------------

template <typename Number> static inline Number min(Number a, Number b)
{
    return b < a ? b : a;
}

template <typename Number> static inline Number max(Number a, Number b)
{
    return a < b ? b : a;
}

template <typename To, typename From> static inline To same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "bits are kept");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

static inline float __int_as_float(int32_t bits)
{
    return same_bits<float>(bits);
}

static inline float __uint_as_float(uint32_t bits)
{
    return same_bits<float>(bits);
}

static inline int32_t __float_as_int(float value)
{
    return same_bits<int32_t>(value);
}

static inline uint32_t __float_as_uint(float value)
{
    return same_bits<uint32_t>(value);
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}

static inline float __double2float_rn(double a)
{
    return (float)a;
}

static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

static inline int __popc(uint32_t bits)
{
    return __builtin_popcount(bits);
}

static inline int __clz(int bits)
{
    return bits ? __builtin_clz((uint32_t)bits) : 32;
}

static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

static inline uint32_t __brev(uint32_t bits)
{
    uint32_t reversed = 0;
    for (int i = 0; i < 32; i++)
        reversed |= (bits >> i & 1) << (31 - i);
    return reversed;
}

static inline uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t sum)
{
    for (int i = 0; i < 32; i += 8)
        sum += (a >> i & 0xff) * (b >> i & 0xff);
    return sum;
}

static inline float __fdividef(float a, float b)
{
    return a / b;
}

static inline uint32_t __vminu2(uint32_t a, uint32_t b)
{
    return min(a & 0xffff0000u, b & 0xffff0000u) | min(a & 0xffffu, b & 0xffffu);
}

static inline uint32_t __vmaxu2(uint32_t a, uint32_t b)
{
    return max(a & 0xffff0000u, b & 0xffff0000u) | max(a & 0xffffu, b & 0xffffu);
}

// Each nibble of `selector` picks a byte of b:a; its top bit, which has the instruction PRMT spread
// a sign, does nothing here.
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 32; i += 8)
        result |= ((uint32_t)(bytes >> 8 * (selector >> i / 2 & 7)) & 0xff) << i;
    return result;
}

static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift & 31));
}

static inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}

// --- memory that threads share -------------------------------------------------------------------

static inline uint32_t atomicAdd(uint32_t *p, uint32_t value)
{
    uint32_t old = __atomic_fetch_add(p, value, __ATOMIC_ACQ_REL);
    emulated::yield_at_times(p);
    return old;
}

static inline uint32_t atomicExch(uint32_t *p, uint32_t value)
{
    return __atomic_exchange_n(p, value, __ATOMIC_ACQ_REL);
}

static inline float atomicAdd(float *p, float value)
{
    uint32_t old = __atomic_load_n((uint32_t *)p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n((uint32_t *)p, &old,
                                        same_bits<uint32_t>(same_bits<float>(old) + value), false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return same_bits<float>(old);
}

// The additions above are sequentially consistent; the thread sanitizer does not support fences.
static inline void __threadfence(void)
{
    emulated::yield_at_times(nullptr);
}

static inline void __nanosleep(unsigned)
{
    emulated::look();
}

static inline uint32_t atomicMin(uint32_t *p, uint32_t value)
{
    uint32_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (value < old &&
           !__atomic_compare_exchange_n(p, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}

static inline uint32_t atomicMax(uint32_t *p, uint32_t value)
{
    uint32_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (value > old &&
           !__atomic_compare_exchange_n(p, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}

static inline uint32_t atomicOr(uint32_t *p, uint32_t value)
{
    return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);
}

// --- caches, which are not emulated --------------------------------------------------------------

template <typename Type> static inline Type __ldg(const Type *p)
{
    return *p;
}

template <typename Type> static inline void __stcs(Type *p, Type value)
{
    *p = value;
}

template <typename Type> static inline Type __ldcg(const Type *p)
{
    return *p;
}

template <typename Type> static inline void __stcg(Type *p, Type value)
{
    *p = value;
}

// --- addresses -----------------------------------------------------------------------------------

static inline size_t __cvta_generic_to_shared(const void *p)
{
    return emulated::shared_offset(p);
}

static inline size_t __cvta_generic_to_global(const void *p)
{
    return (size_t)p;
}

// --- threads that meet ---------------------------------------------------------------------------
// A collective is identified by the line that calls it.

static inline void __syncthreads(EMULATED_HERE)
{
    emulated::meet_block(where);
}

static inline void __syncwarp(uint32_t mask = 0xffffffffu, EMULATED_HERE)
{
    emulated::exchange<int>(where, mask, 0);
}

static inline uint32_t __ballot_sync(uint32_t mask, bool predicate, EMULATED_HERE)
{
    auto lanes = emulated::exchange<uint32_t>(where, mask, predicate);
    uint32_t ballot = 0;
    for (int i = 0; i < 32; i++)
        ballot |= (mask >> i & 1 & lanes[i]) << i;
    return ballot;
}

static inline bool __all_sync(uint32_t mask, bool predicate, EMULATED_HERE)
{
    return __ballot_sync(mask, predicate, where) == mask;
}

static inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t value, EMULATED_HERE)
{
    auto all = emulated::exchange<uint32_t>(where, mask, value);
    uint32_t sum = 0;
    for (int i = 0; i < 32; i++)
        sum += mask >> i & 1 ? all[i] : 0;
    return sum;
}

template <typename T> static inline T __shfl_sync(uint32_t mask, T value, int lane, EMULATED_HERE)
{
    return emulated::exchange<T>(where, mask, value)[lane & 31];
}

static inline uint32_t __shfl_up_sync(uint32_t mask, uint32_t value, uint32_t lanes, EMULATED_HERE)
{
    int from = emulated::lane() - (int)lanes;
    auto all = emulated::exchange<uint32_t>(where, mask, value);
    return from < 0 ? value : all[from];
}

template <typename T>
static inline T __shfl_xor_sync(uint32_t mask, T value, int lanes, EMULATED_HERE)
{
    return emulated::exchange<T>(where, mask, value)[emulated::lane() ^ lanes];
}

static inline double __shfl_down_sync(uint32_t mask, double value, uint32_t lanes, EMULATED_HERE)
{
    uint32_t from = (uint32_t)emulated::lane() + lanes;
    auto all = emulated::exchange<double>(where, mask, value);
    return from > 31 ? value : all[from];
}

static inline uint32_t __match_any_sync(uint32_t mask, uint32_t value, EMULATED_HERE)
{
    auto lanes = emulated::exchange<uint32_t>(where, mask, value);
    uint32_t equal = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            equal |= (uint32_t)(lanes[i] == value) << i;
    return equal;
}

#include "warps.h"
