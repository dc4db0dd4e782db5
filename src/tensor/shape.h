// SPDX-License-Identifier: MIT
// The sides of a tensor, row-major: the last axis is contiguous.
#ifndef CONV_TENSOR_SHAPE_H
#define CONV_TENSOR_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONV_TENSOR_MOST_AXES 8
#define CONV_TENSOR_TEXT_SIZE 200 // of conv_tensor_shape_text

struct conv_tensor_shape {
    int axes;                            // 0: a single number
    int64_t side[CONV_TENSOR_MOST_AXES]; // at least 0
};

// Elements of the tensor times `size` bytes, in *bytes. False if that is more than 2^62, also where
// another side is 0: such a header is not a tensor that anyone can have.
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

#endif
