// SPDX-License-Identifier: MIT
// AVX2: 32 bytes an instruction, and the fused multiply-add that real filters are defined by.
#ifdef __x86_64__
#include <immintrin.h>

#define VECTOR 32
#include "kernels/cpu/vector.h"

#define HAVE_FMA 1

ALWAYS_INLINE vec_u16 add_pair(vec_u16 sum, vec_u16 pair, uint16_t coef)
{
    return sum + (vec_u16)_mm256_maddubs_epi16((__m256i)pair, _mm256_set1_epi16((int16_t)coef));
}

ALWAYS_INLINE vec_u16 min_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)_mm256_min_epu16((__m256i)a, (__m256i)b);
}

ALWAYS_INLINE vec_u16 max_u16(vec_u16 a, vec_u16 b)
{
    return (vec_u16)_mm256_max_epu16((__m256i)a, (__m256i)b);
}

ALWAYS_INLINE vec_u16 divide_u16(vec_u16 a, uint16_t factor, uint16_t shift)
{
    __m256i high = _mm256_mulhi_epu16((__m256i)a, _mm256_set1_epi16((int16_t)factor));
    return (vec_u16)_mm256_srl_epi16(high, _mm_cvtsi32_si128(shift));
}

ALWAYS_INLINE vec_f32 add_tap(vec_f32 sum, vec_f32 tap, vec_f32 coef)
{
    return _mm256_fmadd_ps(coef, tap, sum);
}

#include "kernels/cpu/rows.h"

const struct conv_variant conv_cpu_avx2 = {
    .name = "cpu_avx2",
    .summary = "32 bytes an instruction, fused multiply-add for real filters",
    .where = CONV_ON_CPU,
    .needs = CONV_CPU_AVX2,
    .fits = fits_vectors,
    .scratch = conv_cpu_scratch,
    .run = run_vectors,
};

#endif
