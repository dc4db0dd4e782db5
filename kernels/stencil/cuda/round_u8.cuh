// SPDX-License-Identifier: MIT
// Rounds sums of bytes to samples in two or three instructions each: for exact filters of 8-bit
// images whose sums have 23 bits. Sums start at the bits of 2^23, so they can be read as floats;
// one FMA divides them, and the conversion to a byte rounds half-even and clamps. See fits_division
// for the proof.
#ifndef CONV_KERNELS_STENCIL_CUDA_ROUND_U8_CUH
#define CONV_KERNELS_STENCIL_CUDA_ROUND_U8_CUH

#include <math.h>

#include "kernels/stencil/cuda/pack.cuh"

// Sums start at the bits of 2^23: as a float, a sum N from 0 to 2^23 - 1 then has the value 2^23 +
// N. A negative sum has a value below 2^23, for which the sample is 0.
#define SUM_START 0x4b000000
#define SUM_LIMIT 8388608
#define TIES_GRID 3072.0f // floats around it are the multiples of 2^-12

struct u8_rounding {
    int32_t start;       // of a sum: SUM_START + bias
    float scale, offset; // sample = (2^23 + N) * scale + offset, rounded half-even
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750

template <bool TIES>
__device__ inline uint32_t round_sums(int32_t s0, int32_t s1, int32_t s2, int32_t s3,
                                      const struct u8_rounding &r)
{
    int32_t sums[4] = {s0, s1, s2, s3};
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[k] = __fmaf_rn(__int_as_float(sums[k]), r.scale, r.offset);
        if (TIES)
            v[k] = __fadd_rn(v[k], -TIES_GRID);
    }
    return round_to_bytes(v[0], v[1], v[2], v[3]);
}

#endif

// --- host ----------------------------------------------------------------------------------------

static bool is_power_of_two(int64_t value)
{
    return (value & (value - 1)) == 0;
}

// True if N * scale, rounded to a float, is exact for every tie between samples.
static bool meets_ties(int64_t divisor, float scale)
{
    for (int k = 0; k < 256; k++) {
        double tie = (double)(divisor / 2 * (2 * k + 1)); // times 24 bits: exact
        if ((float)(tie * scale) != (float)k + 0.5f)
            return false;
    }
    return true;
}

// 1 / divisor, rounded to the nearest float, or to a neighbour of it that is exact for ties. *ties:
// no such float exists.
static float choose_scale(int64_t divisor, bool *ties)
{
    float nearest = 1.0f / (float)divisor;
    float candidates[3] = {nearest, nextafterf(nearest, 1), nextafterf(nearest, 0)};
    *ties = divisor % 2 == 0 && !is_power_of_two(divisor);
    for (int i = 0; *ties && i < 3; i++) {
        if (meets_ties(divisor, candidates[i])) {
            *ties = false;
            return candidates[i];
        }
    }
    return nearest;
}

// 2^23 * scale is a float, so that one FMA rounds N * scale, once. scale is off by at most 1.5 *
// 2^-23 of itself: up to 256, N * scale is off from q = N / d by less than 1.5 * 2^-15, and
// rounding it to a float adds 2^-17. Larger quotients stay above 256, and are clamped. d a power of
// two: all of this is exact. d odd: there are no ties, and q is at least 1 / (2d) away from one:
// enough for d < 5462. d even: any other quotient is at least 1 / d away from a tie. Ties come out
// exact with a scale for which that was checked (choose_scale). For the other divisors, the FMA
// rounds to a grid of 2^-12, where ties come out exact as well, and other quotients move by less
// than 2^-14 + 2^-13 < 1 / d.
static bool fits_division(int64_t divisor)
{
    return is_power_of_two(divisor) || divisor < 5462;
}

// True if this rounding is exact for the stencil's sums.
static inline bool fits_u8_rounding(const struct conv_stencil *stencil)
{
    int64_t low = stencil->bias, high = stencil->bias;
    for (int i = 0; i < stencil->width * stencil->height; i++)
        *(stencil->icoef[i] < 0 ? &low : &high) += 255 * (int64_t)stencil->icoef[i];
    return low > -SUM_LIMIT && high < SUM_LIMIT && fits_division(stencil->divisor);
}

// *ties is set if sums have to be rounded by way of the grid.
static inline void pack_rounding(struct u8_rounding *r, bool *ties,
                                 const struct conv_stencil *stencil)
{
    r->start = SUM_START + (int32_t)stencil->bias;
    r->scale = choose_scale(stencil->divisor, ties);
    // Exact: 2^23 * scale has 24 bits and is at least 1536 where there are ties.
    r->offset = (*ties ? TIES_GRID : 0.0f) - 8388608.0f * r->scale;
}

#endif
