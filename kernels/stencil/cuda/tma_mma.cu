// SPDX-License-Identifier: MIT
// Taps on tensor cores (mma.cuh), samples through the bulk copy engine (tma_pipeline.cuh): a thread
// only rounds and stores. For exact filters of 8-bit images up to 17 x 9 whose coefficients fit in
// 8 bits, from compute capability 9.0 on. kernels/README.md has the figures.
//
// Rejected (5 x 5, 0.85 of the speed of a copy without): two blocks per processor 0.69, cache hints
// 0.74, the last rows of samples in registers instead of sums 0.76, rows kept from one work tile to
// the next 0.81, registers spilled for lack of setmaxnreg 0.66.
#include "kernels/stencil/cuda/microtile.cuh"

// As many warps as registers allow: a lane holds all taps and the sums of TAP_ROWS rows.
template <int TAP_ROWS> struct tma_mma_traits : mma_traits<TAP_ROWS, TAP_ROWS <= 5 ? 16 : 12> {
    static constexpr int STAGES_FOR_LARGE_PLANES = TAP_ROWS <= 3 ? 3 : MAX_STAGES;
};

struct tma_mma_filter {
    struct tile_schedule schedule;
    struct byte_taps taps;
};
static_assert(sizeof(((struct byte_taps *)0)->coef) == PIPELINE_SCRATCH,
              "consumer warps load them from there");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Two microtiles of a lane. RAGGED: see store.
template <int ROWS, bool TIES, bool RAGGED>
static __device__ inline void
filter_microtiles(struct lane_microtile m0, struct lane_microtile m1, const uint2 (&taps)[ROWS][2],
                  const struct work_tile &tile, const struct tma_mma_filter &f)
{
    auto load = [&](int, uint32_t(&window)[4]) {
        window[0] = *(const uint32_t *)m0.from;
        window[1] = *(const uint32_t *)m1.from;
        window[2] = *(const uint32_t *)(m0.from + 16);
        window[3] = *(const uint32_t *)(m1.from + 16);
        m0.from += tile.pitch;
        m1.from += tile.pitch;
    };
    filter_bands<ROWS, TIES>(taps, f.taps.rounding, load, [&](int band, int row, uint32_t samples) {
        store<RAGGED>(band ? &m1 : &m0, row, samples, tile);
    });
}

#endif

// Blocks of 20 warps (up to 5 rows of taps) or 16. A consumer warp filters 16 microtiles of 16 x 8
// samples at a time. The coefficients pass through the pipeline's scratch, because a lane indexes
// them by its position.
template <int ROWS, bool TIES>
static __global__ void __launch_bounds__(block_threads<tma_mma_traits<ROWS>>, 1)
    tma_mma(const __grid_constant__ struct tma_mma_filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef tma_mma_traits<ROWS> Traits;
    auto copy_coefs = [&](struct tma_pipeline *pipeline) {
        if (threadIdx.x < sizeof pipeline->scratch / 4)
            ((uint32_t *)pipeline->scratch)[threadIdx.x] =
                ((const uint32_t *)f.taps.coef)[threadIdx.x];
    };
    tma_pipeline_main<Traits>(f.schedule, copy_coefs, [&](struct tma_pipeline *pipeline) {
        uint2 taps[ROWS][2];
        load_taps<ROWS>(taps, (const int8_t(*)[64])pipeline->scratch);
        auto run = [&](const struct work_tile &tile, const uint8_t *samples, int job) {
            int microtile = job * Traits::WARP_MICROTILES + (int)threadIdx.x % WARP / 4;
            struct lane_microtile m0 = find_microtile<Traits>(tile, samples, microtile, 8);
            struct lane_microtile m1 =
                find_microtile<Traits>(tile, samples, microtile + Traits::WARP_MICROTILES / 2, 8);
            bool whole = (m0.size & m1.size) == (MMA_ROWS << 8 | STORE_WORD);
            if (__all_sync(0xffffffffu, whole))
                filter_microtiles<ROWS, TIES, false>(m0, m1, taps, tile, f);
            else
                filter_microtiles<ROWS, TIES, true>(m0, m1, taps, tile, f);
        };
        consume_tiles<Traits>(pipeline, f.schedule, run);
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <int ROWS>
static void plan_rows(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_filter>>(plan);
    bool ties;
    pack_bytes(&constants->filter.taps, &ties, stencil, ROWS);
    constants->kernel = ties ? tma_mma<ROWS, true> : tma_mma<ROWS, false>;
    constants->launch = tma_pipeline_run<tma_mma_traits<ROWS>, struct tma_mma_filter>;
}

static void plan_tma_mma(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->height <= 3)
        plan_rows<3>(stencil, plan);
    else if (stencil->height <= 5)
        plan_rows<5>(stencil, plan);
    else if (stencil->height <= 7)
        plan_rows<7>(stencil, plan);
    else
        plan_rows<9>(stencil, plan);
}

CONV_CUDA_VARIANT_OF(SEVERAL_CHANNELS, tma_mma, 90,
                     "taps on int8 tensor cores, samples through the bulk copy engine", fits_bytes,
                     score_always<80>, plan_tma_mma, run_planned, tile_traits::TILE_WIDTH,
                     tile_traits::TILE_HEIGHT);
