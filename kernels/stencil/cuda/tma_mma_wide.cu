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
#include "kernels/stencil/cuda/separable_mma.cuh"
#include "kernels/stencil/sample_factors.h"

#define SUM_BYTES 3 // of a sum of the first pass
#define TOP_BIT 16  // the quotient begins at this bit of a product or above

// The quotient of a sum N < 2^31 by d, with l = ceil(log2 d): the high word H of N * multiplier is
// N * 2^(l-1) / d, and (H + 2^(l-2)) >> (l-1) is N / d + 1/2, rounded down.
//
// d odd: multiplier = 2^(31+l) / d, rounded to the nearest integer, has 32 bits because d > 2^(l-1)
// + 1/2, and is off by at most 1/2, which moves the product by at most N / 2^33 < 1/4 units of H.
// There are no ties: N / d + 1/2 is at least 1 / (2d) away from an integer, more than 1/4 units.
// So the product is on the right side of it; H is an integer, and so is the bound.
//
// d even: the multiplier is rounded up, which moves the product up by less than N / 2^32 < 1/2
// units. A quotient that is not a tie is at least 1 / d, more than 1/2 units, away from one. Ties
// are rounded up first, and those whose result is odd are then moved down by 1. d a power of two:
// 2^(31+l) / d = 2^31 is exact (with l + 1 it would have 33 bits).
struct wide_division {
    uint32_t multiplier;
    uint32_t half; // 2^(l-2)
    int32_t shift; // l - 1 - TOP_BIT
    // A sum was a tie, which has gone up, if it and tie_half are quotient * tie_divisor: the
    // divisor and half of it; of odd ones 0 and 1, which no sum is.
    uint32_t tie_divisor, tie_half;
};

// SAMPLE: the sum is start + centre * sample - column * row; see stencil.h for keep_below.
struct wide_sample {
    int32_t start, centre, divisor;
    int32_t keep_below; // 0: no threshold
    int32_t limit;      // sums beyond it are clamped: 255 times the divisor
};

struct wide_factors {
    struct wide_division division;
    struct wide_sample sample;
    uint8_t row[FACTOR_BYTES],
        column[2][FACTOR_BYTES]; // taps from FACTOR_LEAD on, zeros around; low and high bytes
};

struct tma_mma_wide_filter {
    struct tile_schedule schedule;
    struct wide_factors factors;
};
static_assert(sizeof(((struct wide_factors *)0)->row) +
                      sizeof(((struct wide_factors *)0)->column) <=
                  PIPELINE_SCRATCH,
              "consumer warps load them from there");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The sums of a group of 16 rows as words of B: for each 8 columns, bytes of equal weight.
struct wide_sums {
    uint32_t bytes[SUM_BYTES][4];
};

// Two quotients of 8 bits, from bits TOP_BIT + shift on of a and b, to the bytes 0 and 2.
static __device__ inline uint32_t join_quotients(uint32_t a, uint32_t b, int shift)
{
    return __byte_perm(a, b, 0x7632) >> shift; // shift is at most 7
}

// TIES: the divisor is even.
template <bool TIES>
static __device__ inline uint32_t divide(uint32_t sum, const struct wide_division &by)
{
    uint32_t high = __umulhi(sum, by.multiplier) + by.half;
    if (TIES) {
        uint32_t quotient = high >> (TOP_BIT + by.shift);
        if (quotient * by.tie_divisor == sum + by.tie_half && quotient % 2)
            high -= 1u << (TOP_BIT + by.shift);
    }
    return high;
}

// From the blur's sum.
static __device__ inline uint32_t sharpen(uint32_t blur, uint32_t sample,
                                          const struct wide_factors &f)
{
    int32_t kept = (int32_t)sample * f.sample.divisor + f.sample.start;
    int32_t sum = (int32_t)sample * f.sample.centre + f.sample.start - (int32_t)blur;
    if (abs(sum - kept) < f.sample.keep_below)
        sum = kept;
    return (uint32_t)min(max(sum, 0), f.sample.limit);
}

