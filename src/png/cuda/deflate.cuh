// SPDX-License-Identifier: MIT
// Lengths and codes of RFC 1951, as far as the encoder uses them. C as well as CUDA.
#pragma once

#include <stdint.h>

#include "kernels/common/place.h"

#define DEFLATE_LITLENS 286
#define DEFLATE_END 256
#define DEFLATE_LIMIT 14       // bits of a code; one less than allowed, so that a word fits 64 bits
#define DEFLATE_LENGTH_LIMIT 7 // of the code for code lengths
#define DEFLATE_LENGTH_SYMBOLS 19
#define ADLER_MODULUS 65521u

CONV_HOST_DEVICE static inline uint32_t deflate_log2(uint32_t value)
{
#ifdef __CUDA_ARCH__
    return 31 - (uint32_t)__clz((int)value);
#else
    return 31 - (uint32_t)__builtin_clz(value);
#endif
}

// The symbol of a match length from 3 to 257, and how many extra bits, of which value, follow it.
CONV_HOST_DEVICE static inline uint32_t deflate_length_symbol(uint32_t length, uint32_t *extra_bits,
                                                              uint32_t *extra)
{
    uint32_t v = length - 3, bits = deflate_log2(v | 7) - 2;
    *extra_bits = bits;
    *extra = v & ((1u << bits) - 1);
    // Four symbols per power of two, and the first eight without extra bits.
    return 257 + 4 * bits + (v >> bits);
}

// The symbol of a distance from 2 on, and how many extra bits, of which value, follow it.
CONV_HOST_DEVICE static inline uint32_t
deflate_distance_symbol(uint32_t distance, uint32_t *extra_bits, uint32_t *extra)
{
    uint32_t v = distance - 1, log = deflate_log2(v), bits = log > 0 ? log - 1 : 0;
    *extra_bits = bits;
    *extra = v & ((1u << bits) - 1);
    // Two symbols per power of two.
    return 2 * bits + (v >> bits);
}

// The length of a literal's or a length's code in a block with fixed codes (3.2.6).
CONV_HOST_DEVICE static inline uint32_t deflate_fixed_bits(uint32_t symbol)
{
    return symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
}

CONV_HOST_DEVICE static inline uint32_t deflate_reverse(uint32_t code, uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return bits ? __brev(code) >> (32 - bits) : 0;
#else
    uint32_t reversed = 0;
    for (; bits > 0; bits--, code >>= 1)
        reversed = reversed << 1 | (code & 1);
    return reversed;
#endif
}

// --- code lengths in a block's header (3.2.7) ----------------------------------------------------

#define DEFLATE_ITEM_NONE 31u // no symbol

// The item for the length at place `j` of a run of `run` equal ones: a symbol, its extra bits and
// their value; DEFLATE_ITEM_NONE if an earlier item covers this length. It depends on nothing else,
// so all places can be computed in parallel.
CONV_HOST_DEVICE static inline uint32_t deflate_length_item(uint32_t length, uint32_t j,
                                                            uint32_t run, uint32_t *extra_bits,
                                                            uint32_t *extra)
{
    *extra_bits = *extra = 0;
    if (length > 0) { // itself, then items of up to six repetitions
        if (j == 0)
            return length;
        j--;
        run--;
    }
    uint32_t most = length ? 6 : 138, first = j - j % most;
    uint32_t rest = run - first < most ? run - first : most;
    if (rest < 3)
        return length;
    if (j != first)
        return DEFLATE_ITEM_NONE;
    if (length) {
        *extra_bits = 2;
        *extra = rest - 3;
        return 16;
    }
    *extra_bits = rest < 11 ? 3 : 7;
    *extra = rest - (rest < 11 ? 3 : 11);
    return rest < 11 ? 17 : 18;
}

// Limiting the depth of deep leaves made the code oversubscribed. Each step moves a leaf from the
// limit next to the deepest leaf above it, which moves down a level: the sum of 2^-length decreases
// by 2^-limit.
CONV_HOST_DEVICE static inline void deflate_repair(uint32_t *at_depth, uint32_t limit)
{
    uint32_t sum = 0;
    for (uint32_t d = 1; d <= limit; d++)
        sum += at_depth[d] << (limit - d);
    for (; sum > 1u << limit; sum--) {
        uint32_t d = limit - 1;
        while (at_depth[d] == 0)
            d--;
        at_depth[d]--;
        at_depth[d + 1] += 2;
        at_depth[limit]--;
    }
}
