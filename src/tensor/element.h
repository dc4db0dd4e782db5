// SPDX-License-Identifier: MIT
// The types of a tensor's elements, little endian in files, in the machine's own order in memory;
// and its sides.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/common/half.h"

enum conv_element {
    CONV_ELEMENT_U8,   // 0 to 255
    CONV_ELEMENT_U16,  // 0 to 65535
    CONV_ELEMENT_F16,  // IEEE 754 binary16
    CONV_ELEMENT_BF16, // bfloat16; in no file
    CONV_ELEMENT_F32,  // IEEE 754 binary32
};

static inline size_t conv_element_size(enum conv_element element)
{
    switch (element) {
    case CONV_ELEMENT_U8:
        return 1;
    case CONV_ELEMENT_U16:
    case CONV_ELEMENT_F16:
    case CONV_ELEMENT_BF16:
        return 2;
    case CONV_ELEMENT_F32:
        break;
    }
    return 4;
}

// Rounds results to 16 bits: F16 or BF16.
static inline uint16_t conv_tensor_from_float(enum conv_element element, float value)
{
    return element == CONV_ELEMENT_F16 ? conv_half_from_float(value)
                                       : conv_bfloat_from_float(value);
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
    case CONV_ELEMENT_BF16:
        for (size_t i = 0; i < count; i++) {
            memcpy(&word, bytes + 2 * i, sizeof word);
            dst[i] = conv_bfloat_to_float(word);
        }
        break;
    case CONV_ELEMENT_F32:
        memcpy(dst, src, count * sizeof dst[0]);
        break;
    }
}

// --- the sides of a tensor -----------------------------------------------------------------------
// Row-major: the last axis is contiguous.

#define CONV_TENSOR_MOST_AXES 8
#define CONV_TENSOR_TEXT_SIZE 200 // of conv_tensor_shape_text

struct conv_tensor_shape {
    int axes;                            // 0: a single number
    int64_t side[CONV_TENSOR_MOST_AXES]; // at least 0
};

// Elements of the tensor times `size` bytes, in *bytes. False if that is more than 2^62, also where
// another side is 0: no tensor of such a shape can exist.
static inline bool conv_tensor_shape_bytes(const struct conv_tensor_shape *shape, size_t size,
                                           uint64_t *bytes)
{
    uint64_t product = size, most = (uint64_t)1 << 62;
    bool is_empty = false;
    for (int i = 0; i < shape->axes; i++) {
        uint64_t side = (uint64_t)shape->side[i];
        is_empty = is_empty || side == 0;
        if (side > 0 && product > most / side)
            return false;
        product *= side > 0 ? side : 1;
    }
    *bytes = is_empty ? 0 : product;
    return true;
}

// "(10, 3, 224, 224)" or "(10,)", as Python writes it. Returns `text`.
static inline char *conv_tensor_shape_text(char text[CONV_TENSOR_TEXT_SIZE],
                                           const struct conv_tensor_shape *shape)
{
    size_t used = (size_t)snprintf(text, CONV_TENSOR_TEXT_SIZE, "(");
    for (int i = 0; i < shape->axes; i++)
        used += (size_t)snprintf(text + used, CONV_TENSOR_TEXT_SIZE - used, "%s%lld", i ? ", " : "",
                                 (long long)shape->side[i]);
    snprintf(text + used, CONV_TENSOR_TEXT_SIZE - used, shape->axes == 1 ? ",)" : ")");
    return text;
}
