// SPDX-License-Identifier: MIT
// Two passes on tensor cores, as tma_mma_separable.cu, for images of 16 bits: a column times a row
// of unsigned bytes, up to 31 x 31, whose sums 31 bits hold. From compute capability 9.0 on.
//
// The first pass has a product for the low and one for the high bytes of the samples; a sum of both
// has up to 24 bits. The second is that of tma_mma_wide.cu. At 31 x 31 a sample takes 368
// multiply-adds of bytes.
//
// A microtile has 32 rows, half as many as with bytes, so that a stage of the pipeline has as many
// bytes: the sums of the rows above are kept (separable_mma.cuh), so that fewer rows cost
// little.
#include "kernels/stencil/cuda/separable_mma.cuh"
#include "kernels/stencil/cuda/wide_sums.cuh"

#define MOST_ROW_SUM 256 // of taps: 65535 times as much has 24 bits

struct wide16_factors {
    struct sum_division division;
    uint8_t row[FACTOR_BYTES], column[FACTOR_BYTES]; // taps from FACTOR_LEAD on, zeros around
};

struct tma_mma_wide16_filter {
    struct tile_schedule schedule;
    struct wide16_factors factors;
};
static_assert(2 * FACTOR_BYTES <= PIPELINE_SCRATCH, "consumer warps load them from there");

template <int HEIGHT> using wide16_traits = column_traits<HEIGHT, uint16_t>;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The products of the first pass for 16 rows, as multiply_samples: one for the low bytes of the
// samples and one for the high bytes. The sum of the taps is at most 256.
template <int BLOCKS>
__device__ inline void multiply_wide_samples(int32_t (&sums)[2][2][4], const uint8_t *from,
                                             int pitch,
                                             const struct toeplitz<uint8_t, BLOCKS> (&row)[2])
{
    const int32_t zero[4] = {};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t low[BLOCKS], high[BLOCKS];
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) {
            uint2 four = *(const uint2 *)(from + r * 8 * pitch + 32 * i);
            low[i] = __byte_perm(four.x, four.y, 0x6420);
            high[i] = __byte_perm(four.x, four.y, 0x7531);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int32_t highs[4];
            multiply<true>(sums[half][r], row[half], low, zero);
            multiply<true>(highs, row[half], high, zero);
#pragma unroll
            for (int k = 0; k < 4; k++)
                sums[half][r][k] += 256 * highs[k];
        }
    }
}

// As for bytes; target.columns are bytes.
template <bool RAGGED>
__device__ inline void store(const struct store_target &target, int row, uint4 samples)
{
    uint64_t to = target.to + (uint64_t)(row * target.stride);
    if (!RAGGED || (target.whole && row < target.rows)) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(samples.x),
                     "r"(samples.y), "r"(samples.z), "r"(samples.w));
    } else if (row < target.rows) {
#pragma unroll 1
        for (int k = 0; k < target.columns; k += 2) {
            asm volatile("st.global.u16 [%0], %1;" ::"l"(to + k), "h"((uint16_t)samples.x));
            samples.x = __funnelshift_r(samples.x, samples.y, 16);
            samples.y = __funnelshift_r(samples.y, samples.z, 16);
            samples.z = __funnelshift_r(samples.z, samples.w, 16);
            samples.w >>= 16;
        }
    }
}

// The values that a lane of a consumer warp keeps in registers, and the passes.
template <int WIDTH_, int HEIGHT_, bool TIES> struct wide16_passes {
    static constexpr int WIDTH = WIDTH_, HEIGHT = HEIGHT_;
    typedef struct wide_sums Sums;
    struct toeplitz<uint8_t, across<WIDTH_>> row[2]; // for each half of the columns
    struct toeplitz<uint8_t, down<HEIGHT_>> column[1];
    int32_t start[4];
    const struct sum_division *division; // in constant memory

    __device__ void sum_rows(struct wide_sums *to, const uint8_t *from, int pitch) const
    {
        int32_t made[2][2][4];
        multiply_wide_samples(made, from, pitch, row);
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
                pairs[i] = __byte_perm(
                    divide_sum<TIES>(made[i][2 * r], *division) >> division->first_bit,
                    divide_sum<TIES>(made[i][2 * r + 1], *division) >> division->first_bit, 0x5410);
            store<RAGGED>(target, first_row + 8 * r,
                          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
        }
    }
};

#endif

