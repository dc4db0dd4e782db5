// SPDX-License-Identifier: MIT
// SSE4.1: two 8-bit taps per pmaddubsw, two 16-bit taps per pmaddwd, 16 bytes at a time; 3.3 times
// as fast as SSE2 on emboss (one core of an EPYC 9004, planes in cache, as for all figures in this
// folder). Without a fused multiply-add it cannot do real filters.
#ifdef __x86_64__
#include <smmintrin.h>

#define VECTOR 16
#define QUAD_VECTORS 1
#define HAVE_FMA 0
#define QUADS CONV_CPU_QUADS_SLOW
#define SCORE 30
#define OP(name) _mm_##name
#define STREAM _mm_stream_si128
#define EVERY_128(v) (v)
typedef __m128i vec_any;

#include "kernels/stencil/cpu/x86.h"

#include "kernels/stencil/cpu/vector_variant.h"

CONV_CPU_VECTOR_VARIANT(cpu_sse41, CONV_CPU_SSE41, "two taps per instruction, 16 bytes");

#endif
