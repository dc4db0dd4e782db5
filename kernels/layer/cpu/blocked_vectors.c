// SPDX-License-Identifier: MIT
// The vectors of blocked_image.h, and a variant of each instruction set: compiled once for each
// (CMakeLists.txt), which CONV_ISA_... names, and once for any processor.
#include <stdint.h>

#if defined CONV_ISA_AVX2 // and FMA3: 8 outputs per vector, 16 registers
#include <immintrin.h>

// All bits of the first n elements.
static inline __m256i first_lanes(int n)
{
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones + 8 - n));
}

#define LANES 8
#define FMA(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define PUT_SOME(p, x, n)                                                                          \
    ((n) < LANES ? _mm256_maskstore_ps(p, first_lanes(n), (__m256)(x)) : put(p, x))
#define GET_SOME(p, n) ((vec)_mm256_maskload_ps(p, first_lanes(n)))
#define EVENS(a, b)                                                                                \
    ((vec)_mm256_castpd_ps(_mm256_permute4x64_pd(                                                  \
        _mm256_castps_pd(_mm256_shuffle_ps((__m256)(a), (__m256)(b), 0x88)), 0xd8)))
#define SCORE 40
#define MOST_MAPS 6
// At most 12 sums, and 4 registers for weights and samples.
#define VECTORS_FOR(maps)                                                                          \
    ((maps) == 1 ? 8 : (maps) == 2 ? 6 : (maps) == 3 ? 4 : (maps) == 4 ? 3 : 2)

#elif defined CONV_ISA_AVX512 // 16 outputs per vector, 32 registers
#include <immintrin.h>

// Elements 16 - n to 31 - n of two vectors.
static inline __m512i first_to_last(int n)
{
    const __m512i ascending =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(ascending, _mm512_set1_epi32(16 - n));
}

#define LANES 16
#define FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define PUT_SOME(p, x, n)                                                                          \
    _mm512_mask_storeu_ps(p, (__mmask16)((n) < LANES ? (1 << (n)) - 1 : 0xffff), (__m512)(x))
#define GET_SOME(p, n) ((vec)_mm512_maskz_loadu_ps((__mmask16)((1 << (n)) - 1), p))
#define EVENS(a, b)                                                                                \
    ((vec)_mm512_permutex2var_ps(                                                                  \
        (__m512)(a), _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), \
        (__m512)(b)))
#define STREAM(p, x) _mm512_stream_ps(p, (__m512)(x))
#define LAST_OF(a, b, n) ((vec)_mm512_permutex2var_ps((__m512)(a), first_to_last(n), (__m512)(b)))
#define PUT_RANGE(p, x, first, n)                                                                  \
    _mm512_mask_storeu_ps(p, (__mmask16)(((1u << (n)) - 1) << (first)), (__m512)(x))
#define FENCE() _mm_sfence()
#define SCORE 50
#define MOST_MAPS 8
// At most 28 sums, and 3 to 4 registers for weights and samples. On two units, a tap takes half as
// many cycles as it has sums; its loads take fewer cycles, although those of samples cross cache
// lines.
#define VECTORS_FOR(maps)                                                                          \
    ((maps) <= 3 ? 8 : (maps) == 4 ? 6 : (maps) == 5 ? 5 : (maps) == 6 ? 4 : 3)

#elif defined CONV_ISA_NEON // 64-bit ARM: 4 outputs per vector, 32 registers
#include <arm_neon.h>

#define LANES 4
#define FMA(a, b, c) ((vec)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define PUT_SOME(p, x, n) put_some(p, x, n)
#define GET_SOME(p, n) get_some(p, n)
#define EVENS(a, b) ((vec)vuzp1q_f32((float32x4_t)(a), (float32x4_t)(b)))
#define SCORE 40
#define MOST_MAPS 6
#define VECTORS_FOR(maps) ((maps) <= 3 ? 8 : (maps) == 4 ? 6 : (maps) == 5 ? 5 : 4)

#else // no fused multiply-add instruction: 4 outputs at a time in float64
#define LANES 4
#define PUT_SOME(p, x, n) put_some(p, x, n)
#define GET_SOME(p, n) get_some(p, n)
#define SCORE 20
#define MOST_MAPS 2
#define VECTORS_FOR(maps) 2
#define FMA(a, b, c) fused(a, b, c)

typedef double vec_f64 __attribute__((vector_size(32)));
typedef int64_t vec_i64 __attribute__((vector_size(32)));
typedef uint64_t vec_u64 __attribute__((vector_size(32)));
typedef float vec_f32 __attribute__((vector_size(16)));

// The product of two float32 is exact in float64. The sum is rounded to odd: if it is inexact, to
// the neighbour whose last bit is odd. Rounding that to float32, with less than half as many
// digits, gives the exact sum rounded once (Boldo and Melquiond, "Emulation of FMA and correctly
// rounded sums", 2008). The error of the sum is Knuth's TwoSum; it is NaN for sums that are not
// finite.
static inline __attribute__((always_inline)) vec_f32 fused(vec_f32 a, vec_f32 b, vec_f32 c)
{
    vec_f64 product = __builtin_convertvector(a, vec_f64) * __builtin_convertvector(b, vec_f64);
    vec_f64 addend = __builtin_convertvector(c, vec_f64);
    vec_f64 sum = product + addend, rest = sum - product;
    vec_f64 error = (product - (sum - rest)) + (addend - rest);
    vec_u64 bits = (vec_u64)sum;
    vec_i64 inexact = (error < 0) | (error > 0);
    vec_u64 even = (bits & 1) - 1;
    vec_u64 towards = 1 - (((bits ^ (vec_u64)error) >> 63) << 1); // 1 or -1
    bits += towards & even & (vec_u64)inexact;
    return __builtin_convertvector((vec_f64)bits, vec_f32);
}
#endif

#include "kernels/layer/cpu/blocked_image.h"

#if defined CONV_ISA_AVX2
CONV_LAYER_BLOCKED(cpu_layer_avx2, CONV_CPU_AVX2, "tiles of 8 to 64 outputs in registers");
#elif defined CONV_ISA_AVX512
CONV_LAYER_BLOCKED(cpu_layer_avx512, CONV_CPU_AVX512, "tiles of 16 to 128 outputs in registers");
#elif defined CONV_ISA_NEON
CONV_LAYER_BLOCKED(cpu_layer_neon, CONV_CPU_NEON, "tiles of 4 to 32 outputs in registers");
#else
CONV_LAYER_BLOCKED(cpu_layer_portable, 0, "tiles of 4 to 16 outputs, sums in float64");
#endif
