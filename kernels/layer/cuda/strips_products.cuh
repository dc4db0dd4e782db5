// SPDX-License-Identifier: MIT
// The products of a strip in strips.cuh: a warpgroup multiplies rows of samples, which it loads
// into registers, by the weights of a step, which stay in shared memory.
#ifndef CONV_KERNELS_LAYER_CUDA_STRIPS_PRODUCTS_CUH
#define CONV_KERNELS_LAYER_CUDA_STRIPS_PRODUCTS_CUH

#include "kernels/layer/cuda/strips_atoms.cuh"
#include "kernels/layer/cuda/wgmma_rows.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The descriptor of a step's weights: matrices of 8 maps x 8 numbers, one after the other. `low`:
// the address and, from bit 16 on, the distance to the second atom's weights, both in units of 16
// bytes.
__device__ inline uint64_t strips_descriptor(uint32_t low)
{
    return (uint64_t)8 << 32 | low;
}

// The sums of a strip. With three products (sample x weight) `high` has hi x hi and `low` has
// hi x lo + lo x hi; if `wide` is 2, hi x lo is the second half of `high` instead.
template <int NB, int PRODUCTS, int T, int U> struct strips_sums {
    static const int wide = STRIPS_WIDE(NB, PRODUCTS, T, U) ? 2 : 1;
    float high[T][wide * NB * 4], low[PRODUCTS == 3 ? T : 1][NB * 4];
};

template <int COUNT, int SIZE>
__device__ inline void strips_load_rows(uint32_t (&rows)[SIZE][4], uint32_t at, int row_bytes)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++, at += (uint32_t)row_bytes)
        wgmma_load_rows(rows[i], at);
}

// Multiplies T rows of samples, for kernel row `u`, by N columns of a step's weights. If
// `is_first`, a constant, the sums are set instead of added to.
template <int N, int T, int ROWS>
__device__ inline void strips_multiply_rows(float (&sum)[T][N / 2], const uint32_t (&rows)[ROWS][4],
                                            uint32_t weights, int u, bool is_first = false)
{
#pragma unroll
    for (int t = 0; t < T; t++)
        if (is_first)
            wgmma_rows<N, 0>(sum[t], rows[t + u], strips_descriptor(weights));
        else
            wgmma_rows<N>(sum[t], rows[t + u], strips_descriptor(weights));
}

// Adds the products of a set of U / STEP steps (rounded up); those of the FIRST set are the first
// sums. All rows are loaded before the first wgmma: the compiler would wait after each one if
// registers were written while others run.
template <int NB, int PRODUCTS, int T, int U, int STEP, bool FIRST>
__device__ inline void strips_multiply_set(const strips_launch &p, uint32_t at, uint32_t weights,
                                           strips_sums<NB, PRODUCTS, T, U> &sums)
{
    const int maps = NB * 8, step = (PRODUCTS == 3 ? 4 : 2) * maps, steps = (U + STEP - 1) / STEP;
    const bool both = STRIPS_BOTH(NB, PRODUCTS, T, U);
    const int wide = strips_sums<NB, PRODUCTS, T, U>::wide;
    uint32_t rows[both ? 2 : 1][T + U - 1][4];
    int row_bytes = p.pitch * 16;
    weights = uniform(weights); // so that descriptors are computed in uniform registers, once
    strips_load_rows<T + U - STEP>(rows[0], at, row_bytes);
    if (both)
        strips_load_rows<T + U - STEP>(rows[both ? 1 : 0], at + (uint32_t)p.part_bytes, row_bytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < steps; i++) {
        int u = min(i * STEP, U - STEP);
        uint32_t w = weights + (uint32_t)(i * step);
        bool is_first = FIRST && i == 0;
        strips_multiply_rows<maps * wide>(sums.high, rows[0], w, u, is_first);
        if constexpr (PRODUCTS == 3) {
            if constexpr (wide == 1)
                strips_multiply_rows<maps>(sums.low, rows[0], w + maps, u, is_first);
            if (both)
                strips_multiply_rows<maps>(sums.low, rows[both ? 1 : 0], w, u,
                                           is_first && wide == 2);
        }
    }
    wgmma_commit();
    wgmma_wait();
    if constexpr (PRODUCTS == 3 && !both) {
        strips_load_rows<T + U - STEP>(rows[0], at + (uint32_t)p.part_bytes, row_bytes);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < steps; i++)
            strips_multiply_rows<maps>(sums.low, rows[0], weights + (uint32_t)(i * step),
                                       min(i * STEP, U - STEP), FIRST && i == 0 && wide == 2);
        wgmma_commit();
        wgmma_wait();
    }
}

