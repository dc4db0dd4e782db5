// SPDX-License-Identifier: MIT
// Two passes on tensor cores, like tma_mma_separable.cu, for factors whose sums need more than 24
// bits: smoothing filters with precise weights, such as Gaussians within one level of the ideal,
// and unsharp masks, which subtract such a blur from a multiple of the sample, with or without a
// threshold; and smoothing filters of 16-bit images. Exact filters up to 31 x 31, from compute
// capability 9.0 on. The passes are explained in separable_mma.cuh.
//
// Taps of a row are unsigned bytes, those of a column have one or two bytes. The sums of the first
// pass have up to 24 bits: their three bytes are factors of a product each (of two with a column of
// two bytes), and the products of equal weight share an accumulator. Sums of the second pass have
// up to 31 bits, and are divided by a multiplication. At 31 x 31 a sample takes 240 multiply-adds
// of bytes, 384 with a column of two. At 16 bits the first pass has a product for the low and one
// for the high bytes of the samples, 368 in total.
//
// Sums of rows are kept from one tile to the next (separable_mma.cuh), but for unsharp masks: they
// need the samples of rows that a stage does not hold then.
#include "kernels/stencil/cuda/wide_sums.cuh"

struct tma_mma_wide_filter {
    struct tile_schedule schedule;
    struct wide_factors factors;
};

template <int HEIGHT> using byte_columns = column_traits<HEIGHT, uint8_t>;
template <int HEIGHT> using wide_columns = column_traits<HEIGHT, uint16_t>;

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

// Two quotients, from bit first_bit on of a and b, to the bytes 0 and 2, or to 16 bits each.
template <typename Sample>
static __device__ inline uint32_t join_quotients(uint32_t a, uint32_t b, int first_bit)
{
    if (sizeof(Sample) == 1)
        return __byte_perm(a, b, 0x7632) >> (first_bit - TOP_BIT); // by at most 7
    return __byte_perm(a >> first_bit, b >> first_bit, 0x5410);
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
template <typename Sample, int WIDTH_, int HEIGHT_, int COLUMN_BYTES, bool TIES, bool SHARPENS>
struct wide_passes {
    static constexpr int WIDTH = WIDTH_, HEIGHT = HEIGHT_;
    typedef struct wide_sums Sums;
    struct toeplitz<uint8_t, across<WIDTH_>> row[2]; // for each half of the columns
    struct toeplitz<uint8_t, down<HEIGHT_>> column[COLUMN_BYTES];
    int32_t start[4];             // unless SHARPENS
    const struct wide_factors *f; // in constant memory

    __device__ void sum_rows(struct wide_sums *to, const uint8_t *from, int pitch) const
    {
        const int32_t zero[4] = {};
        int32_t made[2][2][4];
        if constexpr (sizeof(Sample) == 1)
            multiply_samples(made, from, pitch, row, zero);
        else
            multiply_wide_samples(made, from, pitch, row);
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
            multiply_sums<EVEN>(made[i], from, i, column, SHARPENS ? zero : start);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t pairs[4];
            uint2 eight = {};
            if (SHARPENS)
                eight = *(const uint2 *)(target.centre + (first_row + 8 * r) * target.pitch);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t a = made[i][2 * r], b = made[i][2 * r + 1];
                if (SHARPENS) {
                    uint32_t two = (i < 2 ? eight.x : eight.y) >> 16 * (i % 2);
                    a = sharpen(a, two & 255, *f);
                    b = sharpen(b, two >> 8 & 255, *f);
                }
                pairs[i] =
                    join_quotients<Sample>(divide_sum<TIES>(a, f->division),
                                           divide_sum<TIES>(b, f->division), f->division.first_bit);
            }
            if constexpr (sizeof(Sample) == 1)
                store<RAGGED>(target, first_row + 8 * r,
                              make_uint2(__byte_perm(pairs[0], pairs[1], 0x6420),
                                         __byte_perm(pairs[2], pairs[3], 0x6420)));
            else
                store<RAGGED>(target, first_row + 8 * r,
                              make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
        }
    }
};

#endif

// Blocks of 16 warps; a consumer warp filters a microtile of 32 x 64 samples at a time, or 32 x 32
// of 16 bits. The factors pass through the pipeline's scratch, because a lane indexes them by its
// position.
template <typename Traits, int WIDTH, int HEIGHT, int COLUMN_BYTES, bool TIES,
          bool SHARPENS = false>
