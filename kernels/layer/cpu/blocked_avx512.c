// SPDX-License-Identifier: MIT
// AVX-512: 16 outputs per vector, 32 registers.
#ifdef __x86_64__
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

#include "kernels/layer/cpu/blocked_image.h"

CONV_LAYER_BLOCKED(cpu_layer_avx512, CONV_CPU_AVX512, "tiles of 16 to 128 outputs in registers");

#endif
