// SPDX-License-Identifier: MIT
// Vectors of VECTOR bytes in the vector extension of GCC and Clang, which become SSE, AVX, AVX-512
// or NEON depending on the including file's options. The kernels of direct.h, dots.h and
// floats.h are written once with them; the including file defines the operations that the extension
// lacks:
//   dot_pairs(sum, a, coefs)  sum + a.b0 * coefs.b0 + a.b1 * coefs.b1, modulo 2^16 a lane
//   dot_quads(sum, a, coefs)  the same with four products a lane of 32 bits
//   dot_words(sum, a, coefs)  sum + a.w0 * coefs.w0 + a.w1 * coefs.w1, signed, modulo 2^32 a lane
//   min_u16(a, b), sub_u16(a, b): the difference, or 0 if that is negative
//   divide_u16(a, factor, shift): a * factor >> 16 >> shift
//   scale_i16(a, factor): signed a * factor / 2^15, rounded half up
//   join_u16(even, odd): a vector whose bytes 2i and 2i + 1 are lane i of each, clamped to 0..255
//   min_i32(a, b), max_i32(a, b)
//   sqrt_f32(a): correctly rounded
//   load_f32_as_f64(p): half a vector of floats as a vector of doubles
//   PAIRS: whether dot_pairs is one instruction
//   QUADS: how dot_quads is computed (enum conv_cpu_quads)
//   add_tap(sum, tap, coef): sum + coef * tap, fused; if HAVE_FMA is 0, for exact values only
//   add_product(sum, a, b): sum + a * b in float64, fused; likewise
//   stream(p, v): a store to an aligned address, past the caches if there is an instruction for it
// Bytes b of a are unsigned, except for CONV_CPU_QUADS_SIGNED; those of coefs are signed.
#pragma once

#include <stdint.h>
#include <string.h>

// ALWAYS_INLINE: for functions that are compiled once for each set of constant arguments. Under a
// sanitizer (CONV_COMPILE_ONCE) the arguments are variables and each function is compiled once:
// clang takes 2.7 s of processor time for cpu_portable instead of 17, at the same speed of the
// checks, and each access is checked in either case. Tiles of layers are compiled in few sizes.
#ifdef CONV_COMPILE_ONCE
#define ALWAYS_INLINE static inline __attribute__((unused))
#else
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#endif

typedef uint8_t vec_u8 __attribute__((vector_size(VECTOR)));
typedef uint16_t vec_u16 __attribute__((vector_size(VECTOR)));
typedef int16_t vec_i16 __attribute__((vector_size(VECTOR)));
typedef uint32_t vec_u32 __attribute__((vector_size(VECTOR)));
typedef int32_t vec_i32 __attribute__((vector_size(VECTOR)));
typedef float vec_f32 __attribute__((vector_size(VECTOR)));
typedef float vec_f32_half __attribute__((vector_size(VECTOR / 2)));
typedef double vec_f64 __attribute__((vector_size(VECTOR)));
#define FLOAT_LANES (VECTOR / (int)sizeof(float))
#define DOUBLE_LANES (VECTOR / (int)sizeof(double))

// Keeps the compiler from reordering the computation of `v`: GCC 12 otherwise keeps more products
// of long sums than there are registers, and spills them.
#if defined __x86_64__
#define SETTLE(v) __asm__("" : "+v"(v))
#elif defined __aarch64__
#define SETTLE(v) __asm__("" : "+w"(v))
#else
#define SETTLE(v) ((void)(v))
#endif

ALWAYS_INLINE vec_u8 load_u8(const uint8_t *p)
{
    vec_u8 v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE vec_f32 load_f32(const float *p)
{
    vec_f32 v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE vec_f64 load_f64(const double *p)
{
    vec_f64 v;
    memcpy(&v, p, sizeof v);
    return v;
}

// Copies of a number: `+` would be an addition, as -0 + 0 is not -0.
ALWAYS_INLINE vec_f32 every_f32(float value)
{
    return value - (vec_f32){0};
}

ALWAYS_INLINE vec_f64 every_f64(double value)
{
    return value - (vec_f64){0};
}
