// SPDX-License-Identifier: MIT
// PNG's row filters on four bytes at a time, within planes: a filter treats both bytes of a 16-bit
// sample alike. C as well as CUDA, so that a unit test compares it with the standard's definition
// byte by byte.
#pragma once

#include <stdint.h>

#include "kernels/common/place.h"

enum { PNG_NONE, PNG_SUB, PNG_UP, PNG_AVERAGE, PNG_PAETH, PNG_FILTERS };

// Byte i of the result is the byte of b:a whose number is nibble i of the selector. PRMT.
CONV_HOST_DEVICE static inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, selector);
#else
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++)
        result |= (uint32_t)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
#endif
}

// The upper word of high:low << shift, 0 to 31 bits.
CONV_HOST_DEVICE static inline uint32_t shift_in(uint32_t low, uint32_t high, uint32_t shift)
{
#ifdef __CUDA_ARCH__
    return __funnelshift_l(low, high, shift);
#else
    return (uint32_t)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
#endif
}

// Byte by byte, without a carry from one to the next.
CONV_HOST_DEVICE static inline uint32_t subtract_bytes(uint32_t x, uint32_t y)
{
    uint32_t low = (x | 0x80808080u) - (y & 0x7f7f7f7fu);
    return low ^ ((x ^ ~y) & 0x80808080u);
}

// floor((x + y) / 2) of each byte.
CONV_HOST_DEVICE static inline uint32_t average_bytes(uint32_t x, uint32_t y)
{
    return (x & y) + ((x ^ y) >> 1 & 0x7f7f7f7fu);
}

// sum + |x - y| of each byte.
CONV_HOST_DEVICE static inline uint32_t add_differences(uint32_t sum, uint32_t x, uint32_t y)
{
#ifdef __CUDA_ARCH__
    asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(sum));
#else
    for (int i = 0; i < 4; i++) {
        uint32_t a = x >> 8 * i & 0xff, b = y >> 8 * i & 0xff;
        sum += a < b ? b - a : a - b;
    }
#endif
    return sum;
}

// sum + |x| of each byte as a signed number.
CONV_HOST_DEVICE static inline uint32_t add_magnitudes(uint32_t sum, uint32_t x)
{
#ifdef __CUDA_ARCH__
    asm("vabsdiff4.u32.s32.s32.add %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(0), "r"(sum));
#else
    for (int i = 0; i < 4; i++) {
        uint32_t a = x >> 8 * i & 0xff;
        sum += a < 128 ? a : 256 - a;
    }
#endif
    return sum;
}

// --- Paeth ---------------------------------------------------------------------------------------

#define HALVES 0x00010001u

// 0xffff for each half of x whose top bit is set.
CONV_HOST_DEVICE static inline uint32_t spread_tops(uint32_t x)
{
#ifdef __CUDA_ARCH__
    // The top bit of a selector's nibble spreads a sign, which __byte_perm does not support.
    uint32_t spread;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(spread) : "r"(x));
    return spread;
#else
    return (x >> 15 & HALVES) * 0xffff;
#endif
}

// The lesser and the greater of bytes in the halves of words.
CONV_HOST_DEVICE static inline void order_halves(uint32_t *low, uint32_t *high, uint32_t a,
                                                 uint32_t b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    *low = __vminu2(a, b); // a single instruction from Hopper on
    *high = __vmaxu2(a, b);
#else
    uint32_t above = spread_tops(a + 0x8000 * HALVES - b); // a >= b
    *high = (a & above) | (b & ~above);
    *low = a ^ b ^ *high;
#endif
}

// Two samples in the halves of a word. With t = 3c - a - b, Paeth's choice is the greater of a and
// b if t is not above the lesser, the lesser if t is not below the greater, and c between them (as
// in stb_image). All sums stay within their halves: t + 0x8000 is from 0x7e02 to 0x82fd.
CONV_HOST_DEVICE static inline uint32_t paeth_halves(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t low, high, t = 3 * c + 0x8000 * HALVES - a - b;
    order_halves(&low, &high, a, b);
    uint32_t not_below = spread_tops(t - high);     // t >= high
    uint32_t above = spread_tops(t - low - HALVES); // t > low
    uint32_t choice = (low & not_below) | (c & ~not_below);
    return (choice & above) | (high & ~above);
}

CONV_HOST_DEVICE static inline uint32_t odd_bytes(uint32_t x)
{
    return pick_bytes(x, 0, 0x4341);
}

CONV_HOST_DEVICE static inline uint32_t paeth_bytes(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t even = paeth_halves(a & 0x00ff00ffu, b & 0x00ff00ffu, c & 0x00ff00ffu);
    uint32_t odd = paeth_halves(odd_bytes(a), odd_bytes(b), odd_bytes(c));
    return pick_bytes(even, odd, 0x6240);
}