static __global__ void __launch_bounds__(block_threads<Traits>, 1)
    tma_mma_wide(const __grid_constant__ struct tma_mma_wide_filter f)
{
#if __CUDA_ARCH__ >= 900
    uint8_t *row, *column;
    auto prepare = [&](struct tma_pipeline *pipeline) {
        row = (uint8_t *)pipeline->scratch;
        column = row + FACTOR_BYTES;
        copy_factors<COLUMN_BYTES>(row, f.factors, block_threads<Traits>);
    };
    tma_pipeline_main<Traits>(f.schedule, prepare, [&](struct tma_pipeline *pipeline) {
        struct wide_passes<typename Traits::Sample, WIDTH, HEIGHT, COLUMN_BYTES, TIES, SHARPENS>
            passes;
        load_row(passes.row, row);
#pragma unroll
        for (int part = 0; part < COLUMN_BYTES; part++)
            load_column(&passes.column[part], column + part * FACTOR_BYTES);
        if (!SHARPENS)
            load_start(passes.start, f.factors.division, row);
        passes.f = &f.factors;
        if constexpr (Traits::COLUMN_TILES > 0)
            consume_columns<Traits>(pipeline, f.schedule, passes);
        else
            consume_tiles<Traits>(pipeline, f.schedule,
                                  [&](const struct work_tile &tile, const uint8_t *samples,
                                      int job) { filter_microtile(tile, samples, job, passes); });
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <typename Traits, int WIDTH, int HEIGHT>
static void plan_sized(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_wide_filter>>(plan);
    struct wide_kind kind = {};
    find_wide_factors(&constants->filter.factors, &kind, stencil, WIDTH, HEIGHT);
    constants->kernel = kind.ties ? tma_mma_wide<Traits, WIDTH, HEIGHT, 1, true>
                                  : tma_mma_wide<Traits, WIDTH, HEIGHT, 1, false>;
    if constexpr (sizeof(typename Traits::Sample) == 1)
        if (kind.column_bytes == 2)
            constants->kernel = tma_mma_wide<Traits, WIDTH, HEIGHT, 2, true>;
    if constexpr (Traits::COLUMN_TILES == 0)
        if (kind.sample)
            constants->kernel = kind.column_bytes == 2
                                    ? tma_mma_wide<Traits, WIDTH, HEIGHT, 2, true, true>
                                    : tma_mma_wide<Traits, WIDTH, HEIGHT, 1, true, true>;
    constants->launch = tma_pipeline_run<Traits, struct tma_mma_wide_filter>;
}

template <template <int> class Traits>
static void plan_wide(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->width <= SHORT_FACTOR && stencil->height <= SHORT_FACTOR)
        plan_sized<Traits<SHORT_FACTOR>, SHORT_FACTOR, SHORT_FACTOR>(stencil, plan);
    else
        plan_sized<Traits<LONG_FACTOR>, LONG_FACTOR, LONG_FACTOR>(stencil, plan);
}

template <int DEPTH, bool SHARPENS> static bool can_wide(const struct conv_stencil *stencil)
{
    struct wide_factors factors = {};
    struct wide_kind kind = {};
    return stencil->depth == DEPTH &&
           find_wide_factors(&factors, &kind, stencil, LONG_FACTOR, LONG_FACTOR) &&
           (SHARPENS || !kind.sample);
}

// Below 5 x 5, one pass with integers multiplies little more, and starts faster. At 5 x 5 and 7 x 7
// (gaussian:0.6, gaussian:1) this kernel takes 0.39 and 0.28 of the time of cuda_tma (H100, three
// planes of 8192 x 8192, 2026-11-26).
static int score_tma_mma_wide(const struct conv_stencil *stencil, size_t)
{
    return max(stencil->width, stencil->height) >= 5 ? 70 : 48;
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

// From LEAST_SIDE on it is as fast as cuda_tma or faster: blur:2, H100, 2026-11-26, 0.91 and 0.90
// of a copy with three planes of 8192 x 8192, 0.93 and 0.83 with 500 photographs.
static int score_tma_mma_wide16(const struct conv_stencil *stencil, size_t)
{
    return max(stencil->width, stencil->height) >= LEAST_SIDE ? 85 : CONV_SCORE_UNSUITED;
}

CONV_CUDA_VARIANT_OF(
    THRESHOLDS, tma_mma_wide, 90,
    "two passes on int8 tensor cores, for precise weights, and for sharpening by such a blur",
    (can_wide<8, true>), score_tma_mma_wide, plan_wide<separable_mma_traits>, run_planned,
    separable_mma_traits<SHORT_FACTOR>::TILE_WIDTH,
    separable_mma_traits<SHORT_FACTOR>::TILE_HEIGHT);

CONV_CUDA_VARIANT(
    tma_mma_wide_columns, 90,
    "two passes on int8 tensor cores, for precise weights, keeping sums from tile to tile",
    (can_wide<8, false>), score_tma_mma_wide_columns, plan_wide<byte_columns>, run_planned,
    byte_columns<SHORT_FACTOR>::TILE_WIDTH, byte_columns<SHORT_FACTOR>::TILE_HEIGHT);

CONV_CUDA_VARIANT(tma_mma_wide16, 90,
                  "two passes on int8 tensor cores, for images of 16 bits and a column times a row",
                  (can_wide<16, false>), score_tma_mma_wide16, plan_wide<wide_columns>, run_planned,
                  wide_columns<SHORT_FACTOR>::TILE_WIDTH, wide_columns<SHORT_FACTOR>::TILE_HEIGHT);
