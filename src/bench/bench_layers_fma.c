// SPDX-License-Identifier: MIT
// Float32 multiply-adds in registers alone: the speed that no layer can exceed on a core.
#include "base/features.h"
#include "bench/bench_layers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Independent sums: more than the latency (4 cycles) times the units (2) of any of these
// processors.
#define CHAINS 12

// A kernel of VECTOR, LANES floats wide; the sink keeps its loop from being optimised away. x / 2 +
// 1 converges to 2, so that no sum is subnormal.
#define FMA_LOOP(NAME, ATTRIBUTES, VECTOR, LANES, SET, FMADD, FIRST)                               \
    ATTRIBUTES static double NAME(double flops)                                                    \
    {                                                                                              \
        volatile float sink;                                                                       \
        VECTOR sums[CHAINS], factor = SET(0.5f), addend = SET(1.0f);                               \
        uint64_t turns = (uint64_t)(flops / (2.0 * CHAINS * (LANES))) + 1;                         \
        for (int i = 0; i < CHAINS; i++)                                                           \
            sums[i] = SET((float)i);                                                               \
        for (uint64_t turn = 0; turn < turns; turn++)                                              \
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sums[i] =                    \
                FMADD(sums[i], factor, addend);                                                    \
        for (int i = 0; i < CHAINS; i++)                                                           \
            sink = FIRST(sums[i]);                                                                 \
        (void)sink;                                                                                \
        return 2.0 * CHAINS * (LANES) * (double)turns;                                             \
    }

#if defined(__x86_64__)

FMA_LOOP(fma_avx512, __attribute__((target("avx512f"))), __m512, 16, _mm512_set1_ps,
         _mm512_fmadd_ps, _mm512_cvtss_f32)
FMA_LOOP(fma_avx2, __attribute__((target("avx2,fma"))), __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps,
         _mm256_cvtss_f32)
#define PLAIN_FMADD(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
FMA_LOOP(fma_plain, , __m128, 4, _mm_set1_ps, PLAIN_FMADD, _mm_cvtss_f32)

double conv_bench_layers_fma_cpu(double flops)
{
    unsigned have = conv_cpu_features();
    return have & CONV_CPU_AVX512 ? fma_avx512(flops)
           : have & CONV_CPU_AVX2 ? fma_avx2(flops)
                                  : fma_plain(flops);
}

#else

#if defined(__aarch64__)
#define NEON_FMADD(a, b, c) vfmaq_f32(c, a, b)
#define NEON_FIRST(a) vgetq_lane_f32(a, 0)
FMA_LOOP(fma_any, , float32x4_t, 4, vdupq_n_f32, NEON_FMADD, NEON_FIRST)
#else
#define SCALAR(a) (a)
#define SCALAR_FMADD(a, b, c) ((a) * (b) + (c))
FMA_LOOP(fma_any, , float, 1, SCALAR, SCALAR_FMADD, SCALAR)
#endif

double conv_bench_layers_fma_cpu(double flops)
{
    return fma_any(flops);
}

#endif
