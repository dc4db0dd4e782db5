// SPDX-License-Identifier: MIT
// Rounds sums to samples, a vector at a time, without a division. The proofs are in rounding.c.
#pragma once

#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/cpu/vector.h"

// X(name, division) for each of enum conv_cpu_division, so that it is a constant where sums are
// rounded.
#define ROUND_BY_SIGNED(X, name)                                                                   \
    X(name, BY_1_SIGNED)                                                                           \
    X(name, BY_POWER_SIGNED)                                                                       \
    X(name, BY_ODD_SIGNED)
#define ROUND_BY_ALL(X, name)                                                                      \
    ROUND_BY_SIGNED(X, name)                                                                       \
    X(name, BY_1)                                                                                  \
    X(name, BY_POWER)                                                                              \
    X(name, BY_ODD)                                                                                \
    X(name, BY_ANY)

// Rounds sums modulo 2^16; join_u16 clamps the result to 8 bits.
ALWAYS_INLINE vec_u16 round_u16(vec_u16 sum, const struct conv_cpu_rounding *r,
                                enum conv_cpu_division division)
{
    const vec_u16 zero = {0};
    if (division == CONV_CPU_BY_1_SIGNED)
        return sum;
    if (division == CONV_CPU_BY_POWER_SIGNED)
        return (vec_u16)((vec_i16)(sum + (sum >> (uint16_t)r->log & 1)) >> (int16_t)r->log);
    if (division == CONV_CPU_BY_ODD_SIGNED)
        return scale_i16(sum, r->factor);
    vec_u16 up = sub_u16(sum, zero + (uint16_t)r->base);
    if (division == CONV_CPU_BY_1)
        return min_u16(up, zero + (uint16_t)r->limit);
    if (division == CONV_CPU_BY_POWER)
        return (up + (up >> (uint16_t)r->log & 1)) >> (uint16_t)r->log;
    vec_u16 quotient = divide_u16(up, (uint16_t)r->factor, r->shift);
    if (division == CONV_CPU_BY_ANY) {
        vec_u16 tie = (vec_u16)(quotient * (uint16_t)r->divisor == up);
        quotient -= quotient & tie & 1;
    }
    return quotient;
}

// A float beyond 2^23 has no fraction: adding this rounds to the nearest integer, half to even, and
// leaves it in the low bits.
#define INTEGER_FLOATS 12582912.0f // 1.5 * 2^23

ALWAYS_INLINE vec_i32 nearest_i32(vec_f32 v)
{
    vec_f32 shifted = v + INTEGER_FLOATS;
    return (vec_i32)shifted - 0x4b400000;
}

// Rounds and clamps sums modulo 2^32.
ALWAYS_INLINE vec_u32 round_u32(vec_u32 sum, const struct conv_cpu_rounding *r,
                                enum conv_cpu_division division)
{
    const vec_i32 zero = {0};
    vec_i32 clamped = min_i32(max_i32((vec_i32)sum, zero), zero + r->limit);
    if (division <= CONV_CPU_BY_1)
        return (vec_u32)clamped;
    if (division == CONV_CPU_BY_POWER)
        return (vec_u32)((clamped + (r->half - 1) + (clamped >> r->log & 1)) >> r->log);
    vec_i32 nearest = nearest_i32(__builtin_convertvector(clamped, vec_f32) * r->reciprocal);
    if (division == CONV_CPU_BY_ODD)
        return (vec_u32)nearest;
    vec_i32 twice = (clamped - nearest * r->divisor) * 2, odd = nearest & 1;
    return (vec_u32)(nearest - (twice + odd > r->divisor) + (twice - odd < -r->divisor));
}
