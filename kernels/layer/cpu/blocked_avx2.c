// SPDX-License-Identifier: MIT
// AVX2 and FMA3: 8 outputs per vector, 16 registers.
#ifdef __x86_64__
#include <immintrin.h>
#include <stdint.h>

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
#define SCORE 40
#define MOST_MAPS 6
// At most 12 sums, and 4 registers for weights and samples.
#define VECTORS_FOR(maps)                                                                          \
    ((maps) == 1 ? 8 : (maps) == 2 ? 6 : (maps) == 3 ? 4 : (maps) == 4 ? 3 : 2)

#include "kernels/layer/cpu/blocked_image.h"

CONV_LAYER_BLOCKED(cpu_layer_avx2, CONV_CPU_AVX2, "tiles of 8 to 64 outputs in registers");

#endif
