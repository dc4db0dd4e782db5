// SPDX-License-Identifier: MIT
// The filters of 8-bit images that kernels with wide sums (wide_sums.cuh) can do: a column times a
// row, and a multiple of the sample minus such a blur. Taps of a row are unsigned bytes, those of a
// column have one or two bytes.
#ifndef CONV_KERNELS_STENCIL_CUDA_WIDE_FACTORS_CUH
#define CONV_KERNELS_STENCIL_CUDA_WIDE_FACTORS_CUH

#include "kernels/stencil/cuda/wide_sums.cuh"
#include "kernels/stencil/sample_factors.h"

#define TOP_BIT 16 // quotients begin at this bit of a product or above

// The quotient of a sum N < 2^31 by d, with l = ceil(log2 d): the high word H of N * multiplier is
// N * 2^(l-1) / d, and (H + 2^(l-2)) >> (l-1) is N / d + 1/2, rounded down.
//
// d odd: multiplier = 2^(31+l) / d, rounded to the nearest integer, has 32 bits because d > 2^(l-1)
// + 1/2, and is off by at most 1/2, which moves the product by at most N / 2^33 < 1/4 units of H.
// There are no ties: N / d + 1/2 is at least 1 / (2d) away from an integer, more than 1/4 units.
// So the product is on the right side of it; H is an integer, and so is the bound.
//
// d even: the multiplier is rounded up, and moves the product up by less than N / 2^32 < 1/2 units.
// Any other quotient is at least 1 / d, more than 1/2 units, away from a tie; ties are rounded up,
// and those that became odd are moved down again. d a power of two: 2^(31+l) / d = 2^31 is exact
// (with l + 1 it would have 33 bits).
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

static_assert(sizeof(((struct wide_factors *)0)->row) +
                      sizeof(((struct wide_factors *)0)->column) <=
                  PIPELINE_SCRATCH,
              "consumer warps load them from there");

// --- host ----------------------------------------------------------------------------------------

// divisor: 3 to 2^23.
static inline void find_division(struct wide_division *by, int64_t divisor)
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
    int64_t divisor; // of the sums
    bool sample, ties;
};

// The factors of a stencil for a kernel of width x height taps; false if this arithmetic is not
// sufficient. Without a multiple of the sample no quotient exceeds 255, because the coefficients'
// sum is at most the divisor.
static inline bool find_wide_factors(struct wide_factors *f, struct wide_kind *kind,
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
    kind->divisor = stencil->divisor * unit;
    kind->ties = stencil->divisor * unit % 2 == 0;
    return kind->sample || across_sum * down_sum <= stencil->divisor;
}

#endif