// --- the residuals of a filter -------------------------------------------------------------------

// The residuals of the bytes x, with a to their left, b above and c above to the left.
CONV_HOST_DEVICE static inline uint32_t filter_bytes(int filter, uint32_t x, uint32_t a, uint32_t b,
                                                     uint32_t c)
{
    switch (filter) {
    case PNG_SUB:
        return subtract_bytes(x, a);
    case PNG_UP:
        return subtract_bytes(x, b);
    case PNG_AVERAGE:
        return subtract_bytes(x, average_bytes(a, b));
    case PNG_PAETH:
        return subtract_bytes(x, paeth_bytes(a, b, c));
    default:
        return x;
    }
}

// The costs by which a filter is chosen: the distances of the bytes from each filter's prediction.
// The standard (12.7) recommends treating residuals as signed numbers, so that 255 and 0 are
// neighbours. Plain distances take half the instructions and produce 0.01 % more bytes for
// photographs. Without a prediction, signed numbers are needed.
CONV_HOST_DEVICE static inline void add_costs(uint32_t cost[PNG_FILTERS], uint32_t x, uint32_t a,
                                              uint32_t b, uint32_t c)
{
    cost[PNG_NONE] = add_magnitudes(cost[PNG_NONE], x);
    cost[PNG_SUB] = add_differences(cost[PNG_SUB], x, a);
    cost[PNG_UP] = add_differences(cost[PNG_UP], x, b);
    cost[PNG_AVERAGE] = add_differences(cost[PNG_AVERAGE], x, average_bytes(a, b));
    cost[PNG_PAETH] = add_differences(cost[PNG_PAETH], x, paeth_bytes(a, b, c));
}

// The first of the cheapest.
CONV_HOST_DEVICE static inline int cheapest_filter(const uint32_t cost[PNG_FILTERS])
{
    int best = 0;
    for (int f = 1; f < PNG_FILTERS; f++)
        if (cost[f] < cost[best])
            best = f;
    return best;
}

// --- planes to pixels ----------------------------------------------------------------------------

// Joins a word of each of `channels` planes to as many words of pixels. Samples of two bytes become
// big endian.
CONV_HOST_DEVICE static inline void join_bytes(uint32_t out[4], const uint32_t plane[4],
                                               int channels, int sample_bytes)
{
    const uint32_t *p = plane;
    if (sample_bytes == 1) {
        if (channels == 1) {
            out[0] = p[0];
        } else if (channels == 2) {
            out[0] = pick_bytes(p[0], p[1], 0x5140);
            out[1] = pick_bytes(p[0], p[1], 0x7362);
        } else if (channels == 3) {
            out[0] = pick_bytes(pick_bytes(p[0], p[1], 0x1040), p[2], 0x3410); // r0 g0 b0 r1
            out[1] = pick_bytes(pick_bytes(p[1], p[2], 0x2051), p[0], 0x3610); // g1 b1 r2 g2
            out[2] = pick_bytes(pick_bytes(p[2], p[0], 0x3072), p[1], 0x3710); // b2 r3 g3 b3
        } else {
            uint32_t rg = pick_bytes(p[0], p[1], 0x5140), ba = pick_bytes(p[2], p[3], 0x5140);
            out[0] = pick_bytes(rg, ba, 0x5410);
            out[1] = pick_bytes(rg, ba, 0x7632);
            rg = pick_bytes(p[0], p[1], 0x7362);
            ba = pick_bytes(p[2], p[3], 0x7362);
            out[2] = pick_bytes(rg, ba, 0x5410);
            out[3] = pick_bytes(rg, ba, 0x7632);
        }
    } else if (channels == 1) {
        out[0] = pick_bytes(p[0], 0, 0x2301);
    } else if (channels == 2) {
        out[0] = pick_bytes(p[0], p[1], 0x4501);
        out[1] = pick_bytes(p[0], p[1], 0x6723);
    } else if (channels == 3) {
        out[0] = pick_bytes(p[0], p[1], 0x4501); // r0 g0
        out[1] = pick_bytes(p[2], p[0], 0x6701); // b0 r1
        out[2] = pick_bytes(p[1], p[2], 0x6723); // g1 b1
    } else {
        out[0] = pick_bytes(p[0], p[1], 0x4501);
        out[1] = pick_bytes(p[2], p[3], 0x4501);
        out[2] = pick_bytes(p[0], p[1], 0x6723);
        out[3] = pick_bytes(p[2], p[3], 0x6723);
    }
}
