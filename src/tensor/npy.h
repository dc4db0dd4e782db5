// SPDX-License-Identifier: MIT
// NumPy's .npy files, versions 1 to 3: a header with type, order and shape, then the elements.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
// Nothing here takes memory or reads files. Any thread.
#ifndef CONV_TENSOR_NPY_H
#define CONV_TENSOR_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/element.h"

#define CONV_NPY_HEAD 12                // first bytes, which tell how long the header is
#define CONV_NPY_MOST_HEADER (64 << 10) // longer ones describe nothing that is read here
#define CONV_NPY_OWN_HEADER 256         // room for a header that conv_npy_write makes

struct conv_npy {
    struct conv_tensor_shape shape;
    enum conv_element element; // as conv_npy_convert delivers them
    bool is_double;            // float64 in the file, rounded to float32
    bool is_swapped;           // in the other byte order
    size_t file_element;       // bytes of an element in the file
    size_t header;             // bytes before the first element
    uint64_t data;             // bytes of all elements in the file
};

// Bytes of the header of a file that begins with head[0..CONV_NPY_HEAD), in *header.
// CONV_ERR_FORMAT if it is not a .npy file, CONV_ERR_UNSUPPORTED for an unknown version or a header
// above CONV_NPY_MOST_HEADER.
enum conv_status conv_npy_header_bytes(const uint8_t *head, size_t size, size_t *header,
                                       struct conv_err *err);

// Reads a whole header: data[0..header). CONV_ERR_FORMAT if it is damaged; CONV_ERR_UNSUPPORTED,
// with the remedy, for a type or an order that is not read; CONV_ERR_LIMIT for too many axes or a
// product of the sides that overflows.
enum conv_status conv_npy_parse(struct conv_npy *npy, const uint8_t *data, size_t header,
                                struct conv_err *err);

// CONV_ERR_FORMAT if a file of `file_bytes` bytes is shorter or longer than its header says.
enum conv_status conv_npy_check_size(const struct conv_npy *npy, uint64_t file_bytes,
                                     struct conv_err *err);

// Converts `count` elements in the file's form to npy->element of this machine. dst and src may be
// the same address, otherwise they do not overlap.
void conv_npy_convert(const struct conv_npy *npy, void *dst, const void *src, size_t count);

// Writes a header of version 1 for elements in little endian and C order; returns its bytes, a
// multiple of 64: at least `least` and at most CONV_NPY_OWN_HEADER, for at most 5 axes.
size_t conv_npy_write(uint8_t header[CONV_NPY_OWN_HEADER], enum conv_element element,
                      const struct conv_tensor_shape *shape, size_t least);

#endif
