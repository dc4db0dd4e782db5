// SPDX-License-Identifier: MIT
// Vectors of VECTOR bytes in the compiler's own notation (GCC, Clang), which makes SSE, AVX,
// AVX-512 or NEON of them as the file that includes this is compiled. The kernels of pairs.h and
// floats.h are written once in it; the few operations that it cannot say are given by the including
// file:
//   add_pair(sum, pair, coef)  sum + coef.low * pair.low + coef.high * pair.high, modulo 2^16 a
//   lane min_u16(a, b), max_u16(a, b) divide_u16(a, factor, shift)  a * factor >> 16 >> shift
//   add_tap(sum, tap, coef)    sum + coef * tap: fused, or HAVE_FMA is 0 and only exact values come
#ifndef CONV_KERNELS_CPU_VECTOR_H
#define CONV_KERNELS_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

typedef uint16_t vec_u16 __attribute__((vector_size(VECTOR)));
typedef uint8_t vec_u8_half __attribute__((vector_size(VECTOR / 2)));
typedef float vec_f32 __attribute__((vector_size(VECTOR)));
typedef float vec_f32_half __attribute__((vector_size(VECTOR / 2)));
typedef double vec_f64 __attribute__((vector_size(VECTOR)));

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE vec_u16 load_u16(const uint16_t *p)
{
    vec_u16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

// The low bytes.
ALWAYS_INLINE void store_u8(uint8_t *p, vec_u16 v)
{
    vec_u8_half bytes = __builtin_convertvector(v, vec_u8_half);
    memcpy(p, &bytes, sizeof bytes);
}

ALWAYS_INLINE vec_f32 load_f32(const float *p)
{
    vec_f32 v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE vec_f64 load_f32_as_f64(const float *p)
{
    vec_f32_half v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vec_f64);
}

#endif