// The samples of a set's rows, high and low parts.
template <int T, int U> struct strips_rows {
    uint32_t high[T + U - 1][4], low[T + U - 1][4];
};

// Starts the products of a set of U steps whose rows are loaded.
template <int NB, int T, int U>
__device__ inline void strips_start_set(const strips_rows<T, U> &rows, uint32_t weights,
                                        strips_sums<NB, 3, T, U> &sums)
{
    constexpr int maps = NB * 8, wide = strips_sums<NB, 3, T, U>::wide;
    weights = uniform(weights);
    wgmma_fence();
#pragma unroll
    for (int u = 0; u < U; u++, weights += 4 * maps) {
        strips_multiply_rows<maps * wide>(sums.high, rows.high, weights, u);
        if constexpr (wide == 1)
            strips_multiply_rows<maps>(sums.low, rows.high, weights + maps, u);
        strips_multiply_rows<maps>(sums.low, rows.low, weights, u);
    }
    wgmma_commit();
}

// Adds the products of all sets with two atoms per row. The rows of a set are loaded while the set
// before is multiplied. `next`: the offsets of the first set, then those after the last one.
template <int NB, int T, int U>
__device__ inline void strips_multiply_ahead(const strips_launch &p, uint32_t atoms,
                                             uint32_t is_second, uint32_t weights, uint2 &next,
                                             strips_sums<NB, 3, T, U> &sums)
{
#pragma unroll
    for (int t = 0; t < T; t++) {
#pragma unroll
        for (int i = 0; i < NB * 4 * sums.wide; i++)
            sums.high[t][i] = 0;
#pragma unroll
        for (int i = 0; i < NB * 4; i++)
            sums.low[t][i] = 0;
    }
    const uint32_t step = U * 4 * NB * 8;
    int row_bytes = p.pitch * 16;
    strips_rows<T, U> even, odd;
    auto load = [&](strips_rows<T, U> &rows, int set) {
        uint32_t at = atoms + next.x + is_second * next.y;
        next = p.offsets[set + 1];
        strips_load_rows<T + U - 1>(rows.high, at, row_bytes);
        strips_load_rows<T + U - 1>(rows.low, at + (uint32_t)p.part_bytes, row_bytes);
    };
    load(even, 0); // there is one: a branch costs registers that are then spilled
#pragma unroll 1
    for (int set = 0; set < p.sets; set += 2) {
        strips_start_set(even, weights + (uint32_t)set * step, sums);
        wgmma_wait_but_one(); // the products that read `odd` are complete
        if (set + 1 < p.sets) {
            load(odd, set + 1);
            strips_start_set(odd, weights + (uint32_t)(set + 1) * step, sums);
            wgmma_wait_but_one();
            if (set + 2 < p.sets)
                load(even, set + 2);
        }
    }
    wgmma_wait();
}

// Computes the sums of one strip per warp of a warpgroup. `atoms`: the address of the lane's first
// atom; `weights`: the address of all sets' weights, in units of 16 bytes.
template <int NB, int PRODUCTS, int T, int U>
__device__ inline void strips_multiply(const strips_launch &p, uint32_t atoms, uint32_t weights,
                                       strips_sums<NB, PRODUCTS, T, U> &sums)
{
    const int step = (PRODUCTS == 3 ? 4 : 2) * NB * 8;
    uint32_t is_second = threadIdx.x / 16 % 2;
    uint2 next = p.offsets[0]; // read one set ahead: reading takes as long as a step
    weights |= (uint32_t)(step / 2) << 16;
    if constexpr (STRIPS_AHEAD(NB, PRODUCTS, U)) {
        strips_multiply_ahead(p, atoms, is_second, weights, next, sums);
    } else {
        uint32_t at = atoms + next.x + is_second * next.y;
        next = p.offsets[1];
        strips_multiply_set<NB, PRODUCTS, T, U, 1, true>(p, at, weights, sums); // there is one
#pragma unroll 1
        for (int set = 1; set < p.sets; set++) {
            at = atoms + next.x + is_second * next.y;
            next = p.offsets[set + 1];
            strips_multiply_set<NB, PRODUCTS, T, U, 1, false>(
                p, at, weights + (uint32_t)(set * U * step), sums);
        }
    }
    if (U == 1)
        return;
    weights += (uint32_t)(p.sets * U * step);
#pragma unroll 1
    for (int set = 0; set < p.single_sets; set++) {
        uint32_t at = atoms + next.x + is_second * next.y;
        next = p.offsets[p.sets + set + 1];
        strips_multiply_set<NB, PRODUCTS, T, U, U == 1 ? 1 : 2, false>(
            p, at, weights + (uint32_t)(set * ((U + 1) / 2) * step), sums);
    }
}

#endif

#endif
