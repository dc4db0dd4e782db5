// SPDX-License-Identifier: MIT
// Length of the common prefix of two buffers.
#ifndef CONV_PNG_CPU_MATCH_LENGTH_H
#define CONV_PNG_CPU_MATCH_LENGTH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t conv_match_load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t conv_match_load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

// The number of equal bytes at a and b before `end`; a < b < end, and they may overlap.
static inline size_t conv_match_length(const uint8_t *a, const uint8_t *b, const uint8_t *end)
{
    const uint8_t *start = b;
    while (end - b >= 8) {
        uint64_t different = conv_match_load64(a) ^ conv_match_load64(b);
        if (different) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            return (size_t)(b - start) + (size_t)__builtin_ctzll(different) / 8;
#else
            return (size_t)(b - start) + (size_t)__builtin_clzll(different) / 8;
#endif
        }
        a += 8;
        b += 8;
    }
    while (b < end && *a == *b) {
        a++;
        b++;
    }
    return (size_t)(b - start);
}

#endif
