// SPDX-License-Identifier: MIT
// Chooses the arithmetic for a stencil, with the proofs that it gives the defined bytes.
#include <stdlib.h>

#include "kernels/cpu/cpu.h"

// No sum, nor a part of one, has a larger magnitude on any picture.
static int64_t sum_bound(const struct conv_stencil *stencil)
{
    int64_t magnitude = 0;
    for (int i = 0; i < stencil->width * stencil->height; i++)
        magnitude += llabs(stencil->icoef[i]);
    return magnitude * stencil->max + llabs(stencil->bias);
}

// floats.h computes fl(N / d), one correctly rounded division (by a power of two: a multiplication
// without error), and rounds that half to even. With B bits a sample, N and d integers of at most P
// significant bits (24 or 53):
//   a tie N / d = k + 1/2 with k < 2^B has B + 1 bits, so the division is exact;
//   what is no tie is at least 1 / (2d) from one and moves by at most half a unit in the last
//   place, 2^(B-1-P) where N / d < 2^B; it stays on its side if d < 2^(P-B).
// Quotients beyond 2^B stay beyond max - 1/2, as division rounds monotonically, and are clamped.
static bool division_is_exact(const struct conv_stencil *stencil, int precision)
{
    int64_t divisor = stencil->divisor;
    bool power_of_two = (divisor & (divisor - 1)) == 0;
    return sum_bound(stencil) <= (int64_t)1 << precision &&
           (power_of_two || divisor < (int64_t)1 << (precision - stencil->depth));
}

// Then floats.h may compute fl(N * fl(1 / d)) as well. For d a power of two that is N / d. For an
// odd d there are no ties, and the error of two roundings, less than 2^(B-23), cannot bridge the
// distance of 1 / (2d) if d <= 2^(22-B).
bool conv_cpu_may_multiply(const struct conv_stencil *stencil)
{
    int64_t divisor = stencil->divisor;
    if (!stencil->exact || (divisor & (divisor - 1)) == 0)
        return true; // real filters have no divisor
    return divisor % 2 != 0 && divisor <= (int64_t)1 << (22 - stencil->depth);
}

enum conv_cpu_sums conv_cpu_plan(const struct conv_stencil *stencil)
{
    struct conv_cpu_rounding rounding;
    if (!stencil->exact)
        return CONV_CPU_FLOATS;
    if (conv_cpu_rounding_init(&rounding, stencil))
        return CONV_CPU_PAIRS;
    if (division_is_exact(stencil, 24))
        return CONV_CPU_FLOATS;
    return division_is_exact(stencil, 53) ? CONV_CPU_DOUBLES : CONV_CPU_NONE;
}

// The ring of pairs or floats, then the lines that it is filled from.
size_t conv_cpu_scratch(const struct conv_stencil *stencil, int width)
{
    (void)width;
    size_t rows = (size_t)stencil->height;
    return conv_cpu_plan(stencil) == CONV_CPU_PAIRS
               ? CONV_CPU_LINE * ((rows + 1) / 2 * sizeof(uint16_t) + 2)
               : CONV_CPU_LINE * (rows * sizeof(float) + sizeof(uint16_t));
}

// With N the sum and bias, lo <= N <= hi on any picture, half = floor(d / 2): the kernel keeps N +
// base + half modulo 2^16. base = max(0, -lo) makes that non-negative, so it is the number itself
// if hi + base + half < 2^16, however the sums on the way wrapped. Then up = max(N, 0) + half, at
// most 255 d + half where the result is 255, and the quotient floor(up / d) is N / d rounded half
// up; for even d a tie shows by up = quotient * d and goes back to the even side.
//
// The division is a multiplication (Granlund and Montgomery, 1994): with l = ceil(log2 d) and
// factor = ceil(2^(15+l) / d), which is below 2^16, factor * d = 2^(15+l) + e with 0 <= e < d. up *
// factor / 2^(15+l) exceeds up / d by up * e / (d * 2^(15+l)), less than the 1 / d that is missing
// to the next integer if up * e < 2^(15+l). Always so for d <= 128, and for powers of two; tested
// for the rest.
bool conv_cpu_rounding_init(struct conv_cpu_rounding *rounding, const struct conv_stencil *stencil)
{
    int64_t lo = stencil->bias, hi = stencil->bias, d = stencil->divisor;
    if (!stencil->exact || stencil->depth != 8 || d > 65535)
        return false;
    for (int i = 0; i < stencil->width * stencil->height; i++)
        *(stencil->icoef[i] < 0 ? &lo : &hi) += (int64_t)stencil->icoef[i] * 255;
    int64_t base = lo < 0 ? -lo : 0, half = d / 2;
    if (base + half > 65535 || hi + base + half > 65535)
        return false;
    int64_t limit = 255 * d + half, largest = (hi > 0 ? hi : 0) + half;
    if (limit > largest)
        limit = largest;

    int log = 0;
    while ((int64_t)1 << log < d)
        log++;
    int64_t unit = (int64_t)1 << (15 + log);
    int64_t factor = (unit + d - 1) / d;
    if (limit * (factor * d - unit) >= unit)
        return false;
    *rounding = (struct conv_cpu_rounding){
        .start = (uint16_t)(stencil->bias + base + half),
        .floor = (uint16_t)(base + half),
        .base = (uint16_t)base,
        .limit = (uint16_t)limit,
        .divisor = (uint16_t)d,
        .factor = (uint16_t)factor,
        .shift = (uint16_t)(log > 0 ? log - 1 : 0),
    };
    return true;
}

static int coef_at(const struct conv_stencil *stencil, int column, int row)
{
    return row < 0 || row >= stencil->height ? 0 : stencil->icoef[row * stencil->width + column];
}

// Takes from two coefficients what one step can do: 8 bits each, and no more than 128 together on
// one side of 0, since pmaddubsw saturates and 128 * 255 is the last multiple within 16 bits.
static uint16_t take_pair(int *first, int *second)
{
    int a = *first > 127 ? 127 : *first < -127 ? -127 : *first;
    int b = *second > 127 ? 127 : *second < -127 ? -127 : *second;
    if (abs(a + b) > 128)
        b = 0;
    *first -= a;
    *second -= b;
    return (uint16_t)((uint8_t)a | (uint8_t)b << 8);
}

int conv_cpu_pairs_init(struct conv_cpu_pair pairs[CONV_CPU_MAX_PAIRS],
                        const struct conv_stencil *stencil)
{
    int count = 0;
    for (int j = 0; j < stencil->height; j += 2) {
        for (int i = 0; i < stencil->width; i++) {
            int a = coef_at(stencil, i, j), b = coef_at(stencil, i, j + 1);
            int c = coef_at(stencil, i, j - 1), d = a;
            while (a || b || c || d) {
                struct conv_cpu_pair *pair = &pairs[count++];
                pair->column = (int16_t)i;
                pair->row = (int16_t)j;
                pair->upper = take_pair(&a, &b);
                pair->lower = take_pair(&c, &d);
            }
        }
    }
    return count;
}
