// SPDX-License-Identifier: MIT
// Two passes on tensor cores in one kernel: for smoothing filters that are a column times a row,
// such as boxes and Gaussians, and unsharp masks, which subtract such a blur from a multiple of the
// sample, with or without a threshold. Exact filters up to 31 x 31, from compute capability 9.0 on.
// Samples come through the bulk copy engine (tma_pipeline.cuh). The passes are explained in
// separable_mma.cuh.
//
// At 31 x 31 a sample takes 192 multiply-adds of bytes instead of 961, 240 with precise weights,
// whose sums have more than 16 bits, and 384 with a column of two bytes. At 16 bits
// the first pass has a product for the low and one for the high bytes of the samples, 368 in total,
// or 416 with sums of four bytes and of 40 bits (wide_sums.cuh).
#include "kernels/stencil/cuda/wide_sums.cuh"

struct tma_mma_wide_filter {
    struct tile_schedule schedule;
    struct wide_factors factors;
};

template <int HEIGHT, bool SHARPENS = false>
using byte_columns = column_traits<HEIGHT, uint8_t, SHARPENS>;
template <int HEIGHT, bool SHARPENS = false>
using wide_columns = column_traits<HEIGHT, uint16_t, SHARPENS>;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The products of the first pass for 16 rows, as multiply_samples: one for the low bytes of the
// samples and one for the high bytes.
template <int BLOCKS>
__device__ inline void multiply_wide_samples(int32_t (&sums)[2][2][4], const uint8_t *from,
                                             int pitch, const struct toeplitz<BLOCKS> (&row)[2])
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
    int32_t start = (int32_t)f.sample.start, kept = (int32_t)sample * f.sample.divisor + start;
    int32_t sum = (int32_t)sample * f.sample.centre + start - (int32_t)blur;
    if (abs(sum - kept) < (int32_t)f.sample.keep_below)
        sum = kept;
    return (uint32_t)min(max(sum, f.division.start), (int32_t)f.sample.limit);
}

static __device__ inline struct long_sum sharpen(struct long_sum blur, uint32_t sample,
                                                 const struct wide_factors &f)
{
    int64_t centre = (int64_t)f.sample.centre * (int32_t)sample + f.sample.start;
    struct long_sum sum = {(uint32_t)centre - blur.low, (uint32_t)(centre >> 8) - blur.high};
    sum.high -= (sum.high - (sum.low >> 8)) & 1; // what the lower 8 bits borrowed
    if (f.sample.keep_below) {
        int64_t kept = (int64_t)f.sample.divisor * (int32_t)sample + f.sample.start;
        int64_t off = (int64_t)(int32_t)sum.high * 256 + (sum.low & 255) - kept;
        if (off < f.sample.keep_below && -off < f.sample.keep_below)
            sum = {(uint32_t)kept, (uint32_t)(kept >> 8)};
    }
    return sum;
}

// The values that a lane of a consumer warp keeps in registers, and the passes.
template <typename Sample, int WIDTH_, int HEIGHT_, int SUM_BYTES, int COLUMN_BYTES, bool TIES,
          bool SHARPENS>
struct wide_passes {
    static constexpr int WIDTH = WIDTH_, HEIGHT = HEIGHT_, BYTES = sizeof(Sample);
    typedef struct wide_sums<SUM_BYTES> Sums;
    typedef typename std::conditional<SUM_BYTES == 4, struct long_sum, uint32_t>::type Sum;
    struct toeplitz<across<WIDTH_>> row[2]; // for each half of the columns
    struct toeplitz<down<HEIGHT_>> column[COLUMN_BYTES];
    int32_t start[4];             // unless SHARPENS
    const struct wide_factors *f; // in constant memory

