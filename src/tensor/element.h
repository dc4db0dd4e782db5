// SPDX-License-Identifier: MIT
// The types of a tensor's elements. Little endian in files, the machine's own order in memory.
#ifndef CONV_TENSOR_ELEMENT_H
#define CONV_TENSOR_ELEMENT_H

#include <stddef.h>

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

#endif
