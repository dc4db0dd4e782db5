// SPDX-License-Identifier: MIT
// Numbers of 16 bits on the host.
#pragma once

#include <stdint.h>
#include <string.h>

// IEEE 754 binary16 in 16 bits, to and from float32 (nearest even, subnormals, infinities; NaN
// stays NaN). For host code; conversion instructions of processors produce the same bits.

static inline float conv_half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff, bits;
    float value;
    if (magnitude >= 0x7c00) { // infinity or NaN
        bits = 0x7f800000 | (magnitude & 0x3ff) << 13;
    } else if (magnitude >= 0x400) {
        bits = (magnitude << 13) + ((127 - 15) << 23);
    } else { // a multiple of 2^-24
        value = (float)magnitude * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
    }
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t conv_half_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return sign | 0x7e00;
    if (bits >= 0x477ff000) // rounds to 65536 or more
        return sign | 0x7c00;
    if (bits < 0x38800000) { // below 2^-14: adding 0.5 leaves multiples of 2^-24 in the last bits
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits >> 13) - ((127 - 15) << 10)));
}

// bfloat16, the upper half of a float32, in the same way.

static inline float conv_bfloat_to_float(uint16_t bfloat)
{
    uint32_t bits = (uint32_t)bfloat << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t conv_bfloat_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