    __device__ void sum_rows(Sums *to, const uint8_t *from, int pitch) const
    {
        const int32_t zero[4] = {};
        int32_t made[2][2][4];
        if constexpr (sizeof(Sample) == 1)
            multiply_samples(made, from, pitch, row, zero);
        else
            multiply_wide_samples(made, from, pitch, row);
        split_sums(to, made);
    }

    // Eight samples of row g + 8 * r. centre: those of the source.
    __device__ void divide_row(uint32_t (&to)[2 * BYTES], const Sum (&made)[4][4], int r,
                               const uint8_t *centre) const
    {
        if constexpr (SUM_BYTES == 2) {
            float v[8];
#pragma unroll
            for (int k = 0; k < 8; k++)
                v[k] = divide_sum<TIES>((int32_t)made[k / 2][2 * r + k % 2], f->rounding);
            to[0] = round_to_bytes(v[0], v[1], v[2], v[3]);
            to[1] = round_to_bytes(v[4], v[5], v[6], v[7]);
        } else {
            uint32_t pairs[4], eight[2 * BYTES];
#pragma unroll
            for (int w = 0; w < 2 * BYTES && SHARPENS; w += 2)
                *(uint2 *)&eight[w] = *(const uint2 *)(centre + 4 * w);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                Sum a = made[i][2 * r], b = made[i][2 * r + 1];
                if (SHARPENS) {
                    uint32_t two = eight[i * BYTES / 2] >> (BYTES == 1 ? 16 * (i % 2) : 0);
                    a = sharpen(a, (Sample)two, *f);
                    b = sharpen(b, (Sample)(two >> 8 * BYTES), *f);
                }
                constexpr bool CORRECTS = SUM_BYTES == 4 ? SHARPENS : TIES;
                pairs[i] = join_quotients<Sample>(divide_sum<CORRECTS>(a, f->division),
                                                  divide_sum<CORRECTS>(b, f->division),
                                                  SUM_BYTES == 4 ? 0 : f->division.first_bit);
            }
#pragma unroll
            for (int w = 0; w < 2 * BYTES; w++)
                to[w] = BYTES == 2 ? pairs[w]
                                   : __byte_perm(pairs[2 * w % 4], pairs[(2 * w + 1) % 4], 0x6420);
        }
    }

    template <bool EVEN, bool RAGGED>
    __device__ void sum_columns(const Sums *from, const struct store_target &target,
                                int first_row) const
    {
        const int32_t zero[4] = {};
        Sum made[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply_sums<EVEN>(made[i], from, i, column, SHARPENS ? zero : start);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int y = first_row + 8 * r;
            uint32_t words[2 * BYTES];
            divide_row(words, made, r, target.centre + y * target.pitch);
            if constexpr (sizeof(Sample) == 1)
                store<RAGGED>(target, y, make_uint2(words[0], words[1]));
            else
                store<RAGGED>(target, y, make_uint4(words[0], words[1], words[2], words[3]));
        }
    }
};

#endif

// Blocks of 16 warps; a consumer warp filters microtiles of 32 x 64 samples, of 16 bits of 32 x 32.
// The factors pass through the pipeline's scratch, because a lane indexes them by its position.
template <typename Traits, int SIDE, int SUM_BYTES, int COLUMN_BYTES, bool TIES, bool SHARPENS>
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
        struct wide_passes<typename Traits::Sample, SIDE, SIDE, SUM_BYTES, COLUMN_BYTES, TIES,
                           SHARPENS>
            passes;
        load_row(passes.row, row);
#pragma unroll
        for (int part = 0; part < COLUMN_BYTES; part++)
            load_column(&passes.column[part], column + part * FACTOR_BYTES);
        if (!SHARPENS)
            load_start(passes.start, f.factors.division, row);
        passes.f = &f.factors;
        consume_columns<Traits>(pipeline, f.schedule, passes);
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

