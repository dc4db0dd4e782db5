// SPDX-License-Identifier: MIT
// Float sums in fewer instructions. Samples are unpacked as denormal floats, whose bits are
// multiples of a power of two, and coefficients are scaled up by the factor by which samples are
// too small. Every product and sum is the usual one times a power of two, and is rounded in the
// same way.
#ifndef CONV_KERNELS_STENCIL_CUDA_DENORMAL_UNPACK_CUH
#define CONV_KERNELS_STENCIL_CUDA_DENORMAL_UNPACK_CUH

#include <math.h>
#include <string.h>

#include "kernels/stencil/cuda/pack.cuh"

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
static bool fits_scaled(const struct conv_stencil *stencil)
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

#endif
