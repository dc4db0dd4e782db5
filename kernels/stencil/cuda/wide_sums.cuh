// SPDX-License-Identifier: MIT
// The sums of two passes (separable_mma.cuh). Those of the first pass have up to 24 bits, of 16-bit
// images up to 31: their two to four bytes are factors of a product each (of two with a column of
// taps of two bytes), and the products of equal weight share an accumulator. Sums of the second
// pass have up to 31 bits, or 40, and are divided by a multiplication; if the first ones have 16
// bits and the second ones 24, as floats.
#pragma once

#include "kernels/stencil/cuda/pack.cuh"
#include "kernels/stencil/cuda/separable_mma.cuh"
#include "kernels/stencil/stencil.h"

// The quotient of a sum N by d, N + d / 2 < 2^31, with l = ceil(log2 d): N' = N + d / 2, rounded
// down, comes from the products themselves, which start with d / 2. The quotient is N' / d, rounded
// down, which is N / d, rounded to the nearest integer, ties up. With multiplier = 2^(31+l) / d,
// rounded up, it is what follows from bit 31 + l on of N' * multiplier: the multiplier is too large
// by less than 1, so that the product is by less than 2^31, and N' / d, multiplied by 2^(31+l), is
// at least 2^(31+l) / d >= 2^31 below the next integer (Granlund and Montgomery, "Division by
// invariant integers using multiplication", 1994). The high word has the quotient from bit l - 1
// on.
//
// d even: the quotient of a tie has gone up, and goes down again if it became odd. Of a tie, N' is
// a multiple of d, so that the bits of the high word below the quotient are 0: the product's excess
// is less than one unit of it. Subtracting 1 then leads to the quotient below. N' is even, because
// d is. If N' is even and no multiple of d, it is at least 2 above one, which is at least one
// unit, so that subtracting 1 changes no quotient. So an odd quotient's high word is decremented
// wherever N' is even.
//
// A sum N of up to 40 bits, d >= 2^10: N' = N + (d - 1) / 2, rounded down, and the multiplier is
// rounded down. The high word of N' / 2^8, rounded down, times the multiplier has an estimate of
// N' / d from bit l - 9 on, which is too small by less than 2^8 / d + 2^-15. So the quotient is the
// estimate, rounded down, or 1 more, and the rest says which: less than d, it is that of the
// estimate. d even: N' is one unit below that of other divisors, so that the rest of a tie is d -
// 1; then the quotient that is even counts.
struct sum_division {
    uint32_t multiplier;
    int32_t start;     // d / 2, or (d - 1) / 2
    int32_t first_bit; // l - 1, or l - 9
    uint32_t even;     // 1 if d is
    uint32_t divisor;  // d
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The sums of a group of 16 rows as words of B: for each 8 columns, bytes of equal weight.
template <int SUM_BYTES> struct wide_sums {
    uint32_t bytes[SUM_BYTES][4];
};

// From the sums of a group as multiply_samples leaves them.
template <int SUM_BYTES>
__device__ inline void split_sums(struct wide_sums<SUM_BYTES> *to, const int32_t (&sums)[2][2][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int half = i / 2, k = i % 2 * 2;
        uint32_t a = (uint32_t)sums[half][0][k], b = (uint32_t)sums[half][0][k + 1];
        uint32_t c = (uint32_t)sums[half][1][k], d = (uint32_t)sums[half][1][k + 1];
        uint32_t upper = __byte_perm(a, b, 0x5140), lower = __byte_perm(c, d, 0x5140);
        to->bytes[0][i] = __byte_perm(upper, lower, 0x5410);
        to->bytes[1][i] = __byte_perm(upper, lower, 0x7632);
        upper = __byte_perm(a, b, 0x7362);
        lower = __byte_perm(c, d, 0x7362);
        if (SUM_BYTES > 2)
            to->bytes[SUM_BYTES > 2 ? 2 : 0][i] = __byte_perm(upper, lower, 0x5410);
        if (SUM_BYTES == 4)
            to->bytes[SUM_BYTES - 1][i] = __byte_perm(upper, lower, 0x7632);
    }
}

// A sum of the second pass of up to 40 bits, with a sign: the lower 32, and all but the lower 8.
struct long_sum {
    uint32_t low, high;
};

__device__ inline void join_products(uint32_t *to, const uint32_t *made, int weights)
{
    *to = made[0];
#pragma unroll
    for (int weight = 1; weight < weights; weight++)
        *to += made[weight] << 8 * weight;
}

__device__ inline void join_products(struct long_sum *to, const uint32_t *made, int weights)
{
    join_products(&to->high, made + 1, weights - 1);
    to->high += made[0] >> 8;
    to->low = __byte_perm(made[0], to->high, 0x6540);
}

// The sums of the second pass for 8 columns and 16 rows, from the groups at `from` on. Products of
// equal weight, that is of the bytes `byte` and part of a sum and a tap with the same byte + part,
// are added up to `start`.
template <bool EVEN, typename Sum, int SUM_BYTES, int BLOCKS, int COLUMN_BYTES>
__device__ inline void multiply_sums(Sum (&to)[4], const struct wide_sums<SUM_BYTES> *from, int i,
                                     const struct toeplitz<BLOCKS> (&column)[COLUMN_BYTES],
                                     const int32_t (&start)[4])
{
    constexpr int WEIGHTS = SUM_BYTES + COLUMN_BYTES - 1;
    int32_t made[WEIGHTS][4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++)
        made[0][k] = start[k];
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
        uint32_t own[WEIGHTS];
#pragma unroll
        for (int weight = 0; weight < WEIGHTS; weight++)
            own[weight] = (uint32_t)made[weight][k];
        join_products(&to[k], own, WEIGHTS);
    }
}

