// SPDX-License-Identifier: MIT
// The constants of round.h, and the proofs that it gives the defined samples.
#include <stdlib.h>

#include "kernels/stencil/cpu/cpu_internal.h"

// Bounds of N, a sum plus the bias: lo <= N <= hi for any image.
struct range {
    int64_t lo, hi;
};

static struct range sum_range(const struct conv_stencil *stencil)
{
    struct range range = {stencil->bias, stencil->bias};
    for (int i = 0; i < stencil->width * stencil->height; i++)
        *(stencil->icoef[i] < 0 ? &range.lo : &range.hi) +=
            (int64_t)stencil->icoef[i] * stencil->max;
    return range;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool is_power(int64_t n)
{
    return (n & (n - 1)) == 0;
}

static int ceil_log2(int64_t n)
{
    int log = 0;
    while ((int64_t)1 << log < n)
        log++;
    return log;
}

// With odd d and sums that fit 16 bits with their sign, one instruction divides and rounds:
// floor(N * factor / 2^15 + 1/2), factor = 2^15 / d rounded. With e = |factor * d - 2^15|,
// N * factor / 2^15 is N * e / (d * 2^15) away from N / d. N / d + 1/2 = (2N + d) / (2d) has an odd
// numerator, so it is at least 1 / (2d) away from every integer, and its floor, N / d rounded, does
// not change if N * e < 2^14. That is tested up to N = 255 d. The result grows with N, so it is at
// most 0 for N < 0, and at least 255 beyond 255 d; joining samples clamps it.
static bool round_odd_signed(struct conv_cpu_rounding *rounding, const struct conv_stencil *stencil,
                             struct range range)
{
    int64_t d = stencil->divisor, factor = ((1 << 15) + d / 2) / d;
    if (d % 2 == 0 || d == 1 || range.lo < INT16_MIN || range.hi > INT16_MAX ||
        smaller(255 * d, range.hi) * llabs(factor * d - (1 << 15)) >= 1 << 14)
        return false;
    uint32_t start = (uint16_t)stencil->bias;
    *rounding = (struct conv_cpu_rounding){
        .division = CONV_CPU_BY_ODD_SIGNED,
        .start = start | start << 16,
        .divisor = (int32_t)d,
        .factor = (uint16_t)factor,
    };
    return true;
}

// The kernel keeps N + base + more modulo 2^16. base = max(0, -lo) makes that non-negative, so it
// is the number itself if hi + base + more < 2^16, even if intermediate sums wrapped. Subtracting
// base, with 0 for negative results, yields up = max(N + more, 0). With half = floor(d / 2):
//   d = 2^k, k > 0: more = half - 1. With b the lowest bit of floor(up / d), floor((up + b) / d) is
//   N / d rounded half to even: with N = q * d + f, up is q * d + f + half - 1. Where f < half it
//   carries neither with nor without b; where f > half it has carried already and cannot again; at
//   f = half only b makes it carry, and b is the lowest bit of q.
//   Else more = half, and floor(up / d) is N / d rounded half up; for even d a tie is recognised by
//   up = quotient * d and moved back to the even side.
// N < 0 gives up < half, so 0. All of it stays below 2^16 if hi + base + half does. Quotients by 2
// or more stay below 2^15, and joining samples clamps values above 255 to 255 and negative ones to
// 0. So with d = 1 no operation is needed for sums that fit 16 bits with their sign (base = 0);
// others are clamped to 255 first. With d = 2^k and such sums, up = N + more without a clamp and an
// arithmetic shift suffice: N < 0 implies up + b < half, so at most 0.
//
// The division is a multiplication (Granlund and Montgomery, 1994): with l = ceil(log2 d) and
// factor = ceil(2^(15+l) / d), which is below 2^16, factor * d = 2^(15+l) + e with 0 <= e < d. up *
// factor / 2^(15+l) exceeds up / d by up * e / (d * 2^(15+l)), less than 1 / d, the least
// distance to the next integer, if up * e < 2^(15+l). That always holds for d <= 128; it is tested
// for the rest with N up to 255 d, since above that no quotient is below 255 and none equal to 255
// is mistaken for a tie.
bool conv_cpu_rounding_narrow(struct conv_cpu_rounding *rounding,
                              const struct conv_stencil *stencil)
{
    int64_t d = stencil->divisor, half = d / 2;
    if (!stencil->exact || stencil->depth != 8 || d > 65535)
        return false;
    struct range range = sum_range(stencil);
    if (round_odd_signed(rounding, stencil, range))
        return true;
    bool is_signed = is_power(d) && range.lo >= INT16_MIN && range.hi + half <= INT16_MAX;
    int64_t base = range.lo < 0 && !is_signed ? -range.lo : 0;
    if (base + half > 65535 || range.hi + base + half > 65535)
        return false;
    int64_t limit = smaller(255 * d, range.hi > 0 ? range.hi : 0);
    int log = ceil_log2(d);
    int64_t unit = (int64_t)1 << (15 + log), factor = (unit + d - 1) / d;
    if (!is_power(d) && (limit + half) * (factor * d - unit) >= unit)
        return false;
    // Two lanes of 16 bits.
    uint32_t start = (uint16_t)(stencil->bias + base +
                                (d == 1        ? 0
                                 : is_power(d) ? half - 1
                                               : half));
    *rounding = (struct conv_cpu_rounding){
        .division = d == 1        ? is_signed ? CONV_CPU_BY_1_SIGNED : CONV_CPU_BY_1
                    : is_signed   ? CONV_CPU_BY_POWER_SIGNED
                    : is_power(d) ? CONV_CPU_BY_POWER
                    : d % 2 != 0  ? CONV_CPU_BY_ODD
                                  : CONV_CPU_BY_ANY,
        .start = start | start << 16,
        .base = (int32_t)base,
        .limit = (int32_t)limit,
        .half = (int32_t)half,
        .log = log,
        .divisor = (int32_t)d,
        .factor = (uint16_t)factor,
        .shift = (uint16_t)(log > 0 ? log - 1 : 0),
    };
    return true;
}

// The kernel keeps N modulo 2^32, which is N itself, given fits_int32; clamped is min(max(N, 0),
// max * d). Divisors that are powers of two: as above. Else, with P = fl(fl(clamped) * fl(1 / d)):
// four roundings to 24 bits (d's too) move the quotient, at most max, by less than max * 2^-21,
// below 1/32 at 16 bits. nearest is P rounded, so its distance from N / d is below 1/2 + 1/32, and
// the remainder clamped - nearest * d shows which neighbour is right: the next one if the remainder
// is more than d / 2, or exactly d / 2 and nearest is odd; likewise below. Twice the remainder
// needs 2 * (1/2 + 1/32) * d < 2^31.
//   Odd d have no ties, and N / d is at least 1 / (2d) away from a half. If N is below 2^24 it is a
//   float itself, and the other two roundings (d is one too) move the quotient by less than max *
//   2^-23: too little for d <= 2^(22-B), B the bits of a sample, so the remainder is not needed.
bool conv_cpu_rounding_wide(struct conv_cpu_rounding *rounding, const struct conv_stencil *stencil)
{
    int64_t d = stencil->divisor, max = stencil->max;
    if (!stencil->fits_int32 || d > 1 << 30)
        return false;
    int64_t limit = smaller(max * d, INT32_MAX - d);
    bool plain_odd = d % 2 != 0 && limit < 1 << 24 && d <= 1 << (22 - stencil->depth);
    *rounding = (struct conv_cpu_rounding){
        .division = d == 1        ? CONV_CPU_BY_1
                    : is_power(d) ? CONV_CPU_BY_POWER
                    : plain_odd   ? CONV_CPU_BY_ODD
                                  : CONV_CPU_BY_ANY,
        .start = (uint32_t)stencil->bias,
        .limit = (int32_t)limit,
        .half = (int32_t)(d / 2),
        .log = ceil_log2(d),
        .divisor = (int32_t)d,
        .reciprocal = 1.0f / (float)d,
    };
    return true;
}
