// SPDX-License-Identifier: MIT
// AVX-512: 64 bytes per instruction and twice the registers. Zen 4 executes each in two halves and
// is 5 to 20 % faster than with AVX2.
#ifdef __x86_64__
#include <immintrin.h>

#define VECTOR 64
#define QUAD_VECTORS 2
#define HAVE_FMA 1
#define QUADS CONV_CPU_QUADS_SLOW
#define SCORE 50
#define OP(name) _mm512_##name
#define STREAM _mm512_stream_si512
#define EVERY_128(v) _mm512_broadcast_i32x4(v)
typedef __m512i vec_any;

#include "kernels/stencil/cpu/x86.h"

#include "kernels/stencil/cpu/vector_variant.h"

CONV_CPU_VECTOR_VARIANT(cpu_avx512, CONV_CPU_AVX512, "64 bytes per instruction");

#endif