// If the compiler knew that the four values are equal, or uniform, it would move them into place
// for every product. It cannot see that the bytes before a row's taps are zeros.
__device__ inline void load_start(int32_t (&to)[4], const struct sum_division &by,
                                  const uint8_t *row)
{
    int t = (int)threadIdx.x % 4;
    for (int k = 0; k < 4; k++)
        to[k] = by.start ^ row[t + k];
}

// The quotient of a sum that started with d / 2, from bit first_bit on. TIES: d may be even.
template <bool TIES>
__device__ inline uint32_t divide_sum(uint32_t sum, const struct sum_division &by)
{
    uint32_t high = __umulhi(sum, by.multiplier);
    if (TIES)
        high -= high >> by.first_bit & ~sum & by.even;
    return high;
}

// The same of a sum that started with (d - 1) / 2, from bit 0 on. CLAMPS: sums may be negative, and
// quotients exceed 16 bits.
template <bool CLAMPS>
__device__ inline uint32_t divide_sum(struct long_sum sum, const struct sum_division &by)
{
    uint32_t quotient = __umulhi(sum.high, by.multiplier) >> by.first_bit;
    uint32_t rest = sum.low - quotient * by.divisor;
    quotient += rest + (quotient & by.even) >= by.divisor;
    return CLAMPS && (int32_t)sum.high < 0 ? 0 : min(quotient, CLAMPS ? 65535u : UINT32_MAX);
}

// The same of sums that float32 holds, before they are rounded: by way of the grid (arithmetic.cu),
// or of 23 bits that start at the bits of a float (pack.cuh).
template <bool GRID> __device__ inline float divide_sum(int32_t sum, const struct u8_rounding &by)
{
    if (GRID)
        return __fadd_rn(__fmaf_rn((float)sum, by.scale, by.offset), -by.offset);
    return __fmaf_rn(__int_as_float(sum), by.scale, by.offset);
}

#endif

// --- host ----------------------------------------------------------------------------------------

static inline int ceil_log2(int64_t value)
{
    int bits = 0;
    while ((int64_t)1 << bits < value)
        bits++;
    return bits;
}

// divisor: at least 2; large, for sums of 40 bits: at least 2^10.
static inline void find_sum_division(struct sum_division *by, int64_t divisor, bool large)
{
    int bits = ceil_log2(divisor);
    uint64_t d = (uint64_t)divisor;
    by->multiplier = (uint32_t)((((uint64_t)1 << (31 + bits)) + (large ? 0 : d - 1)) / d);
    by->start = (int32_t)((divisor - large) / 2);
    by->first_bit = bits - (large ? 9 : 1);
    by->even = divisor % 2 == 0;
    by->divisor = (uint32_t)divisor;
}

// --- factors -------------------------------------------------------------------------------------

// A column times a row, and a multiple of the sample minus such a blur. Taps of a row are unsigned
// bytes, those of a column have one or two bytes, at 16 bits one.

#define TOP_BIT 16       // quotients of bytes begin at this bit of a product or above
#define MOST_ROW_SUM 256 // of taps at 16 bits: 65535 times as much has 24 bits
#define MOST_DIVISOR (1 << 23)
#define LEAST_LARGE_DIVISOR (1 << 10) // of sums of 40 bits
#define MOST_SUM ((int64_t)1 << 39)   // of these

// With `sample`: the sum is start + centre * sample - column * row, where start has half of the
// divisor; see stencil.h for keep_below.
struct wide_sample {
    int64_t start;
    int32_t centre, divisor;
    int64_t keep_below; // 0: no threshold
    int64_t limit;      // sums beyond it are clamped: the largest sample and 0.5 times the divisor
};