// The values that a lane of a consumer warp keeps in registers, and the passes.
template <int WIDTH_, int HEIGHT_, int COLUMN_BYTES, bool TIES, bool SAMPLE> struct wide_passes {
    static constexpr int WIDTH = WIDTH_, HEIGHT = HEIGHT_;
    typedef struct wide_sums Sums;
    struct toeplitz<uint8_t, across<WIDTH_>> row[2]; // for each half of the columns
    struct toeplitz<uint8_t, down<HEIGHT_>> column[COLUMN_BYTES];
    const struct wide_factors *f; // in constant memory

    __device__ void sum_rows(struct wide_sums *to, const uint8_t *from, int pitch) const
    {
        const int32_t zero[4] = {};
        int32_t made[2][2][4];
        multiply_samples(made, from, pitch, row, zero);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int half = i / 2, k = i % 2 * 2;
            uint32_t a = (uint32_t)made[half][0][k], b = (uint32_t)made[half][0][k + 1];
            uint32_t c = (uint32_t)made[half][1][k], d = (uint32_t)made[half][1][k + 1];
            uint32_t upper = __byte_perm(a, b, 0x5140), lower = __byte_perm(c, d, 0x5140);
            to->bytes[0][i] = __byte_perm(upper, lower, 0x5410);
            to->bytes[1][i] = __byte_perm(upper, lower, 0x7632);
            upper = __byte_perm(a, b, 0x7632);
            lower = __byte_perm(c, d, 0x7632);
            to->bytes[2][i] = __byte_perm(upper, lower, 0x6420);
        }
    }

    // The sums of 8 columns. Products of equal weight, that is of the bytes `byte` and part of a
    // sum and a tap with the same byte + part, are added up.
    template <bool EVEN>
    __device__ void multiply_sums(uint32_t (&to)[4], const struct wide_sums *from, int i) const
    {
        constexpr int BLOCKS = down<HEIGHT>, WEIGHTS = SUM_BYTES + COLUMN_BYTES - 1;
        int32_t made[WEIGHTS][4] = {};
#pragma unroll
        for (int byte = 0; byte < SUM_BYTES; byte++) {
            uint32_t words[BLOCKS];
#pragma unroll
            for (int k = 0; k < BLOCKS; k++)
                words[k] = from[k].bytes[byte][i];
#pragma unroll
            for (int part = 0; part < COLUMN_BYTES; part++)
                multiply<EVEN>(made[byte + part], column[part], words, made[byte + part]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            to[k] = (uint32_t)made[WEIGHTS - 1][k];
#pragma unroll
            for (int weight = WEIGHTS - 2; weight >= 0; weight--)
                to[k] = 256 * to[k] + (uint32_t)made[weight][k];
        }
    }

    template <bool EVEN, bool RAGGED>
    __device__ void sum_columns(const struct wide_sums *from, const struct store_target &target,
                                int first_row) const
    {
        uint32_t made[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply_sums<EVEN>(made[i], from, i);
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
                    pairs[k] = join_quotients(divide<TIES>(a, f->division),
                                              divide<TIES>(b, f->division), f->division.shift);
                }
                words[w] = __byte_perm(pairs[0], pairs[1], 0x6420);
            }
            store<RAGGED>(target, first_row + 8 * r, make_uint2(words[0], words[1]));
        }
    }
};

#endif

// Blocks of 16 warps; a consumer warp filters a microtile of 32 x 64 samples at a time. The factors
// pass through the pipeline's scratch, because a lane indexes them by its position.
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
        for (uint32_t i = threadIdx.x; i < FACTOR_BYTES; i += block_threads<Traits>) {
            row[i] = f.factors.row[i];
            for (int part = 0; part < COLUMN_BYTES; part++)
                column[part * FACTOR_BYTES + i] = f.factors.column[part][i];
        }
    };
    tma_pipeline_main<Traits>(f.schedule, prepare, [&](struct tma_pipeline *pipeline) {
        struct wide_passes<WIDTH, HEIGHT, COLUMN_BYTES, TIES, SAMPLE> passes;
        load_row(passes.row, row);
#pragma unroll
        for (int part = 0; part < COLUMN_BYTES; part++)
            load_column(&passes.column[part], column + part * FACTOR_BYTES);
        passes.f = &f.factors;
        consume_tiles<Traits>(pipeline, f.schedule,
                              [&](const struct work_tile &tile, const uint8_t *samples, int job) {
                                  filter_microtile(tile, samples, job, passes);
                              });
    });
#endif
}

// --- host ----------------------------------------------------------------------------------------

static int ceil_log2(int64_t value)
{
    int bits = 0;
    while ((int64_t)1 << bits < value)
        bits++;
    return bits;
}

static void find_division(struct wide_division *by, int64_t divisor)
{
    int bits = ceil_log2(divisor);
    uint64_t scaled = (uint64_t)1 << (31 + bits), d = (uint64_t)divisor;
    by->multiplier = (uint32_t)((scaled + (divisor % 2 ? d / 2 : d - 1)) / d);
    by->half = 1u << (bits - 2);
    by->shift = bits - 1 - TOP_BIT;
    by->tie_divisor = divisor % 2 ? 0 : (uint32_t)d;
    by->tie_half = divisor % 2 ? 1 : (uint32_t)(d / 2);
}

