// SPDX-License-Identifier: MIT
// The top rung: tensor cores do the taps, the bulk copy engine brings the samples, and what is left
// for a thread is to round and to store. For exact filters of 8-bit images up to 17 x 9 whose
// coefficients fit in 8 bits (mma.cuh has the arithmetic), from compute capability 9.0 on.
//
// Samples: through the ring of ring.cuh, so that the warps that work never see a border, nor wait
// for memory.
//
// What it bought (H200, share of a device copy of the same bytes; dp4a: 0.44 and 0.34 at 8192 x
// 8192; bench_kernels_cuda):
//                              3 x 3   5 x 5                          3 x 3   5 x 5
//   8192 x 8192 x 3             0.86    0.85     1000 x 300 x 300 x 3  0.86    0.73
//   32 x 2880 x 1800 x 3        0.86    0.84     500 sizes x 3         0.85    0.83
// and 0.75 and 0.65 for 7 x 7 and 9 x 9.
// What did not help: two blocks a processor (5 x 5: 0.69; a ring each, and fewer warps that work),
// bands of 16 rows, pieces of 64 rows, cache hints (0.74), rows of a piece carried over to the next
// one instead of read again (the order of memory that this asks for costs more: 0.81), the last
// rows of samples in registers instead of the sums (5 x 5: 0.76), rows of a length that is no power
// of two. What mattered most: one instruction a bulk copy (see uniform), a scout (a look into the
// table of planes takes a microsecond when memory is busy), whole sectors at the ends of rows
// (dst_spare: 0.56 to 0.83 at 300 x 300), and not one register spilled (5 x 5: 0.66 to 0.82; hence
// setmaxnreg).
#include "kernels/stencil/cuda/microtile.cuh"

// As many warps as registers allow: a lane has the taps and the sums of all rows in them.
template <int TAP_ROWS> struct tma_mma_traits : mma_traits<TAP_ROWS, TAP_ROWS <= 5 ? 16 : 12> {
    static constexpr int STAGES_FOR_LARGE_PLANES = TAP_ROWS <= 3 ? 3 : MAX_STAGES;
};

struct filter {
    struct supply supply;
    struct byte_taps taps;
};
static_assert(sizeof(((struct byte_taps *)0)->coef) == RING_SCRATCH, "they wait there for workers");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int ROWS, bool TIES, bool RAGGED>
__device__ inline void filter_units(struct lane_unit u0, struct lane_unit u1,
                                    const uint2 (&taps)[ROWS][2], const struct piece &piece,
                                    const struct filter &f)
{
    auto load = [&](int, uint32_t(&window)[4]) {
        window[0] = *(const uint32_t *)u0.from;
        window[1] = *(const uint32_t *)u1.from;
        window[2] = *(const uint32_t *)(u0.from + 16);
        window[3] = *(const uint32_t *)(u1.from + 16);
        u0.from += piece.pitch;
        u1.from += piece.pitch;
    };
    filter_bands<ROWS, TIES>(taps, f.taps.rounding, load, [&](int band, int row, uint32_t samples) {
        store<RAGGED>(band ? &u1 : &u0, row, samples, piece);
    });
}

#endif

template <int ROWS, bool TIES>
static __global__ void __launch_bounds__(block_threads<tma_mma_traits<ROWS>>, 1)
    tensor(const __grid_constant__ struct filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef tma_mma_traits<ROWS> Traits;
    auto copy_coefs = [&](struct ring *ring) {
        if (threadIdx.x < sizeof ring->scratch / 4)
            ((uint32_t *)ring->scratch)[threadIdx.x] = ((const uint32_t *)f.taps.coef)[threadIdx.x];
    };
    tma_pipeline_main<Traits>(f.supply, copy_coefs, [&](struct ring *ring) {
        uint2 taps[ROWS][2];
        load_taps<ROWS>(taps, (const int8_t(*)[64])ring->scratch);
        auto run = [&](const struct piece &piece, const uint8_t *samples, int job) {
            int lane = (int)threadIdx.x % WARP, unit = job * Traits::JOB + lane / 4;
            struct lane_unit u0 = find_unit<Traits>(piece, samples, unit, 8);
            struct lane_unit u1 = find_unit<Traits>(piece, samples, unit + Traits::JOB / 2, 8);
            bool whole = (u0.size & u1.size) == (MMA_ROWS << 8 | WORD);
            if (__all_sync(0xffffffffu, whole))
                filter_units<ROWS, TIES, false>(u0, u1, taps, piece, f);
            else
                filter_units<ROWS, TIES, true>(u0, u1, taps, piece, f);
        };
        work<Traits>(ring, f.supply, run);
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <int ROWS>
static enum conv_status pack(const struct conv_stencil *stencil,
                             const struct conv_stencil_batch *batch)
{
    struct filter f = {};
    bool ties;
    pack_bytes(&f.taps, &ties, stencil, ROWS);
    return tma_pipeline_launch<tma_mma_traits<ROWS>>(
        ties ? tensor<ROWS, true> : tensor<ROWS, false>, &f, stencil, batch);
}

static enum conv_status run_tensor(const struct conv_stencil_plan *plan,
                                   const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    if (stencil->height <= 3)
        return pack<3>(stencil, batch);
    if (stencil->height <= 5)
        return pack<5>(stencil, batch);
    if (stencil->height <= 7)
        return pack<7>(stencil, batch);
    return pack<9>(stencil, batch);
}

CONV_CUDA_VARIANT(tma_mma, 90, "taps on int8 tensor cores, samples through the bulk copy engine",
                  fits_bytes, score_always<80>, run_tensor, tile_traits::TILE_WIDTH,
                  tile_traits::TILE_HEIGHT);
