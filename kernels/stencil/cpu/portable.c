// SPDX-License-Identifier: MIT
// Runs on every machine: vectors of 16 bytes in the compiler's base architecture (SSE2, NEON). Real
// filters are included only if that has a fused multiply-add.
#include <math.h>

#define VECTOR 16
#define QUAD_VECTORS 1
#define QUADS CONV_CPU_QUADS_SLOW
#define SCORE 20
#define PLAIN_WORDS 1
#define PLAIN_QUADS 1

#ifdef __FP_FAST_FMAF
#define HAVE_FMA 1
#else
#define HAVE_FMA 0
#endif

#include "kernels/stencil/cpu/vector.h"

ALWAYS_INLINE vec_u16 min_u16(vec_u16 a, vec_u16 b)
{
    vec_u16 less = (vec_u16)(a < b);
    return (a & less) | (b & ~less);
}

ALWAYS_INLINE vec_u16 sub_u16(vec_u16 a, vec_u16 b)
{
    return (a - b) & (vec_u16)(a > b);
}

ALWAYS_INLINE vec_u16 divide_u16(vec_u16 a, uint16_t factor, uint16_t shift)
{
    for (int i = 0; i < VECTOR / 2; i++)
        a[i] = (uint16_t)(((uint32_t)a[i] * factor) >> 16 >> shift);
    return a;
}

ALWAYS_INLINE vec_u16 scale_i16(vec_u16 a, uint16_t factor)
{
    for (int i = 0; i < VECTOR / 2; i++)
        a[i] = (uint16_t)(((int16_t)a[i] * (int16_t)factor + (1 << 14)) >> 15);
    return a;
}

ALWAYS_INLINE vec_u16 clamp_u8(vec_u16 a)
{
    vec_u16 positive = a & ~(vec_u16)((vec_i16)a >> 15);
    return (positive | (vec_u16)((vec_i16)positive > 255)) & 255;
}

ALWAYS_INLINE vec_u8 join_u16(vec_u16 even, vec_u16 odd)
{
    return (vec_u8)(clamp_u8(even) | clamp_u8(odd) << 8);
}

ALWAYS_INLINE vec_i32 min_i32(vec_i32 a, vec_i32 b)
{
    vec_i32 less = a < b;
    return (a & less) | (b & ~less);
}

ALWAYS_INLINE vec_i32 max_i32(vec_i32 a, vec_i32 b)
{
    return min_i32(a, b) ^ a ^ b;
}

ALWAYS_INLINE vec_f32 add_tap(vec_f32 sum, vec_f32 tap, vec_f32 coef)
{
#if HAVE_FMA
    for (int i = 0; i < VECTOR / 4; i++)
        sum[i] = __builtin_fmaf(coef[i], tap[i], sum[i]);
    return sum;
#else
    return sum + coef * tap;
#endif
}

ALWAYS_INLINE vec_f64 add_product(vec_f64 sum, vec_f64 a, vec_f64 b)
{
#if HAVE_FMA
    for (int i = 0; i < DOUBLE_LANES; i++)
        sum[i] = __builtin_fma(a[i], b[i], sum[i]);
    return sum;
#else
    return sum + a * b;
#endif
}

ALWAYS_INLINE vec_f32 sqrt_f32(vec_f32 a)
{
    for (int i = 0; i < VECTOR / 4; i++)
        a[i] = sqrtf(a[i]);
    return a;
}

#include "kernels/stencil/cpu/vector_variant.h"

CONV_CPU_VECTOR_VARIANT(cpu_portable, 0, "vectors that every machine has, two taps per load");
