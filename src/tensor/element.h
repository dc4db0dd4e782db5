// SPDX-License-Identifier: MIT
// The types of a tensor's elements. Little endian in files, the machine's own order in memory.
#ifndef CONV_TENSOR_ELEMENT_H
#define CONV_TENSOR_ELEMENT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/half.h"

enum conv_element {
    CONV_ELEMENT_U8,  // 0 to 255
    CONV_ELEMENT_U16, // 0 to 65535
    CONV_ELEMENT_F16, // IEEE 754 binary16
    CONV_ELEMENT_F32, // IEEE 754 binary32
};

static inline size_t conv_element_size(enum conv_element element)
{
    switch (element) {
    case CONV_ELEMENT_U8:
        return 1;
    case CONV_ELEMENT_U16:
    case CONV_ELEMENT_F16:
        return 2;
    case CONV_ELEMENT_F32:
        break;
    }
    return 4;
}

// Integers are divided by `divisor` in float32, correctly rounded; the others stay as they are. dst
// and src do not overlap; dst is aligned for float, src need not be aligned.
static inline void conv_tensor_to_float(float *dst, enum conv_element element, const void *src,
                                        size_t count, float divisor)
{
    const uint8_t *bytes = (const uint8_t *)src;
    uint16_t word;
    switch (element) {
    case CONV_ELEMENT_U8:
        for (size_t i = 0; i < count; i++)
            dst[i] = (float)bytes[i] / divisor;
        break;
    case CONV_ELEMENT_U16:
        for (size_t i = 0; i < count; i++) {
            memcpy(&word, bytes + 2 * i, sizeof word);
            dst[i] = (float)word / divisor;
        }
        break;
    case CONV_ELEMENT_F16:
        for (size_t i = 0; i < count; i++) {
            memcpy(&word, bytes + 2 * i, sizeof word);
            dst[i] = conv_half_to_float(word);
        }
        break;
    case CONV_ELEMENT_F32:
        memcpy(dst, src, count * sizeof dst[0]);
        break;
    }
}

#endif
