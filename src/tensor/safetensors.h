// SPDX-License-Identifier: MIT
// Tensors in .safetensors files: 8 bytes with the length of a JSON header, the header, the data.
// https://huggingface.co/docs/safetensors
// Nothing here reads files. Any thread.
#ifndef CONV_TENSOR_SAFETENSORS_H
#define CONV_TENSOR_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/element.h"

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

#endif
