// SPDX-License-Identifier: MIT
// Conversion between four packed samples and four registers.
#ifndef CONV_KERNELS_STENCIL_CUDA_PACK_CUH
#define CONV_KERNELS_STENCIL_CUDA_PACK_CUH

#include <math.h>

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

#endif
