// SPDX-License-Identifier: MIT
// The vectors of blocked_image.h and planes.h, and the variants of each instruction set:
// compiled once for each (CMakeLists.txt), which CONV_ISA_... names, and once for any processor.
#include <stdint.h>

#if defined CONV_ISA_AVX2 // and FMA3: 8 outputs per vector, 16 registers
#include <immintrin.h>

// All bits of the elements whose bit is set.
static inline __m256i chosen(int bits)
{
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), each), each);
}

#define VARIANTS CONV_LAYER_VARIANTS(avx2, CONV_CPU_AVX2)
#define LANES 8
#define FMA(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define PUT_SOME(p, x, n)                                                                          \
    ((n) < LANES ? _mm256_maskstore_ps(p, chosen((1 << (n)) - 1), (__m256)(x)) : put(p, x))
#define GET_CHOSEN(p, bits) ((bits) == 0xff ? load(p) : (vec)_mm256_maskload_ps(p, chosen(bits)))
#define SCORE 40
#define MOST_MAPS 6
// At most 12 sums, and 4 registers for weights and samples.
#define VECTORS_FOR(maps)                                                                          \
    ((maps) == 1 ? 8 : (maps) == 2 ? 6 : (maps) == 3 ? 4 : (maps) == 4 ? 3 : 2)
#define ACROSS_OUTPUTS(vectors) (12 / (vectors))
#define PLANE_SUMS 11

#elif defined CONV_ISA_AVX512 // 16 outputs per vector, 32 registers
#include <immintrin.h>

#define VARIANTS CONV_LAYER_VARIANTS(avx512, CONV_CPU_AVX512)
#define LANES 16
#define FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define PUT_SOME(p, x, n)                                                                          \
    _mm512_mask_storeu_ps(p, (__mmask16)((n) < LANES ? (1 << (n)) - 1 : 0xffff), (__m512)(x))
#define GET_CHOSEN(p, bits) ((vec)_mm512_maskz_loadu_ps((__mmask16)(bits), p))
#define SCORE 50
#define MOST_MAPS 8
// At most 28 sums, and 3 to 4 registers for weights and samples. On two units, a tap takes half as
// many cycles as it has sums; its loads take fewer cycles, although those of samples cross cache
// lines.
#define VECTORS_FOR(maps)                                                                          \
    ((maps) <= 3 ? 8 : (maps) == 4 ? 6 : (maps) == 5 ? 5 : (maps) == 6 ? 4 : 3)
#define ACROSS_OUTPUTS(vectors) ((vectors) == 1 ? 12 : 14)
#define PLANE_SUMS 24

#elif defined CONV_ISA_NEON // 64-bit ARM: 4 outputs per vector, 32 registers
#include <arm_neon.h>

#define VARIANTS CONV_LAYER_VARIANTS(neon, CONV_CPU_NEON)
#define LANES 4
#define FMA(a, b, c) ((vec)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define SCORE 40
#define MOST_MAPS 6
#define VECTORS_FOR(maps) ((maps) <= 3 ? 8 : (maps) == 4 ? 6 : (maps) == 5 ? 5 : 4)
#define ACROSS_OUTPUTS(vectors) ((vectors) == 1 ? 12 : 14)
#define PLANE_SUMS 24

#else // no fused multiply-add instruction: 4 outputs at a time in float64
#define VARIANTS CONV_LAYER_VARIANTS(portable, 0)
#define LANES 4
#define SCORE 20
#define MOST_MAPS 2
#define VECTORS_FOR(maps) 2
#define ACROSS_OUTPUTS(vectors) ((vectors) == 1 ? 4 : 2)
#define PLANE_SUMS 8
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

#ifdef CONV_COMPILE_ONCE // kernels/stencil/cpu/vector.h
#undef MOST_MAPS
#undef VECTORS_FOR
#undef ACROSS_OUTPUTS
#define MOST_MAPS 3
#define VECTORS_FOR(maps) 2
#define ACROSS_OUTPUTS(vectors) 3
#endif
#include "kernels/layer/cpu/blocked_image.h"
#include "kernels/layer/cpu/planes.h"

#define CONV_LAYER_VARIANTS(isa, needed)                                                           \
    CONV_LAYER_VARIANT(cpu_layer_plane_##isa, planes, needed, "tiles of rows of a map");           \
    CONV_LAYER_VARIANT(cpu_layer_##isa, blocked, needed, "tiles of outputs in registers");

VARIANTS
