// SPDX-License-Identifier: MIT
// What the lanes of a warp compute together. All lanes must call.
#pragma once

#include <stdint.h>

#define WARP 32
#define ALL_LANES 0xffffffffu

// Blocks of a processor for __launch_bounds__: Turing's has 1024 threads, later ones have 1536 or
// more. It and the processors of 8.6 and 8.7 have 16 blocks, others 24 or more.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 800 || __CUDA_ARCH__ > 870
#define RESIDENT(threads, blocks) (blocks)
#elif __CUDA_ARCH__ > 800
#define RESIDENT(threads, blocks) ((blocks) > 16 ? 16 : (blocks))
#else
#define RESIDENT(threads, blocks)                                                                  \
    ((blocks) * (threads) > 1024 ? 1024 / (threads) : (blocks) > 16 ? 16 : (blocks))
#endif

__device__ inline uint32_t sum_lanes(uint32_t value)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __reduce_add_sync(ALL_LANES, value);
#else
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
#endif
}

// The sum of the values of the lanes up to this one.
__device__ inline uint64_t sum_below(uint64_t value)
{
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t step = 1; step < WARP; step *= 2) {
        uint32_t low = __shfl_up_sync(ALL_LANES, (uint32_t)value, step);
        uint32_t high = __shfl_up_sync(ALL_LANES, (uint32_t)(value >> 32), step);
        value += lane >= step ? (uint64_t)high << 32 | low : 0;
    }
    return value;
}

__device__ inline uint64_t of_lane(uint64_t value, uint32_t lane)
{
    uint32_t low = __shfl_sync(ALL_LANES, (uint32_t)value, lane);
    return (uint64_t)__shfl_sync(ALL_LANES, (uint32_t)(value >> 32), lane) << 32 | low;
}

// The last of `count` ascending numbers first(i) that is not above `wanted`; first(0) is 0. Each
// warp searches by ballot.
template <typename First> __device__ inline int find_last(int count, uint32_t wanted, First first)
{
    int lane = (int)threadIdx.x % WARP, base = 0;
    while (count > 1) {
        int step = (count + WARP - 1) / WARP, probe = lane * step;
        bool reached = probe < count && first(base + probe) <= wanted;
        int last = __popc(__ballot_sync(ALL_LANES, reached)) - 1;
        base += last * step;
        count = min(step, count - last * step);
    }
    return base;
}
