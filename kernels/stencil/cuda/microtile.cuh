// SPDX-License-Identifier: MIT
// Microtiles of 16 x 8 samples, of which a warp filters 16 at a time by matrix products (mma.cuh):
// the position of a lane's part of them in a stage, and its destination. Lane 4g + t has the
// columns 4t ... 4t + 3 of the microtiles g and g + 8. For tma_mma.cu and tma_mma_large.cu.
#pragma once

#include "kernels/stencil/cuda/mma.cuh"
#include "kernels/stencil/cuda/tma_pipeline.cuh"

// The common part of their traits.
template <int TAP_ROWS_, int CONSUMERS_> struct mma_traits : tile_traits {
    typedef uint8_t Sample;
    static constexpr int TAP_ROWS = TAP_ROWS_, CONSUMERS = CONSUMERS_;
    static constexpr int SEGMENT = MMA_SEGMENT, STORE = 4, WARP_MICROTILES = 16;
    static_assert(MICROTILE_ROWS == MMA_ROWS, "rows of a microtile are those of filter_bands");
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// A lane's four columns of a microtile.
struct lane_microtile {
    const uint8_t *from; // the lane's first bytes of the window, in the first row
    uint64_t to;         // in global memory
    int size;            // rows to store << 8 | columns, STORE_WORD: all four, aligned
};
#define STORE_WORD 0x80

// left: bytes of the window before the microtile.
template <typename Traits>
__device__ inline struct lane_microtile
find_microtile(const struct work_tile &tile, const uint8_t *samples, int microtile, int left)
{
    int quarter = (int)threadIdx.x % 4;
    bool exists = microtile < tile.microtiles;
    microtile = exists ? microtile : 0;
    int band = band_of(tile, microtile);
    int x = (microtile - band * tile.segments) * MMA_SEGMENT, y = band * MMA_ROWS;
    struct lane_microtile result;
    result.from = samples + y * tile.pitch + x + Traits::HALO - left + 4 * quarter;
    x += 4 * quarter;
    result.to = __cvta_generic_to_global(tile.dst) + (int64_t)y * tile.dst_stride + x;
    int columns = min(max(tile.stored - x, 0), 4);
    int rows = exists && columns ? min(tile.rows - y, MMA_ROWS) : 0;
    result.size = rows << 8 | (columns == 4 && tile.aligned ? STORE_WORD : columns);
    return result;
}

// Stores the lane's samples of a row and moves on to the next one. RAGGED: some lane of the warp
// has fewer than 4 x 8 samples to store, or unaligned ones.
template <bool RAGGED>
__device__ inline void store(struct lane_microtile *microtile, int row, uint32_t samples,
                             const struct work_tile &tile)
{
    if (!RAGGED || row < microtile->size >> 8) {
        int columns = microtile->size & 0xff;
        if (!RAGGED || columns == STORE_WORD)
            asm volatile("st.global.u32 [%0], %1;" ::"l"(microtile->to), "r"(samples) : "memory");
        else
#pragma unroll 1
            for (int k = 0; k < columns; k++)
                asm volatile("st.global.u8 [%0], %1;" ::"l"(microtile->to + k),
                             "r"(samples >> 8 * k)
                             : "memory");
    }
    microtile->to += (uint64_t)(int64_t)tile.dst_stride;
}

#endif