struct wide_factors {
    struct sum_division division;
    struct u8_rounding rounding; // of sums of two bytes, see divide_sum
    struct wide_sample sample;
    uint8_t row[FACTOR_BYTES],
        column[2][FACTOR_BYTES]; // taps from FACTOR_LEAD on, zeros around; low and high bytes
};

static_assert(sizeof(((struct wide_factors *)0)->row) +
                      sizeof(((struct wide_factors *)0)->column) <=
                  PIPELINE_SCRATCH,
              "consumer warps load them from there");

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Copies the row, and after it the parts of the column, to shared memory, by `threads` threads.
template <int COLUMN_BYTES>
__device__ inline void copy_factors(uint8_t *to, const struct wide_factors &factors,
                                    uint32_t threads)
{
    for (uint32_t i = threadIdx.x; i < FACTOR_BYTES; i += threads) {
        to[i] = factors.row[i];
        for (int part = 0; part < COLUMN_BYTES; part++)
            to[(1 + part) * FACTOR_BYTES + i] = factors.column[part][i];
    }
}

#endif

// --- host ----------------------------------------------------------------------------------------

// The properties by which a kernel is chosen.
struct wide_kind {
    int sum_bytes, column_bytes;
    bool sample, ties;
};

// The factors of a stencil for a kernel of width x height taps; false if this arithmetic is not
// sufficient. Without a multiple of the sample no quotient exceeds the largest sample, because the
// coefficients' sum is at most the divisor.
static inline bool find_wide_factors(struct wide_factors *f, struct wide_kind *kind,
                                     const struct conv_stencil *stencil, int width, int height)
{
    int32_t row[CONV_FILTER_MAX_SIDE], column[CONV_FILTER_MAX_SIDE], centre = 0, most = 0;
    int64_t across_sum = 0, down_sum = 0, divisor = stencil->divisor;
    bool bytes = stencil->depth == 8;
    struct rounding rounding;
    if (!stencil->exact || stencil->floats || divisor > MOST_DIVISOR)
        return false;
    int64_t unit = 1, bound = divisor + llabs(stencil->bias);
    for (int i = 0; i < stencil->width * stencil->height; i++)
        bound += stencil->max * (int64_t)abs(stencil->icoef[i]);
    if (stencil->keeps)
        bound += stencil->max * divisor;
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
    for (int j = 0; j < stencil->height; j++)
        most = max(most, abs(column[j]));
    bool narrow = bytes && !kind->sample && 255 * across_sum <= 65535 && most <= 255 &&
                  conv_cuda_rounding(&rounding, stencil) == SUM_FLOAT;
    // A power of two times all numbers, so that quotients of bytes begin at TOP_BIT or above.
    while (!narrow && divisor * unit <= (bytes ? 1 << (TOP_BIT + 1) : 1))
        unit *= 2;
    kind->column_bytes = 1;
    for (int j = 0; j < stencil->height; j++) {
        int at = FACTOR_LEAD + height / 2 - stencil->height / 2 + j;
        int64_t tap = down_sign * column[j] * unit;
        if (tap < 0 || tap > (bytes ? 65535 : 255))
            return false;
        f->column[0][at] = (uint8_t)(tap & 255);
        f->column[1][at] = (uint8_t)(tap >> 8);
        down_sum += down_sign * column[j];
        if (tap > 255)
            kind->column_bytes = 2;
    }
    bool fits = stencil->fits_int32 && bound * unit <= INT32_MAX;
    bool small = bytes || (fits && !kind->sample && across_sum <= MOST_ROW_SUM);
    if (small ? !fits
              : divisor < LEAST_LARGE_DIVISOR || bound >= MOST_SUM ||
                    across_sum * down_sum > MOST_DIVISOR)
        return false;
    kind->sum_bytes = narrow ? 2 : small ? 3 : 4;
    divisor *= unit;
    find_sum_division(&f->division, divisor, !small);
    kind->ties = divisor % 2 == 0;
    if (narrow) {
        kind->ties = true;
        if (fits_u8_rounding(stencil))
            pack_rounding(&f->rounding, &kind->ties, stencil);
        if (kind->ties)
            f->rounding = {0, rounding.scale, rounding.grid};
        f->division.start = f->rounding.start;
    }
    f->sample.start = stencil->bias * unit + f->division.start;
    f->sample.centre = (int32_t)(centre * unit);
    f->sample.divisor = (int32_t)divisor;
    f->sample.keep_below = min(stencil->keep_below, (bytes ? INT32_MAX : INT64_MAX) / unit) * unit;
    f->sample.limit = stencil->max * divisor + f->division.start;
    return kind->sample || across_sum * down_sum <= stencil->divisor;
}
