// SPDX-License-Identifier: MIT
// Units of 16 x 8 samples, of which a warp makes 16 at a time by products of matrices: where a
// lane's part of them lies in a stage of the ring, and goes to. For tensor.cu and tensor_large.cu.
#ifndef CONV_KERNELS_STENCIL_CUDA_MICROTILE_CUH
#define CONV_KERNELS_STENCIL_CUDA_MICROTILE_CUH

#include "kernels/stencil/cuda/mma.cuh"
#include "kernels/stencil/cuda/tma_pipeline.cuh"

// Traits of the kernels that make microtiles of 16 x 8 samples.
template <int TAP_ROWS_, int CONSUMERS_> struct mma_traits : tile_traits {
    typedef uint8_t Sample;
    static constexpr int TAP_ROWS = TAP_ROWS_, CONSUMERS = CONSUMERS_;
    static constexpr int SEGMENT = MMA_SEGMENT, STORE = 4, JOB = 16;
    static_assert(MICROTILE_ROWS == MMA_ROWS, "a microtile is what a lane's products make");
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Where a lane's four columns of a unit are.
struct lane_unit {
    const uint8_t *from; // the lane's first bytes of the window, in the unit's first row
    uint64_t to;         // in global memory
    int size;            // rows to store << 8 | columns, or WORD if all four may go at once
};
#define WORD 0x80

// left: bytes that the window begins before the segment.
template <typename Traits>
__device__ inline struct lane_unit find_unit(const struct piece &piece, const uint8_t *samples,
                                             int unit, int left)
{
    int quarter = (int)threadIdx.x % 4;
    bool exists = unit < piece.units;
    unit = exists ? unit : 0;
    int band = band_of(piece, unit);
    int x = (unit - band * piece.segments) * MMA_SEGMENT, y = band * MMA_ROWS;
    struct lane_unit result;
    result.from = samples + y * piece.pitch + x + Traits::HALO - left + 4 * quarter;
    x += 4 * quarter;
    result.to = __cvta_generic_to_global(piece.dst) + (int64_t)y * piece.dst_stride + x;
    int columns = min(max(piece.stored - x, 0), 4);
    int rows = exists && columns ? min(piece.rows - y, MMA_ROWS) : 0;
    result.size = rows << 8 | (columns == 4 && piece.aligned ? WORD : columns);
    return result;
}

template <bool RAGGED>
__device__ inline void store(struct lane_unit *unit, int row, uint32_t samples,
                             const struct piece &piece)
{
    if (!RAGGED || row < unit->size >> 8) {
        int columns = unit->size & 0xff;
        if (!RAGGED || columns == WORD)
            asm volatile("st.global.u32 [%0], %1;" ::"l"(unit->to), "r"(samples) : "memory");
        else
#pragma unroll 1
            for (int k = 0; k < columns; k++)
                asm volatile("st.global.u8 [%0], %1;" ::"l"(unit->to + k), "r"(samples >> 8 * k)
                             : "memory");
    }
    unit->to += (uint64_t)(int64_t)piece.dst_stride;
}

#endif

#endif