// Blocks of 16 warps; a consumer warp filters a microtile of 32 x 32 samples at a time. The factors
// pass through the pipeline's scratch, because a lane indexes them by its position.
template <int WIDTH, int HEIGHT, bool TIES>
static __global__ void __launch_bounds__(block_threads<wide16_traits<HEIGHT>>, 1)
    tma_mma_wide16(const __grid_constant__ struct tma_mma_wide16_filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef wide16_traits<HEIGHT> Traits;
    uint8_t *row, *column;
    auto prepare = [&](struct tma_pipeline *pipeline) {
        row = (uint8_t *)pipeline->scratch;
        column = row + FACTOR_BYTES;
        for (uint32_t i = threadIdx.x; i < FACTOR_BYTES; i += block_threads<Traits>) {
            row[i] = f.factors.row[i];
            column[i] = f.factors.column[i];
        }
    };
    tma_pipeline_main<Traits>(f.schedule, prepare, [&](struct tma_pipeline *pipeline) {
        struct wide16_passes<WIDTH, HEIGHT, TIES> passes;
        load_row(passes.row, row);
        load_column(&passes.column[0], column);
        load_start(passes.start, f.factors.division, row);
        passes.division = &f.factors.division;
        consume_columns<Traits>(pipeline, f.schedule, passes);
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

// The factors of a stencil for a kernel of width x height taps; false if this arithmetic is
// not sufficient. No quotient exceeds 65535, because the coefficients' sum is at most the divisor.
static bool find_factors(struct wide16_factors *f, const struct conv_stencil *stencil, int width,
                         int height)
{
    int32_t row[CONV_FILTER_MAX_SIDE], column[CONV_FILTER_MAX_SIDE];
    int64_t across_sum = 0, down_sum = 0, unit = 1;
    if (!stencil->exact || stencil->depth != 16 || stencil->floats || !stencil->fits_int32 ||
        stencil->bias != 0 || stencil->keeps || !conv_stencil_factors(stencil, column, row))
        return false;
    // If the factors differ in sign, either may be the negative one.
    int sign = row[stencil->width / 2] < 0 ? -1 : 1;
    while (stencil->divisor * unit < 2) // sums grow by as much, and are small then
        unit *= 2;
    for (int i = 0; i < stencil->width; i++) {
        int32_t tap = sign * row[i];
        if (tap < 0 || tap > 255)
            return false;
        f->row[FACTOR_LEAD + width / 2 - stencil->width / 2 + i] = (uint8_t)tap;
        across_sum += tap;
    }
    for (int j = 0; j < stencil->height; j++) {
        int64_t tap = sign * column[j] * unit;
        if (tap < 0 || tap > 255)
            return false;
        f->column[FACTOR_LEAD + height / 2 - stencil->height / 2 + j] = (uint8_t)tap;
        down_sum += tap;
    }
    find_sum_division(&f->division, stencil->divisor * unit);
    return across_sum <= MOST_ROW_SUM && across_sum * down_sum <= stencil->divisor * unit;
}

template <int WIDTH, int HEIGHT>
static void plan_sized(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_wide16_filter>>(plan);
    struct wide16_factors *f = &constants->filter.factors;
    find_factors(f, stencil, WIDTH, HEIGHT);
    constants->kernel = f->division.even ? tma_mma_wide16<WIDTH, HEIGHT, true>
                                         : tma_mma_wide16<WIDTH, HEIGHT, false>;
    constants->launch = tma_pipeline_run<wide16_traits<HEIGHT>, struct tma_mma_wide16_filter>;
}

static void plan_tma_mma_wide16(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->width <= SHORT_FACTOR && stencil->height <= SHORT_FACTOR)
        plan_sized<SHORT_FACTOR, SHORT_FACTOR>(stencil, plan);
    else
        plan_sized<LONG_FACTOR, LONG_FACTOR>(stencil, plan);
}

static bool can_tma_mma_wide16(const struct conv_stencil *stencil)
{
    struct wide16_factors factors = {};
    return find_factors(&factors, stencil, LONG_FACTOR, LONG_FACTOR);
}

// From here on it is as fast as cuda_tma or faster: blur:2, H100, 2026-11-26, 0.91 and 0.90 of a
// copy with three planes of 8192 x 8192, 0.93 and 0.83 with 500 photographs.
#define LEAST_SIDE 5

static int score_tma_mma_wide16(const struct conv_stencil *stencil, size_t)
{
    return max(stencil->width, stencil->height) >= LEAST_SIDE ? 85 : CONV_SCORE_UNSUITED;
}

typedef wide16_traits<SHORT_FACTOR> short_traits;

CONV_CUDA_VARIANT(tma_mma_wide16, 90,
                  "two passes on int8 tensor cores, for images of 16 bits and a column times a row",
                  can_tma_mma_wide16, score_tma_mma_wide16, plan_tma_mma_wide16, run_planned,
                  short_traits::TILE_WIDTH, short_traits::TILE_HEIGHT);