// The properties by which a kernel is chosen.
struct wide_kind {
    int column_bytes;
    bool sample, ties;
};

// The factors of a stencil for a kernel of width x height taps; false if this arithmetic is not
// sufficient. Without a multiple of the sample no quotient exceeds 255, because the coefficients'
// sum is at most the divisor.
static bool find_factors(struct wide_factors *f, struct wide_kind *kind,
                         const struct conv_stencil *stencil, int width, int height)
{
    int32_t row[CONV_FILTER_MAX_SIDE], column[CONV_FILTER_MAX_SIDE], centre = 0;
    int64_t across_sum = 0, down_sum = 0;
    if (!stencil->exact || stencil->depth != 8 || stencil->floats || !stencil->fits_int32 ||
        stencil->divisor > 1 << 23)
        return false;
    // A power of two times all numbers, so that quotients begin at TOP_BIT or above.
    int64_t unit = 1, bound = stencil->divisor + llabs(stencil->bias);
    while (stencil->divisor * unit <= 1 << (TOP_BIT + 1))
        unit *= 2;
    for (int i = 0; i < stencil->width * stencil->height; i++)
        bound += 255 * (int64_t)abs(stencil->icoef[i]);
    if (stencil->keeps)
        bound += 255 * stencil->divisor;
    if (bound * unit > INT32_MAX)
        return false;
    kind->sample = !conv_stencil_factors(stencil, column, row);
    if (kind->sample ? !conv_stencil_sample_factors(stencil, &centre, column, row)
                     : stencil->bias != 0 || stencil->keeps)
        return false;
    // If the factors differ in sign, either may be the negative one.
    int across_sign = row[stencil->width / 2] < 0 ? -1 : 1;
    int down_sign = kind->sample ? -across_sign : across_sign;
    for (int i = 0; i < stencil->width; i++) {
        int32_t tap = across_sign * row[i];
        if (tap < 0 || tap > 255)
            return false;
        f->row[FACTOR_LEAD + width / 2 - stencil->width / 2 + i] = (uint8_t)tap;
        across_sum += tap;
    }
    kind->column_bytes = 1;
    for (int j = 0; j < stencil->height; j++) {
        int at = FACTOR_LEAD + height / 2 - stencil->height / 2 + j;
        int64_t tap = down_sign * column[j] * unit;
        if (tap < 0 || tap > 65535)
            return false;
        f->column[0][at] = (uint8_t)(tap & 255);
        f->column[1][at] = (uint8_t)(tap >> 8);
        down_sum += down_sign * column[j];
        if (tap > 255)
            kind->column_bytes = 2;
    }
    find_division(&f->division, stencil->divisor * unit);
    f->sample.start = (int32_t)(stencil->bias * unit);
    f->sample.centre = (int32_t)(centre * unit);
    f->sample.divisor = (int32_t)(stencil->divisor * unit);
    f->sample.keep_below = (int32_t)min(stencil->keep_below, INT32_MAX / unit) * (int32_t)unit;
    f->sample.limit = 255 * (int32_t)(stencil->divisor * unit);
    kind->ties = stencil->divisor * unit % 2 == 0;
    return kind->sample || across_sum * down_sum <= stencil->divisor;
}

template <int WIDTH, int HEIGHT>
static void plan_sized(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct tma_mma_wide_filter>>(plan);
    struct wide_kind kind;
    find_factors(&constants->filter.factors, &kind, stencil, WIDTH, HEIGHT);
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
    return find_factors(&factors, &kind, stencil, LONG_FACTOR, LONG_FACTOR);
}

// Below 9 x 9, one pass with integers multiplies little more, and starts faster.
static int score_tma_mma_wide(const struct conv_stencil *stencil, size_t)
{
    return max(stencil->width, stencil->height) >= 9 ? 70 : 48;
}

const struct conv_variant conv_cuda_tma_mma_wide = {
    "cuda_tma_mma_wide",
    "two passes on int8 tensor cores, for precise weights, and for sharpening by such a blur",
    CONV_ON_CUDA,
    90,
    can_tma_mma_wide,
    score_tma_mma_wide,
    plan_tma_mma_wide,
    run_planned,
    separable_mma_traits<SHORT_FACTOR>::TILE_WIDTH,
    separable_mma_traits<SHORT_FACTOR>::TILE_HEIGHT,
    false,
    false,
    false,
    true,
    false,
};
