// SPDX-License-Identifier: MIT
// The operations of vector.h on x86, and a variant of each of its instruction sets: compiled once
// for each (CMakeLists.txt), which CONV_ISA_... names. OP(name) is the intrinsic of that name,
// vec_any the integer vector, EVERY_128(v) a vector of copies of v.
#if defined CONV_ISA_SSE41 || defined CONV_ISA_AVX2 || defined CONV_ISA_AVX512 ||                  \
    defined CONV_ISA_VNNI
#include <immintrin.h>

#if defined CONV_ISA_SSE41
// Two 8-bit taps per pmaddubsw, two 16-bit taps per pmaddwd, 16 bytes at a time. Without a fused
// multiply-add it cannot do real filters.
#define VECTOR 16
#define QUAD_VECTORS 1
#define HAVE_FMA 0
#define QUADS CONV_CPU_QUADS_SLOW
#define SCORE 30
#define OP(name) _mm_##name
#define STREAM _mm_stream_si128
#define HALF_F32(p) _mm_castpd_ps(_mm_load_sd((const double *)(const void *)(p)))
#define EVERY_128(v) (v)
typedef __m128i vec_any;

#elif defined CONV_ISA_AVX2
// 32 bytes per instruction, and the fused multiply-add by which real filters are defined.
#define VECTOR 32
#define QUAD_VECTORS 1
#define HAVE_FMA 1
#define QUADS CONV_CPU_QUADS_SLOW
#define SCORE 40
#define OP(name) _mm256_##name
#define STREAM _mm256_stream_si256
#define HALF_F32(p) _mm_loadu_ps(p)
#define EVERY_128(v) _mm256_broadcastsi128_si256(v)
typedef __m256i vec_any;

#else
// 64 bytes per instruction and twice the registers; Zen 4 executes each in two halves. VNNI's
// vpdpbusd multiplies and adds four taps at once, in sums of 32 bits. Small stencils (direct.h) and
// two passes (dots.h) use pairs.
#define VECTOR 64
#define QUAD_VECTORS 2
#define HAVE_FMA 1
#if defined CONV_ISA_VNNI
#define QUADS CONV_CPU_QUADS_FAST
#define SAME_FLOATS_AND_DIRECT conv_cpu_avx512
#define SCORE 60
#else
#define QUADS CONV_CPU_QUADS_SLOW
#define SCORE 50
#endif
#define OP(name) _mm512_##name
#define STREAM _mm512_stream_si512
#define HALF_F32(p) _mm256_loadu_ps(p)
#define EVERY_128(v) _mm512_broadcast_i32x4(v)
typedef __m512i vec_any;
#endif

#include "kernels/stencil/cpu/vector.h"

#define PAIRS true

ALWAYS_INLINE vec_u16 dot_pairs(vec_u16 sum, vec_u8 a, vec_u32 coefs)
{
    return sum + (vec_u16)OP(maddubs_epi16)((vec_any)a, (vec_any)coefs);
}

ALWAYS_INLINE vec_u32 dot_quads(vec_u32 sum, vec_u8 a, vec_u32 coefs)
{
#if defined CONV_ISA_VNNI
    return (vec_u32)OP(dpbusd_epi32)((vec_any)sum, (vec_any)a, (vec_any)coefs);
#else
    vec_any pairs = OP(maddubs_epi16)((vec_any)a, (vec_any)coefs);
    return sum + (vec_u32)OP(madd_epi16)(pairs, OP(set1_epi16)(1));
#endif
}

ALWAYS_INLINE vec_u32 dot_words(vec_u32 sum, vec_u8 a, vec_u32 coefs)
{
#if defined CONV_ISA_VNNI
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

// GCC 12 converts the halves of a vector one by one.
ALWAYS_INLINE vec_f64 load_f32_as_f64(const float *p)
{
    return (vec_f64)OP(cvtps_pd)(HALF_F32(p));
}

ALWAYS_INLINE vec_f64 add_product(vec_f64 sum, vec_f64 a, vec_f64 b)
{
#if HAVE_FMA
    return OP(fmadd_pd)(a, b, sum);
#else
    return sum + a * b;
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

#include "kernels/stencil/cpu/vector_variant.h"

#if defined CONV_ISA_SSE41
CONV_CPU_VECTOR_VARIANT(cpu_sse41, CONV_CPU_SSE41, "two taps per instruction, 16 bytes");
#elif defined CONV_ISA_AVX2
CONV_CPU_VECTOR_VARIANT(cpu_avx2, CONV_CPU_AVX2,
                        "32 bytes per instruction, fused multiply-add for real filters");
#elif defined CONV_ISA_AVX512
CONV_CPU_VECTOR_VARIANT(cpu_avx512, CONV_CPU_AVX512, "64 bytes per instruction");
#else
CONV_CPU_VECTOR_VARIANT(cpu_vnni, CONV_CPU_AVX512 | CONV_CPU_VNNI, "four taps per instruction");
#endif

#endif
