// SPDX-License-Identifier: MIT
// Two passes on tensor cores, like tma_mma_wide.cu, that keep sums from one tile to the next
// (separable_mma.cuh): for a column times a row. A multiple of the sample minus a blur needs
// the samples of rows that a stage does not hold then. From compute capability 9.0 on.
#include "kernels/stencil/cuda/separable_mma.cuh"
#include "kernels/stencil/cuda/wide_sums.cuh"

template <int HEIGHT> using wide_column_traits = column_traits<HEIGHT, uint8_t>;

struct tma_mma_wide_columns_filter {
    struct tile_schedule schedule;
    struct wide_factors factors;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The values that a lane of a consumer warp keeps in registers, and the passes.
template <int WIDTH_, int HEIGHT_, int COLUMN_BYTES, bool TIES> struct wide_column_passes {
    static constexpr int WIDTH = WIDTH_, HEIGHT = HEIGHT_;
    typedef struct wide_sums Sums;
    struct toeplitz<uint8_t, across<WIDTH_>> row[2]; // for each half of the columns
    struct toeplitz<uint8_t, down<HEIGHT_>> column[COLUMN_BYTES];
    int32_t start[4];
    const struct sum_division *division; // in constant memory

    __device__ void sum_rows(struct wide_sums *to, const uint8_t *from, int pitch) const
    {
        const int32_t zero[4] = {};
        int32_t made[2][2][4];
        multiply_samples(made, from, pitch, row, zero);
        split_sums(to, made);
    }

    template <bool EVEN, bool RAGGED>
    __device__ void sum_columns(const struct wide_sums *from, const struct store_target &target,
                                int first_row) const
    {
        uint32_t made[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply_sums<EVEN>(made[i], from, i, column, start);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t pairs[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                pairs[i] = __byte_perm(divide_sum<TIES>(made[i][2 * r], *division),
                                       divide_sum<TIES>(made[i][2 * r + 1], *division), 0x7632) >>
                           (division->first_bit - TOP_BIT);
            store<RAGGED>(target, first_row + 8 * r,
                          make_uint2(__byte_perm(pairs[0], pairs[1], 0x6420),
                                     __byte_perm(pairs[2], pairs[3], 0x6420)));
        }
    }
};

#endif

// Blocks of 16 warps; a consumer warp filters a microtile of 32 x 64 samples at a time. The factors
// pass through the pipeline's scratch, because a lane indexes them by its position.
template <int WIDTH, int HEIGHT, int COLUMN_BYTES, bool TIES>
static __global__ void __launch_bounds__(block_threads<wide_column_traits<HEIGHT>>, 1)
    tma_mma_wide_columns(const __grid_constant__ struct tma_mma_wide_columns_filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef wide_column_traits<HEIGHT> Traits;
    uint8_t *row, *column;
    auto prepare = [&](struct tma_pipeline *pipeline) {
        row = (uint8_t *)pipeline->scratch;
        column = row + FACTOR_BYTES;
        copy_factors<COLUMN_BYTES>(row, f.factors, block_threads<Traits>);
    };
    tma_pipeline_main<Traits>(f.schedule, prepare, [&](struct tma_pipeline *pipeline) {
        struct wide_column_passes<WIDTH, HEIGHT, COLUMN_BYTES, TIES> passes;
        load_row(passes.row, row);
#pragma unroll
        for (int part = 0; part < COLUMN_BYTES; part++)
            load_column(&passes.column[part], column + part * FACTOR_BYTES);
        load_start(passes.start, f.factors.division, row);
        passes.division = &f.factors.division;
        consume_columns<Traits>(pipeline, f.schedule, passes);
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <int WIDTH, int HEIGHT>
static void plan_sized(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants =
        constants_of<struct kernel_constants<struct tma_mma_wide_columns_filter>>(plan);
    struct wide_kind kind = {};
    find_wide_factors(&constants->filter.factors, &kind, stencil, WIDTH, HEIGHT);
    if (kind.column_bytes == 2)
        constants->kernel = tma_mma_wide_columns<WIDTH, HEIGHT, 2, true>;
    else
        constants->kernel = kind.ties ? tma_mma_wide_columns<WIDTH, HEIGHT, 1, true>
                                      : tma_mma_wide_columns<WIDTH, HEIGHT, 1, false>;
    constants->launch =
        tma_pipeline_run<wide_column_traits<HEIGHT>, struct tma_mma_wide_columns_filter>;
}

static void plan_tma_mma_wide_columns(const struct conv_stencil *stencil,
                                      struct conv_stencil_plan *plan)
{
    if (stencil->width <= SHORT_FACTOR && stencil->height <= SHORT_FACTOR)
        plan_sized<SHORT_FACTOR, SHORT_FACTOR>(stencil, plan);
    else
        plan_sized<LONG_FACTOR, LONG_FACTOR>(stencil, plan);
}

static bool can_tma_mma_wide_columns(const struct conv_stencil *stencil)
{
    struct wide_factors factors = {};
    struct wide_kind kind = {};
    return find_wide_factors(&factors, &kind, stencil, LONG_FACTOR, LONG_FACTOR) && !kind.sample;
}

// Whether keeping sums pays. It saves a third of the first pass with long factors, a fifth with
// short ones, but rows of samples are then read in another order. Shares of a copy on an H100
// (2026-11-26), of this kernel and of tma_mma_wide, in one process: three planes of 8192 x 8192; of
// 4096 x 4096; 500 photographs of 768 x 512; 1000 images of 300 x 300:
//   long (gaussian:5)                 0.714 0.653 0.738 0.737  and  0.653 0.601 0.656 0.681
//   long, column of two bytes (2.5)   0.492 0.465 0.506 0.510  and  0.473 0.458 0.472 0.461
//   short (1.5)                       0.822 0.729 0.838 0.850  and  0.840 0.666 0.773 0.889
//   short, column of two bytes (2)    0.557 0.537 0.573 0.595  and  0.605 0.588 0.602 0.586
#define LEAST_SIDE 5 // smaller filters take one pass

static int score_tma_mma_wide_columns(const struct conv_stencil *stencil, size_t)
{
    struct wide_factors factors = {};
    struct wide_kind kind = {};
    find_wide_factors(&factors, &kind, stencil, LONG_FACTOR, LONG_FACTOR);
    int side = max(stencil->width, stencil->height);
    bool pays = side > SHORT_FACTOR || (side >= LEAST_SIDE && kind.column_bytes == 1);
    return pays ? 72 : CONV_SCORE_UNSUITED;
}

typedef wide_column_traits<SHORT_FACTOR> short_traits;

CONV_CUDA_VARIANT(
    tma_mma_wide_columns, 90,
    "two passes on int8 tensor cores, for precise weights, keeping sums from tile to tile",
    can_tma_mma_wide_columns, score_tma_mma_wide_columns, plan_tma_mma_wide_columns, run_planned,
    short_traits::TILE_WIDTH, short_traits::TILE_HEIGHT);
