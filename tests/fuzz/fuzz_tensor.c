// SPDX-License-Identifier: MIT
// libFuzzer target: headers of tensor files. The first byte says which: n a .npy file, s the JSON
// header of a .safetensors file after the name of a tensor and a NUL, h its first 8 bytes. Headers
// that a parser accepts must be consistent.
#include "fuzz/fuzz.h"
#include "tensor/tensor_formats.h"

// The product of the sides, without the function under test.
static void check_shape(const struct conv_tensor_shape *shape, size_t element, uint64_t bytes)
{
    unsigned __int128 product = element;
    if (shape->axes < 0 || shape->axes > CONV_TENSOR_MOST_AXES)
        fail("shape", "too many axes");
    for (int i = 0; i < shape->axes; i++) {
        if (shape->side[i] < 0)
            fail("shape", "a negative side");
        product *= (uint64_t)shape->side[i];
        if (product >> 64)
            fail("shape", "overflows");
    }
    if (product != bytes)
        fail("shape", "another number of bytes");
}

static void use_elements(const struct conv_npy *npy)
{
    uint8_t src[4 * 8], dst[4 * 8] = {0}; // 4 elements of at most 8 bytes
    memset(src, 0x47, sizeof src);
    conv_npy_convert(npy, dst, src, 4);
    conv_npy_convert(npy, src, src, 4);
    if (memcmp(dst, src, 4 * conv_element_size(npy->element)) != 0)
        fail("elements", "in place are others");
}

// A header that this program writes for the same shape reads the same.
static void write_again(const struct conv_npy *npy)
{
    uint8_t header[CONV_NPY_OWN_HEADER];
    struct conv_npy again;
    struct conv_err err = {0};
    if (npy->shape.axes > 4)
        return;
    size_t size = conv_npy_write(header, npy->element, &npy->shape, 0);
    if (size > sizeof header || conv_npy_parse(&again, header, size, &err))
        fail("own header", err.text);
    if (again.element != npy->element || again.shape.axes != npy->shape.axes ||
        memcmp(again.shape.side, npy->shape.side, sizeof again.shape.side[0] * 4) != 0)
        fail("own header", "of another tensor");
}

static void try_npy(const uint8_t *data, size_t size)
{
    struct conv_npy npy = {0};
    struct conv_err err = {0};
    size_t header = 0;
    enum conv_status status = conv_npy_header_bytes(data, size, &header, &err);
    if (!status && (header < CONV_NPY_HEAD || header > CONV_NPY_MOST_HEADER))
        fail("header", "of no length");
    if (!status)
        status = conv_npy_parse(&npy, data, header < size ? header : size, &err);
    if (status) {
        check_message(status, &err);
        return;
    }
    check_shape(&npy.shape, npy.file_element, npy.data);
    use_elements(&npy);
    write_again(&npy);
    status = conv_npy_check_size(&npy, size, &err);
    if ((size == header + npy.data) != (status == CONV_OK))
        fail("size", "of the file is not that of the tensor");
}

static void try_json(const char *name, const char *json, size_t size)
{
    struct conv_safetensors found = {0};
    struct conv_err err = {0};
    uint64_t file = CONV_SAFETENSORS_HEAD + size + 64;
    enum conv_status status = conv_safetensors_find(&found, json, size, file, name, &err);
    if (status) {
        check_message(status, &err);
        return;
    }
    check_shape(&found.shape, conv_safetensors_element(found.type), found.bytes);
    if (found.offset < CONV_SAFETENSORS_HEAD + size || found.offset > file ||
        found.bytes > file - found.offset)
        fail("tensor", "outside the file");
}

static void try_head(const uint8_t *data, size_t size)
{
    struct conv_err err = {0};
    size_t header = 0;
    uint64_t file = size + 1000;
    enum conv_status status = conv_safetensors_header_bytes(data, size, file, &header, &err);
    if (status)
        check_message(status, &err);
    else if (header > file - CONV_SAFETENSORS_HEAD)
        fail("header", "longer than the file");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    // Of the exact size, so that a read beyond the end is detected.
    uint8_t *rest = malloc(size > 1 ? size - 1 : 1);
    if (!rest)
        abort();
    memcpy(rest, data + 1, size - 1);
    const uint8_t *end = memchr(rest, 0, size - 1);
    if (data[0] == 'n') {
        try_npy(rest, size - 1);
    } else if (data[0] == 'h') {
        try_head(rest, size - 1);
    } else if (data[0] == 's' && end) {
        size_t name = (size_t)(end - rest) + 1, length = size - 1 - name;
        char *json = malloc(length ? length : 1); // of its own, as in a program
        if (!json)
            abort();
        memcpy(json, rest + name, length);
        try_json((const char *)rest, json, length);
        free(json);
    }
    free(rest);
    return 0;
}
