// SPDX-License-Identifier: MIT
// The filters of 8-bit images that kernels with wide sums (wide_sums.cuh) can do: a column times a
// row, and a multiple of the sample minus such a blur. Taps of a row are unsigned bytes, those of a
// column have one or two bytes.
#ifndef CONV_KERNELS_STENCIL_CUDA_WIDE_FACTORS_CUH
#define CONV_KERNELS_STENCIL_CUDA_WIDE_FACTORS_CUH

#include "kernels/stencil/cuda/wide_sums.cuh"
#include "kernels/stencil/products.h"

#define TOP_BIT 16 // quotients begin at this bit of a product or above

// SAMPLE: the sum is start + centre * sample - column * row, where start has half of the divisor;
// see stencil.h for keep_below.
struct wide_sample {
    int32_t start, centre, divisor;
    int32_t keep_below; // 0: no threshold
    int32_t limit;      // sums beyond it are clamped: 255.5 times the divisor
};

struct wide_factors {
    struct sum_division division;
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
    int column_bytes;
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
    find_sum_division(&f->division, stencil->divisor * unit);
    f->sample.start = (int32_t)(stencil->bias * unit) + f->division.start;
    f->sample.centre = (int32_t)(centre * unit);
    f->sample.divisor = (int32_t)(stencil->divisor * unit);
    f->sample.keep_below = (int32_t)min(stencil->keep_below, INT32_MAX / unit) * (int32_t)unit;
    f->sample.limit = 255 * (int32_t)(stencil->divisor * unit) + f->division.start;
    kind->ties = stencil->divisor * unit % 2 == 0;
    return kind->sample || across_sum * down_sum <= stencil->divisor;
}

#endif
