// SPDX-License-Identifier: MIT
// The operations of tiles on vectors other than additions: loads, activations, stores. In the
// compiler's vector extension, for any number of LANES; each operation rounds as the scalar one
// does.
#ifndef CONV_KERNELS_LAYER_CPU_BLOCKED_VECTOR_H
#define CONV_KERNELS_LAYER_CPU_BLOCKED_VECTOR_H

#include <string.h>

#include "kernels/layer/layer.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t vec_i32 __attribute__((vector_size(4 * LANES)));
typedef uint32_t vec_u32 __attribute__((vector_size(4 * LANES)));
typedef uint16_t vec_u16 __attribute__((vector_size(2 * LANES)));
typedef float vec_loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

ALWAYS_INLINE vec load(const float *p)
{
    return *(const vec_loose *)p;
}

ALWAYS_INLINE vec splat(float value)
{
    return value - (vec){0}; // -0 stays -0
}

ALWAYS_INLINE vec choose(vec_i32 which, vec a, vec b)
{
    return (vec)((which & (vec_i32)a) | (~which & (vec_i32)b));
}

ALWAYS_INLINE vec magnitude(vec x)
{
    return (vec)((vec_i32)x & 0x7fffffff);
}

// The function in activation.h, operation by operation.
ALWAYS_INLINE vec tanh_of(vec x)
{
    vec a = magnitude(x), z = x * x;
    vec p = FMA(splat(-0.006113188806921244f), z, splat(0.021010080352425575f));
    p = FMA(p, z, splat(-0.053854070603847504f));
    p = FMA(p, z, splat(0.13332794606685638f));
    p = FMA(p, z, splat(-0.333333283662796f));
    vec low = FMA(p * z, x, x);

    vec inside = choose(a <= 9.1f, a, splat(1)), t = 2 * inside;
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
    vec n = (t * 1.4426950216293335f + 0x1.8p23f) - 0x1.8p23f;
    vec r = FMA(n, splat(-0.693359375f), t);
    r = FMA(n, splat(0.00021219444170128554f), r);
    vec q = FMA(splat(0.0013941109646111727f), r, splat(0.008363175205886364f));
    q = FMA(q, r, splat(0.04166637361049652f));
    q = FMA(q, r, splat(0.16666576266288757f));
    q = FMA(q, r, splat(0.5f));
    vec e = FMA(q * r, r, r) + 1;
    vec power = (vec)((__builtin_convertvector(n, vec_i32) + 127) << 23);
    vec high = 1 - 2 / FMA(e, power, splat(1));

    high = choose(a > 9.1f, splat(1), high);
    high = (vec)((vec_i32)high | ((vec_i32)x & (int32_t)0x80000000));
    return choose(x != x, x, choose(a < 0.625f, low, high));
}

ALWAYS_INLINE vec relu_of(vec x)
{
    return choose(x < 0, (vec){0}, x);
}

ALWAYS_INLINE vec activate(enum conv_activation activation, vec x)
{
    switch (activation) {
    case CONV_ACTIVATION_RELU:
        return relu_of(x);
    case CONV_ACTIVATION_TANH:
        return tanh_of(x);
    case CONV_ACTIVATION_ABS:
        return magnitude(x);
    case CONV_ACTIVATION_NONE:
        break;
    }
    return x;
}

// tensor/half.h's conversion.
ALWAYS_INLINE vec_u16 half_of(vec x)
{
    vec_u32 sign = (vec_u32)x >> 16 & 0x8000, bits = (vec_u32)x & 0x7fffffff;
    vec_u32 normal = ((bits + 0xfff + (bits >> 13 & 1)) >> 13) - ((127 - 15) << 10);
    vec_u32 small = (vec_u32)((vec)bits + 0.5f) - 0x3f000000;
    vec half = choose((vec_i32)bits < 0x38800000, (vec)small, (vec)normal);
    half = choose((vec_i32)bits >= 0x477ff000, (vec)((vec_u32){0} + 0x7c00), half);
    half = choose((vec_i32)bits > 0x7f800000, (vec)((vec_u32){0} + 0x7e00), half);
    return __builtin_convertvector((vec_u32)half | sign, vec_u16);
}

ALWAYS_INLINE void put(float *dst, vec x)
{
    *(vec_loose *)dst = x;
}

// GET_SOME and PUT_SOME for instruction sets without such an instruction.
ALWAYS_INLINE vec get_some(const float *src, int n)
{
    vec x = {0};
    memcpy(&x, src, sizeof *src * (size_t)n);
    return x;
}

ALWAYS_INLINE void put_some(float *dst, vec x, int n)
{
    if (n < LANES)
        memcpy(dst, &x, sizeof *dst * (size_t)n);
    else
        put(dst, x);
}

// Stores x as the elements of dst from `first` on; dst has `count` elements.
ALWAYS_INLINE void store(uint8_t *dst, int first, int count, vec x, enum conv_element element)
{
    int n = count - first < LANES ? count - first : LANES;
    if (element == CONV_ELEMENT_F16) {
        vec_u16 half = half_of(x);
        memcpy(dst + 2 * first, &half, 2 * (size_t)n);
    } else {
        PUT_SOME((float *)(void *)dst + first, x, n);
    }
}

#endif
