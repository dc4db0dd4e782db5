// SPDX-License-Identifier: MIT
// Two passes on tensor cores, like tma_mma_separable.cu, for factors whose sums need more than 24
// bits: smoothing filters with precise weights, such as Gaussians within one level of the ideal,
// and unsharp masks, which subtract such a blur from a multiple of the sample, with or without a
// threshold. Exact filters of 8-bit images, up to 31 x 31, from compute capability 9.0 on. The
// passes are explained in separable_mma.cuh.
//
// Taps of a row are unsigned bytes, those of a column have one or two bytes. The sums of the first
// pass have up to 24 bits: their three bytes are factors of a product each (of two with a column of
// two bytes), and the products of equal weight share an accumulator. Sums of the second pass have
// up to 31 bits, and are divided by a multiplication. At 31 x 31 a sample takes 240 multiply-adds
// of bytes, 384 with a column of two.
#include "kernels/stencil/cuda/wide_sums.cuh"

struct tma_mma_wide_filter {
    struct tile_schedule schedule;
    struct wide_factors factors;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Two quotients of 8 bits, from bits TOP_BIT + shift on of a and b, to the bytes 0 and 2.
static __device__ inline uint32_t join_quotients(uint32_t a, uint32_t b, int shift)
{
    return __byte_perm(a, b, 0x7632) >> shift; // shift is at most 7
}

// From the blur's sum.
static __device__ inline uint32_t sharpen(uint32_t blur, uint32_t sample,
                                          const struct wide_factors &f)
{
    int32_t kept = (int32_t)sample * f.sample.divisor + f.sample.start;
    int32_t sum = (int32_t)sample * f.sample.centre + f.sample.start - (int32_t)blur;
    if (abs(sum - kept) < f.sample.keep_below)
        sum = kept;
    return (uint32_t)min(max(sum, f.division.start), f.sample.limit);
}

// The values that a lane of a consumer warp keeps in registers, and the passes.
template <int WIDTH_, int HEIGHT_, int COLUMN_BYTES, bool TIES, bool SAMPLE> struct wide_passes {
    static constexpr int WIDTH = WIDTH_, HEIGHT = HEIGHT_;
    typedef struct wide_sums Sums;
    struct toeplitz<uint8_t, across<WIDTH_>> row[2]; // for each half of the columns
    struct toeplitz<uint8_t, down<HEIGHT_>> column[COLUMN_BYTES];
    int32_t start[4];             // unless SAMPLE
    const struct wide_factors *f; // in constant memory

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
        const int32_t zero[4] = {};
        uint32_t made[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply_sums<EVEN>(made[i], from, i, column, SAMPLE ? zero : start);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t words[2];
            uint2 eight = {};
            if (SAMPLE)
                eight = *(const uint2 *)(target.centre + (first_row + 8 * r) * target.pitch);
#pragma unroll
            for (int w = 0; w < 2; w++) {
                uint32_t pairs[2];
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    uint32_t a = made[2 * w + k][2 * r], b = made[2 * w + k][2 * r + 1];
                    if (SAMPLE) {
                        uint32_t two = (w ? eight.y : eight.x) >> 16 * k;
                        a = sharpen(a, two & 255, *f);
                        b = sharpen(b, two >> 8 & 255, *f);
                    }
                    pairs[k] = join_quotients(divide_sum<TIES>(a, f->division),
                                              divide_sum<TIES>(b, f->division),
                                              f->division.first_bit - TOP_BIT);
                }
                words[w] = __byte_perm(pairs[0], pairs[1], 0x6420);
            }
            store<RAGGED>(target, first_row + 8 * r, make_uint2(words[0], words[1]));
        }
    }
};

#endif

// Blocks of 16 warps; a consumer warp filters a microtile of 32 x 64 samples at a time.
template <int WIDTH, int HEIGHT, int COLUMN_BYTES, bool TIES, bool SAMPLE>
static __global__ void __launch_bounds__(block_threads<separable_mma_traits<HEIGHT>>, 1)
    tma_mma_wide(const __grid_constant__ struct tma_mma_wide_filter f)
{
#if __CUDA_ARCH__ >= 900
    typedef separable_mma_traits<HEIGHT> Traits;
    uint8_t *row, *column;
    auto prepare = [&](struct tma_pipeline *pipeline) {
        row = (uint8_t *)pipeline->scratch;
        column = row + FACTOR_BYTES;
        copy_factors<COLUMN_BYTES>(row, f.factors, block_threads<Traits>);
    };
    tma_pipeline_main<Traits>(f.schedule, prepare, [&](struct tma_pipeline *pipeline) {
        struct wide_passes<WIDTH, HEIGHT, COLUMN_BYTES, TIES, SAMPLE> passes;
        load_row(passes.row, row);
#pragma unroll
        for (int part = 0; part < COLUMN_BYTES; part++)
            load_column(&passes.column[part], column + part * FACTOR_BYTES);
        if (!SAMPLE)
            load_start(passes.start, f.factors.division, row);
        passes.f = &f.factors;
        consume_tiles<Traits>(pipeline, f.schedule,
                              [&](const struct work_tile &tile, const uint8_t *samples, int job) {
                                  filter_microtile(tile, samples, job, passes);
                              });
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <int WIDTH, int HEIGHT>
static void plan_sized(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_wide_filter>>(plan);
    struct wide_kind kind;
    find_wide_factors(&constants->filter.factors, &kind, stencil, WIDTH, HEIGHT);
    bool two = kind.column_bytes == 2;
    if (kind.sample)
        constants->kernel = two ? tma_mma_wide<WIDTH, HEIGHT, 2, true, true>
                                : tma_mma_wide<WIDTH, HEIGHT, 1, true, true>;
    else if (two)
        constants->kernel = tma_mma_wide<WIDTH, HEIGHT, 2, true, false>;
    else
        constants->kernel = kind.ties ? tma_mma_wide<WIDTH, HEIGHT, 1, true, false>
                                      : tma_mma_wide<WIDTH, HEIGHT, 1, false, false>;
    constants->launch = tma_pipeline_run<separable_mma_traits<HEIGHT>, struct tma_mma_wide_filter>;
}

static void plan_tma_mma_wide(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->width <= SHORT_FACTOR && stencil->height <= SHORT_FACTOR)
        plan_sized<SHORT_FACTOR, SHORT_FACTOR>(stencil, plan);
    else
        plan_sized<LONG_FACTOR, LONG_FACTOR>(stencil, plan);
}

static bool can_tma_mma_wide(const struct conv_stencil *stencil)
{
    struct wide_factors factors = {};
    struct wide_kind kind;
    return find_wide_factors(&factors, &kind, stencil, LONG_FACTOR, LONG_FACTOR);
}

// Below 5 x 5, one pass with integers multiplies little more, and starts faster. At 5 x 5 and 7 x 7
// (gaussian:0.6, gaussian:1) this kernel takes 0.39 and 0.28 of the time of cuda_tma (H100, three
// planes of 8192 x 8192, 2026-11-26).
static int score_tma_mma_wide(const struct conv_stencil *stencil, size_t)
{
    return max(stencil->width, stencil->height) >= 5 ? 70 : 48;
}

CONV_CUDA_VARIANT_OF(
    THRESHOLDS, tma_mma_wide, 90,
    "two passes on int8 tensor cores, for precise weights, and for sharpening by such a blur",
    can_tma_mma_wide, score_tma_mma_wide, plan_tma_mma_wide, run_planned,
    separable_mma_traits<SHORT_FACTOR>::TILE_WIDTH,
    separable_mma_traits<SHORT_FACTOR>::TILE_HEIGHT);
