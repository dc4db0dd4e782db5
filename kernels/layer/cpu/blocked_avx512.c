// SPDX-License-Identifier: MIT
// AVX-512: 16 outputs per vector, 32 registers.
#ifdef __x86_64__
#include <immintrin.h>

#define LANES 16
#define FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define PUT_SOME(p, x, n)                                                                          \
    _mm512_mask_storeu_ps(p, (__mmask16)((n) < LANES ? (1 << (n)) - 1 : 0xffff), (__m512)(x))
#define GET_SOME(p, n) ((vec)_mm512_maskz_loadu_ps((__mmask16)((1 << (n)) - 1), p))
#define SCORE 50
#define MOST_MAPS 8
// At most 28 sums, and 3 to 4 registers for weights and samples. A tap takes as many cycles as half
// the sums on two units; its loads, of which those of samples cross cache lines, take fewer.
#define VECTORS_FOR(maps)                                                                          \
    ((maps) <= 3 ? 8 : (maps) == 4 ? 6 : (maps) == 5 ? 5 : (maps) == 6 ? 4 : 3)

#include "kernels/layer/cpu/blocked_tile.h"

CONV_LAYER_BLOCKED(cpu_layer_avx512, CONV_CPU_AVX512, "tiles of 16 to 128 outputs in registers");

#endif
