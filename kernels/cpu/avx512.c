// SPDX-License-Identifier: MIT
// AVX-512: 64 bytes an instruction.
#ifdef __x86_64__
#include <immintrin.h>

#define VECTOR 64
#include "kernels/cpu/vector.h"

#define HAVE_FMA 1

ALWAYS_INLINE vec_u16 add_pair(vec_u16 sum, vec_u16 pair, uint16_t coef)
{
    return sum + (vec_u16)_mm512_maddubs_epi16((__m512i)pair, _mm512_set1_epi16((int16_t)coef));
}

ALWAYS_INLINE vec_u16 min_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)_mm512_min_epu16((__m512i)a, (__m512i)b);
}

ALWAYS_INLINE vec_u16 max_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)_mm512_max_epu16((__m512i)a, (__m512i)b);
}

ALWAYS_INLINE vec_u16 divide_u16(vec_u16 a, uint16_t factor, uint16_t shift)
{
    __m512i high = _mm512_mulhi_epu16((__m512i)a, _mm512_set1_epi16((int16_t)factor));
    return (vec_u16)_mm512_srl_epi16(high, _mm_cvtsi32_si128(shift));
}

ALWAYS_INLINE vec_f32 add_tap(vec_f32 sum, vec_f32 tap, vec_f32 coef)
{
    return _mm512_fmadd_ps(coef, tap, sum);
}

#include "kernels/cpu/rows.h"

const struct conv_variant conv_cpu_avx512 = {
    .name = "cpu_avx512",
    .summary = "64 bytes an instruction",
    .where = CONV_ON_CPU,
    .needs = CONV_CPU_AVX512,
    .fits = fits_vectors,
    .scratch = conv_cpu_scratch,
    .run = run_vectors,
};

#endif
