// SPDX-License-Identifier: MIT
// Elements of any kind as float32.
#ifndef CONV_TENSOR_CONVERT_H
#define CONV_TENSOR_CONVERT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/element.h"
#include "tensor/half.h"

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