template <typename Traits, int SIDE, bool SHARPENS, int SUM_BYTES, int COLUMN_BYTES, bool TIES>
static void set_kernel(struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_wide_filter>>(plan);
    constants->kernel = tma_mma_wide<Traits, SIDE, SUM_BYTES, COLUMN_BYTES, TIES, SHARPENS>;
    constants->launch = tma_pipeline_run<Traits, struct tma_mma_wide_filter>;
}

template <template <int, bool> class Traits, int SIDE>
static void plan_sized(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    typedef Traits<SIDE, false> Tiles;
    typedef Traits<SIDE, true> Sharpens;
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_wide_filter>>(plan);
    struct wide_kind kind = {};
    find_wide_factors(&constants->filter.factors, &kind, stencil, SIDE, SIDE);
    if constexpr (sizeof(typename Tiles::Sample) == 1) {
        if (kind.sum_bytes == 2)
            kind.ties ? set_kernel<Tiles, SIDE, false, 2, 1, true>(plan)
                      : set_kernel<Tiles, SIDE, false, 2, 1, false>(plan);
        else if (kind.column_bytes == 2)
            kind.sample ? set_kernel<Sharpens, SIDE, true, 3, 2, true>(plan)
                        : set_kernel<Tiles, SIDE, false, 3, 2, true>(plan);
        else if (kind.sample)
            set_kernel<Sharpens, SIDE, true, 3, 1, true>(plan);
    } else {
        if (kind.sum_bytes == 4)
            kind.sample ? set_kernel<Sharpens, SIDE, true, 4, 1, true>(plan)
                        : set_kernel<Tiles, SIDE, false, 4, 1, true>(plan);
    }
    if (!constants->kernel)
        kind.ties ? set_kernel<Tiles, SIDE, false, 3, 1, true>(plan)
                  : set_kernel<Tiles, SIDE, false, 3, 1, false>(plan);
}

template <template <int, bool> class Traits>
static void plan_wide(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->width <= SHORT_FACTOR && stencil->height <= SHORT_FACTOR)
        plan_sized<Traits, SHORT_FACTOR>(stencil, plan);
    else
        plan_sized<Traits, LONG_FACTOR>(stencil, plan);
}

template <int DEPTH> static bool can_wide(const struct conv_stencil *stencil)
{
    struct wide_factors factors = {};
    struct wide_kind kind = {};
    return stencil->depth == DEPTH &&
           find_wide_factors(&factors, &kind, stencil, LONG_FACTOR, LONG_FACTOR);
}

// Rejected: sums not kept from tile to tile take a little less with columns of two bytes up to 17
// taps, but up to a fifth more in images of 1920 x 1080 and less.
#define LEAST_SIDE 5 // smaller filters take one pass

static int score_tma_mma_wide(const struct conv_stencil *stencil, size_t)
{
    return max(stencil->width, stencil->height) >= LEAST_SIDE ? 72 : 48;
}

// As fast as cuda_tma or faster.
static int score_tma_mma_wide16(const struct conv_stencil *stencil, size_t)
{
    return max(stencil->width, stencil->height) >= LEAST_SIDE ? 85 : CONV_SCORE_UNSUITED;
}

CONV_CUDA_VARIANT_OF(
    THRESHOLDS, tma_mma_wide, 90,
    "two passes on int8 tensor cores, for a column times a row, and for sharpening by such a blur",
    can_wide<8>, score_tma_mma_wide, plan_wide<byte_columns>, run_planned,
    byte_columns<SHORT_FACTOR>::TILE_WIDTH, byte_columns<SHORT_FACTOR>::TILE_HEIGHT);

CONV_CUDA_VARIANT_OF(
    THRESHOLDS, tma_mma_wide16, 90,
    "two passes on int8 tensor cores, for images of 16 bits: a column times a row, and the sample",
    can_wide<16>, score_tma_mma_wide16, plan_wide<wide_columns>, run_planned,
    wide_columns<SHORT_FACTOR>::TILE_WIDTH, wide_columns<SHORT_FACTOR>::TILE_HEIGHT);
