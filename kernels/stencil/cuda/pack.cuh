// SPDX-License-Identifier: MIT
// Conversion between four packed samples and four registers.
#pragma once

#include <math.h>
#include <string.h>

#include "kernels/stencil/cuda/stencil_device.cuh"

// Four samples as in memory.
template <typename Sample>
using packed4 = typename std::conditional<
    sizeof(Sample) == 1, uint32_t,
    typename std::conditional<sizeof(Sample) == 2, uint2, float4>::type>::type;

// A float 2^23 + p has p in its low bits: two instructions at the full rate instead of a
// conversion.
__device__ inline float biased_to_float(uint32_t bits)
{
    return __fadd_rn(__uint_as_float(bits), -8388608.0f);
}

__device__ inline void unpack(float *to, uint32_t from)
{
    to[0] = biased_to_float(__byte_perm(from, 0x4b000000u, 0x7440));
    to[1] = biased_to_float(__byte_perm(from, 0x4b000000u, 0x7441));
    to[2] = biased_to_float(__byte_perm(from, 0x4b000000u, 0x7442));
    to[3] = biased_to_float(__byte_perm(from, 0x4b000000u, 0x7443));
}

__device__ inline void unpack(float *to, uint2 from)
{
    to[0] = biased_to_float(__byte_perm(from.x, 0x4b000000u, 0x7410));
    to[1] = biased_to_float(__byte_perm(from.x, 0x4b000000u, 0x7432));
    to[2] = biased_to_float(__byte_perm(from.y, 0x4b000000u, 0x7410));
    to[3] = biased_to_float(__byte_perm(from.y, 0x4b000000u, 0x7432));
}

__device__ inline void unpack(int32_t *to, uint32_t from)
{
    to[0] = from & 0xff;
    to[1] = from >> 8 & 0xff;
    to[2] = from >> 16 & 0xff;
    to[3] = from >> 24;
}

__device__ inline void unpack(int32_t *to, uint2 from)
{
    to[0] = from.x & 0xffff;
    to[1] = from.x >> 16;
    to[2] = from.y & 0xffff;
    to[3] = from.y >> 16;
}

__device__ inline void unpack(float *to, float4 from)
{
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
}

__device__ inline void pack(uint32_t &to, const uint32_t *from)
{
    to = __byte_perm(__byte_perm(from[0], from[1], 0x0040), __byte_perm(from[2], from[3], 0x0040),
                     0x5410);
}

__device__ inline void pack(uint2 &to, const uint32_t *from)
{
    to.x = __byte_perm(from[0], from[1], 0x5410);
    to.y = __byte_perm(from[2], from[3], 0x5410);
}

__device__ inline void pack(float4 &to, const float *from)
{
    to = make_float4(from[0], from[1], from[2], from[3]);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750

// Four floats to four bytes, rounded half-even and clamped. ptxas compiles the six conversions to
// two instructions (F2IP).
__device__ inline uint32_t round_to_bytes(float v0, float v1, float v2, float v3)
{
    int32_t q0, q1, q2, q3;
    uint32_t high, all;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q0) : "f"(v0));
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q1) : "f"(v1));
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q2) : "f"(v2));
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q3) : "f"(v3));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(q3), "r"(q2), "r"(0));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(q1), "r"(q0), "r"(high));
    return all;
}

#endif

// --- sums of bytes -------------------------------------------------------------------------------

// Rounds sums of bytes to samples in two or three instructions each: for exact filters of 8-bit
// images whose sums have 23 bits. Sums start at the bits of 2^23, so they can be read as floats;
// one FMA divides them, and the conversion to a byte rounds half-even and clamps. See fits_division
// for the proof.

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

// --- float sums in fewer instructions ------------------------------------------------------------

// Samples are unpacked as denormal floats, whose bits are multiples of a power of two, and
// coefficients are scaled up by the factor by which samples are too small. Every product and sum is
// the usual one times a power of two, and is rounded in the same way.

// Unpacked samples are * 2^sample_power, sums * 2^sum_power, coefficients by the difference: 2^141
// would make them infinite.
template <typename Sample> constexpr int sample_power = sizeof(Sample) == 1 ? -24 : -141;
template <typename Sample> constexpr int sum_power = sizeof(Sample) == 1 ? 0 : -24;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750

// --- samples to floats ---------------------------------------------------------------------------

// Two zero-extended bytes, read as 16-bit floats: byte * 2^-24.
__device__ inline void unpack_halves(float *to, uint32_t from)
{
    asm("cvt.f32.f16 %0, %1;" : "=f"(to[0]) : "h"((uint16_t)from));
    asm("cvt.f32.f16 %0, %1;" : "=f"(to[1]) : "h"((uint16_t)(from >> 16)));
}

// Six instructions instead of eight in unpack(): a PRMT for two bytes, an HADD2.F32 for each.
__device__ inline void unpack_denormal(float *to, uint32_t from)
{
    unpack_halves(to, __byte_perm(from, 0, 0x4140));
    unpack_halves(to + 2, __byte_perm(from, 0, 0x4342));
}

