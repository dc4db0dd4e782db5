// SPDX-License-Identifier: MIT
// The operations of vector.h on x86, for any vector size: OP(name) is the intrinsic of that name,
// vec_any the integer vector, EVERY_128(v) a vector of copies of v.
#ifndef CONV_KERNELS_STENCIL_CPU_X86_H
#define CONV_KERNELS_STENCIL_CPU_X86_H

#include "kernels/stencil/cpu/vector.h"

#define PAIRS true

ALWAYS_INLINE vec_u16 dot_pairs(vec_u16 sum, vec_u8 a, vec_u32 coefs)
{
    return sum + (vec_u16)OP(maddubs_epi16)((vec_any)a, (vec_any)coefs);
}

ALWAYS_INLINE vec_u32 dot_quads(vec_u32 sum, vec_u8 a, vec_u32 coefs)
{
#if defined __AVX512VNNI__
    return (vec_u32)OP(dpbusd_epi32)((vec_any)sum, (vec_any)a, (vec_any)coefs);
#else
    vec_any pairs = OP(maddubs_epi16)((vec_any)a, (vec_any)coefs);
    return sum + (vec_u32)OP(madd_epi16)(pairs, OP(set1_epi16)(1));
#endif
}

ALWAYS_INLINE vec_u32 dot_words(vec_u32 sum, vec_u8 a, vec_u32 coefs)
{
#if defined __AVX512VNNI__
    return (vec_u32)OP(dpwssd_epi32)((vec_any)sum, (vec_any)a, (vec_any)coefs);
#else
    return sum + (vec_u32)OP(madd_epi16)((vec_any)a, (vec_any)coefs);
#endif
}

ALWAYS_INLINE vec_u16 min_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)OP(min_epu16)((vec_any)a, (vec_any)b);
}

ALWAYS_INLINE vec_u16 sub_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)OP(subs_epu16)((vec_any)a, (vec_any)b);
}

ALWAYS_INLINE vec_u16 divide_u16(vec_u16 a, uint16_t factor, uint16_t shift)
{
    vec_any high = OP(mulhi_epu16)((vec_any)a, OP(set1_epi16)((int16_t)factor));
    return (vec_u16)OP(srl_epi16)(high, _mm_cvtsi32_si128(shift));
}

ALWAYS_INLINE vec_u16 scale_i16(vec_u16 a, uint16_t factor)
{
    return (vec_u16)OP(mulhrs_epi16)((vec_any)a, OP(set1_epi16)((int16_t)factor));
}

ALWAYS_INLINE vec_u8 join_u16(vec_u16 even, vec_u16 odd)
{
    const __m128i order = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    return (vec_u8)OP(shuffle_epi8)(OP(packus_epi16)((vec_any)even, (vec_any)odd),
                                    EVERY_128(order));
}

ALWAYS_INLINE vec_i32 min_i32(vec_i32 a, vec_i32 b)
{
    return (vec_i32)OP(min_epi32)((vec_any)a, (vec_any)b);
}

ALWAYS_INLINE vec_i32 max_i32(vec_i32 a, vec_i32 b)
{
    return (vec_i32)OP(max_epi32)((vec_any)a, (vec_any)b);
}

ALWAYS_INLINE vec_f32 add_tap(vec_f32 sum, vec_f32 tap, vec_f32 coef)
{
#if HAVE_FMA
    return OP(fmadd_ps)(coef, tap, sum);
#else
    return sum + coef * tap;
#endif
}

ALWAYS_INLINE vec_f32 sqrt_f32(vec_f32 a)
{
    return OP(sqrt_ps)(a);
}

ALWAYS_INLINE void stream(uint8_t *p, vec_u8 v)
{
    STREAM((vec_any *)(void *)p, (vec_any)v);
}

ALWAYS_INLINE void stream_end(void)
{
    _mm_sfence();
}

#endif
