// SPDX-License-Identifier: MIT
// SSE4.1: two 8-bit taps by one pmaddubsw. It has no fused multiply-add, so real filters are not
// here.
#ifdef __x86_64__
#include <smmintrin.h>

#define VECTOR 16
#include "kernels/cpu/vector.h"

#define HAVE_FMA 0

ALWAYS_INLINE vec_u16 add_pair(vec_u16 sum, vec_u16 pair, uint16_t coef)
{
    return sum + (vec_u16)_mm_maddubs_epi16((__m128i)pair, _mm_set1_epi16((int16_t)coef));
}

ALWAYS_INLINE vec_u16 min_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)_mm_min_epu16((__m128i)a, (__m128i)b);
}

ALWAYS_INLINE vec_u16 max_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)_mm_max_epu16((__m128i)a, (__m128i)b);
}

ALWAYS_INLINE vec_u16 divide_u16(vec_u16 a, uint16_t factor, uint16_t shift)
{
    __m128i high = _mm_mulhi_epu16((__m128i)a, _mm_set1_epi16((int16_t)factor));
    return (vec_u16)_mm_srl_epi16(high, _mm_cvtsi32_si128(shift));
}

ALWAYS_INLINE vec_f32 add_tap(vec_f32 sum, vec_f32 tap, vec_f32 coef)
{
    return sum + coef * tap;
}

#include "kernels/cpu/rows.h"

const struct conv_variant conv_cpu_sse41 = {
    .name = "cpu_sse41",
    .summary = "two taps an instruction, 16 bytes",
    .where = CONV_ON_CPU,
    .needs = CONV_CPU_SSE41,
    .fits = fits_vectors,
    .scratch = conv_cpu_scratch,
    .run = run_vectors,
};

#endif