// Four instructions instead of eight in unpack(): a float whose exponent is 0 is its mantissa *
// 2^-149. With the sample 8 bits up that is sample * 2^-141, for which coefficients can be scaled.
__device__ inline void unpack_denormal(float *to, uint2 from)
{
    to[0] = __uint_as_float(__byte_perm(from.x, 0, 0x4104));
    to[1] = __uint_as_float(__byte_perm(from.x, 0, 0x4324));
    to[2] = __uint_as_float(__byte_perm(from.y, 0, 0x4104));
    to[3] = __uint_as_float(__byte_perm(from.y, 0, 0x4324));
}

// --- sums to samples -----------------------------------------------------------------------------

// Four sums to samples. EXACT: with round_sum's steps, except that the conversion rounds last. Sums
// of real filters need only that.
template <bool EXACT>
__device__ inline void round_packed4(uint32_t &to, const float *sums, const struct rounding &r)
{
    float v[4];
    for (int k = 0; k < 4; k++) {
        v[k] = sums[k];
        if (EXACT)
            v[k] = __fadd_rn(__fmaf_rn(sums[k], r.scale, r.grid), r.restore);
    }
    to = round_to_bytes(v[0], v[1], v[2], v[3]);
}

// No instruction converts and packs 16 bits. But a multiplication whose result is below the normal
// floats rounds to a multiple of 2^-149, half to even, and its bits are that integer. Above, bits
// ascend with the value, and a negative float's bits are a negative integer: packing with
// saturation (I2IP) clamps both.
template <bool EXACT>
__device__ inline void round_packed4(uint2 &to, const float *sums, const struct rounding &r)
{
    int32_t bits[4];
    for (int k = 0; k < 4; k++) {
        float v = EXACT ? __fmaf_rn(__fmaf_rn(sums[k], r.scale, r.grid), 0x1p-149f, r.restore)
                        : __fmul_rn(sums[k], 0x1p-125f); // 2^-149 / 2^sum_power
        bits[k] = __float_as_int(v);
    }
    asm("cvt.pack.sat.u16.s32 %0, %1, %2;" : "=r"(to.x) : "r"(bits[1]), "r"(bits[0]));
    asm("cvt.pack.sat.u16.s32 %0, %1, %2;" : "=r"(to.y) : "r"(bits[3]), "r"(bits[2]));
}

#endif

// --- host ----------------------------------------------------------------------------------------

// Scales coefficients (the bits of floats) and the constants that turn sums into samples.
template <typename Sample>
static void scale_filter(int32_t *coef, int taps, struct rounding *rounding)
{
    int up = sum_power<Sample> - sample_power<Sample>;
    for (int i = 0; i < taps; i++) {
        float value;
        memcpy(&value, &coef[i], sizeof value);
        value = ldexpf(value, up);
        memcpy(&coef[i], &value, sizeof value);
    }
    rounding->fbias = ldexpf(rounding->fbias, sum_power<Sample>);
    rounding->scale = ldexpf(rounding->scale, -sum_power<Sample>);
    rounding->restore =
        ldexpf(-rounding->grid, sizeof(Sample) == 1 ? 0 : -149); // EXACT's second step
}

static bool is_moderate(float value, float least, float most)
{
    float size = fabsf(value);
    return size == 0 || (size >= least && size <= most);
}

// Whether scaled sums are right: no value may become infinite, and no bit may be lost at the lower
// end.
//
// Exact filters. Coefficients and sums are integers of at most 2^24, and 16-bit images have
// coefficients of at most 2^24 / 65535. Scaled, these are at most 2^48 and 2^125, and sums 0 or at
// least 2^-24.
//
// Real ones, 8 bits. Coefficients up to 2^103 are finite * 2^24. Upwards no float loses a bit, and
// sums are not scaled.
//
// Real ones, 16 bits. Coefficients up to 2^10 are finite * 2^117, and sums are scaled down, so they
// do not grow too large. A float of at least 2^-102 has 24 bits, so it is a multiple of 2^-125. If
// all coefficients and the bias are, or 0, then so are products with samples, and sums, as rounding
// only makes multiples coarser. Times 2^-24 they are multiples of 2^-149, the last bit of floats:
// where floats below the normal ones have fewer bits, the sum needs no more, so the scaling adds no
// rounding.
static inline bool fits_scaled(const struct conv_stencil *stencil)
{
    if (stencil->exact)
        return true;
    bool wide = stencil->depth == 16;
    float least = wide ? 0x1p-102f : 0, most = wide ? 0x1p10f : 0x1p103f;
    bool fits = is_moderate(stencil->fbias, least, INFINITY);
    for (int i = 0; i < stencil->width * stencil->height; i++)
        fits = fits && is_moderate(stencil->fcoef[i], least, most);
    return fits;
}
