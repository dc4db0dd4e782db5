// SPDX-License-Identifier: MIT
// Any processor, without a fused multiply-add instruction: 4 outputs at a time in float64.
#define LANES 4
#define PUT_SOME(p, x, n) put_some(p, x, n)
#define GET_SOME(p, n) get_some(p, n)
#define SCORE 20
#define MOST_MAPS 2
#define VECTORS_FOR(maps) 2
#define FMA(a, b, c) fused(a, b, c)

#include <stdint.h>

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

#include "kernels/layer/cpu/blocked_image.h"

CONV_LAYER_BLOCKED(cpu_layer_portable, 0, "tiles of 4 to 16 outputs, sums in float64");
