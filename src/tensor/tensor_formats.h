// SPDX-License-Identifier: MIT
// Files of tensors: their headers and elements. Nothing here reads files. Any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/element.h"

// --- .npy ----------------------------------------------------------------------------------------

// NumPy's files, versions 1 to 3: a header with type, order and shape, then the elements.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

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

// --- .safetensors --------------------------------------------------------------------------------

// 8 bytes with the length of a JSON header, the header, the data.
// https://huggingface.co/docs/safetensors

#define CONV_SAFETENSORS_HEAD 8                      // bytes before the JSON header
#define CONV_SAFETENSORS_MOST_HEADER 100000000       // bytes, the limit of the format's own library
#define CONV_SAFETENSORS_MOST_NAME ((size_t)1 << 10) // bytes of a tensor's name with its NUL

enum conv_safetensors_type {
    CONV_SAFETENSORS_F32,
    CONV_SAFETENSORS_F16,
    CONV_SAFETENSORS_BF16,
};

// One tensor: little endian, C order.
struct conv_safetensors {
    enum conv_safetensors_type type;
    struct conv_tensor_shape shape;
    uint64_t offset, bytes; // of its elements, from the file's first byte
};

// Bytes of the JSON header of a file that begins with head[0..size) and has file_bytes in total.
// CONV_ERR_FORMAT if it is not such a file; CONV_ERR_LIMIT above CONV_SAFETENSORS_MOST_HEADER.
enum conv_status conv_safetensors_header_bytes(const uint8_t *head, size_t size,
                                               uint64_t file_bytes, size_t *header,
                                               struct conv_err *err);

// Finds the tensor `name` in the JSON header, which begins after CONV_SAFETENSORS_HEAD bytes.
// CONV_ERR_FORMAT if the header is damaged or the tensor's data are not where its shape and the
// file's size allow; CONV_ERR_UNSUPPORTED for an element type that is not read; CONV_ERR_USAGE,
// with names that are near or the first ones, if there is no such tensor. Its memory does not
// depend on the file.
enum conv_status conv_safetensors_find(struct conv_safetensors *found, const char *json,
                                       size_t size, uint64_t file_bytes, const char *name,
                                       struct conv_err *err);

// Bytes of an element in the file.
size_t conv_safetensors_element(enum conv_safetensors_type type);

// Converts `count` elements in the file's form to float32. dst and src do not overlap.
void conv_safetensors_convert(float *dst, const uint8_t *src, enum conv_safetensors_type type,
                              size_t count);
