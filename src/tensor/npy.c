// SPDX-License-Identifier: MIT
// The header is the repr of a Python dict, taken apart as JSON is, without Python's other
// liberties: three known keys, each once, strings without escapes.
#include "tensor/tensor_formats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tensor/json_scan.h"

static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static bool is_long(const uint8_t *head) // 4 bytes of length instead of 2
{
    return head[6] >= 2;
}

enum conv_status conv_npy_header_bytes(const uint8_t *head, size_t size, size_t *header,
                                       struct conv_err *err)
{
    if (size < CONV_NPY_HEAD || memcmp(head, magic, sizeof magic) != 0)
        return conv_err_format(err, "has no .npy header");
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        return conv_err_unsupported(
            err, "is a .npy file of version %d.%d; versions 1.0 to 3.0 are read", head[6], head[7]);
    uint64_t length = (uint64_t)head[8] | (uint64_t)head[9] << 8;
    if (is_long(head))
        length |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
    length += is_long(head) ? 12 : 10;
    if (length < CONV_NPY_HEAD)
        return conv_err_format(err, "the .npy header is empty");
    if (length > CONV_NPY_MOST_HEADER)
        return conv_err_unsupported(err,
                                    "the .npy header has %" PRIu64 " bytes; at most %d are read",
                                    length, CONV_NPY_MOST_HEADER);
    *header = (size_t)length;
    return CONV_OK;
}

// --- the dict ------------------------------------------------------------------------------------

static bool take_word(struct conv_json_scan *text, const char *word)
{
    size_t length = strlen(word);
    conv_json_scan_space(text);
    if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length) != 0)
        return false;
    text->at += length;
    return true;
}

// A string of at most size - 1 characters.
static bool take_string(struct conv_json_scan *text, char *string, size_t size)
{
    char quote = conv_json_scan_char(text, '\'')  ? '\''
                 : conv_json_scan_char(text, '"') ? '"'
                                                  : '\0';
    const char *end = quote ? memchr(text->at, quote, (size_t)(text->end - text->at)) : NULL;
    size_t length = end ? (size_t)(end - text->at) : 0;
    if (!end || length >= size || memchr(text->at, '\\', length))
        return false;
    memcpy(string, text->at, length);
    string[length] = '\0';
    text->at = end + 1;
    return strlen(string) == length;
}

static bool take_side(struct conv_json_scan *text, int64_t *side)
{
    uint64_t value;
    if (!conv_json_scan_number(text, &value))
        return false;
    *side = (int64_t)value;
    (void)(text->at < text->end && *text->at == 'L' && text->at++); // of Python 2
    return true;
}

static enum conv_status parse_shape(struct conv_json_scan *text, struct conv_tensor_shape *shape,
                                    struct conv_err *err)
{
    shape->axes = 0;
    if (!conv_json_scan_char(text, '('))
        return conv_err_format(err, "the .npy header has no valid shape");
    bool has_comma = false;
    while (!conv_json_scan_char(text, ')')) {
        if (shape->axes == CONV_TENSOR_MOST_AXES)
            return conv_err_limit(err, "the tensor has more than %d axes", CONV_TENSOR_MOST_AXES);
        if ((shape->axes > 0 && !has_comma) || !take_side(text, &shape->side[shape->axes]))
            return conv_err_format(err, "the .npy header has no valid shape");
        shape->axes++;
        has_comma = conv_json_scan_char(text, ',');
    }
    if (shape->axes == 1 && !has_comma)
        return conv_err_format(err, "the .npy header has no valid shape");
    return CONV_OK;
}

static enum conv_status parse_type(struct conv_npy *npy, const char *type, struct conv_err *err)
{
    static const struct {
        const char *name;
        enum conv_element element;
        bool is_double;
        size_t bytes;
    } types[] = {
        {"u1", CONV_ELEMENT_U8, false, 1},  {"u2", CONV_ELEMENT_U16, false, 2},
        {"f2", CONV_ELEMENT_F16, false, 2}, {"f4", CONV_ELEMENT_F32, false, 4},
        {"f8", CONV_ELEMENT_F32, true, 8},
    };
    char order = type[0];
    for (size_t i = 0; order && strchr("<>|=", order) && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type + 1, types[i].name) != 0 || (order == '|' && types[i].bytes > 1))
            continue;
        npy->element = types[i].element;
        npy->is_double = types[i].is_double;
        npy->is_swapped = order == '>' && types[i].bytes > 1;
        npy->file_element = types[i].bytes;
        return CONV_OK;
    }
    return conv_err_unsupported(err,
                                "the elements are of type '%.32s'; uint8, uint16, float16, float32 "
                                "and float64 are read: save x.astype('float32')",
                                type);
}

// The order is irrelevant if at most one side is larger than 1.
static bool has_order(const struct conv_tensor_shape *shape)
{
    int wide = 0;
    for (int i = 0; i < shape->axes; i++)
        wide += shape->side[i] != 1;
    return wide > 1;
}

struct fields {
    char type[64];
    bool fortran, has_type, has_order, has_shape;
};

static enum conv_status parse_field(struct conv_npy *npy, struct conv_json_scan *text,
                                    struct fields *fields, struct conv_err *err)
{
    char key[32];
    if (!take_string(text, key, sizeof key) || !conv_json_scan_char(text, ':'))
        return conv_err_format(err, "the .npy header is damaged");
    if (strcmp(key, "descr") == 0 && !fields->has_type) {
        fields->has_type = true;
        if (conv_json_scan_char(text, '['))
            return conv_err_unsupported(
                err, "the elements are records; save one field of them as float32");
        if (take_string(text, fields->type, sizeof fields->type))
            return CONV_OK;
    } else if (strcmp(key, "fortran_order") == 0 && !fields->has_order) {
        fields->has_order = true;
        fields->fortran = take_word(text, "True");
        if (fields->fortran || take_word(text, "False"))
            return CONV_OK;
    } else if (strcmp(key, "shape") == 0 && !fields->has_shape) {
        fields->has_shape = true;
        return parse_shape(text, &npy->shape, err);
    }
    return conv_err_format(err, "the .npy header is damaged at '%s'", key);
}

enum conv_status conv_npy_parse(struct conv_npy *npy, const uint8_t *data, size_t header,
                                struct conv_err *err)
{
    size_t expected = 0;
    enum conv_status status = conv_npy_header_bytes(data, header, &expected, err);
    if (status)
        return status;
    if (expected != header)
        return conv_err_format(err, "ends within the .npy header");
    const char *chars = (const char *)data;
    struct conv_json_scan text = {chars + (is_long(data) ? 12 : 10), chars + header};
    struct fields fields = {0};
    *npy = (struct conv_npy){.header = header};
    bool closed = false, has_comma = true;
    if (!conv_json_scan_char(&text, '{'))
        return conv_err_format(err, "the .npy header is not a dict");
    while (!(closed = conv_json_scan_char(&text, '}')) && has_comma && !status) {
        status = parse_field(npy, &text, &fields, err);
        has_comma = conv_json_scan_char(&text, ',');
    }
    conv_json_scan_space(&text);
    if (!status && (!closed || text.at != text.end))
        return conv_err_format(err, "the .npy header does not end where it should");
    if (!status && !(fields.has_type && fields.has_order && fields.has_shape))
        return conv_err_format(err, "the .npy header lacks descr, fortran_order or shape");
    if (!status)
        status = parse_type(npy, fields.type, err);
    if (!status && fields.fortran && has_order(&npy->shape))
        return conv_err_unsupported(err,
                                    "the tensor is in Fortran order: save np.ascontiguousarray(x)");
    if (!status && !conv_tensor_shape_bytes(&npy->shape, npy->file_element, &npy->data))
        return conv_err_limit(err, "the .npy header declares more elements than any file can hold");
    return status;
}

enum conv_status conv_npy_check_size(const struct conv_npy *npy, uint64_t file_bytes,
                                     struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE];
    uint64_t expected = npy->header + npy->data;
    if (file_bytes == expected)
        return CONV_OK;
    return conv_err_format(err,
                           "has %" PRIu64 " bytes, but its header declares %s, %" PRIu64 " bytes%s",
                           file_bytes, conv_tensor_shape_text(text, &npy->shape), expected,
                           file_bytes < expected ? ": it is cut off" : "");
}

// --- elements ------------------------------------------------------------------------------------

static void swap_elements(uint8_t *dst, const uint8_t *src, size_t count, size_t bytes)
{
    uint8_t element[8];
    for (size_t i = 0; i < count; i++, dst += bytes, src += bytes) {
        for (size_t j = 0; j < bytes; j++)
            element[j] = src[bytes - 1 - j];
        memcpy(dst, element, bytes);
    }
}

static void round_doubles(uint8_t *dst, const uint8_t *src, size_t count, bool is_swapped)
{
    for (size_t i = 0; i < count; i++) {
        double value;
        if (is_swapped)
            swap_elements((uint8_t *)&value, src + 8 * i, 1, 8);
        else
            memcpy(&value, src + 8 * i, sizeof value);
        float rounded = (float)value;
        memcpy(dst + 4 * i, &rounded, sizeof rounded);
    }
}

void conv_npy_convert(const struct conv_npy *npy, void *dst, const void *src, size_t count)
{
    if (npy->is_double)
        round_doubles(dst, src, count, npy->is_swapped);
    else if (npy->is_swapped)
        swap_elements(dst, src, count, npy->file_element);
    else if (dst != src)
        memcpy(dst, src, count * npy->file_element);
}

// --- writing -------------------------------------------------------------------------------------

size_t conv_npy_write(uint8_t header[CONV_NPY_OWN_HEADER], enum conv_element element,
                      const struct conv_tensor_shape *shape, size_t least)
{
    static const char *const types[] = {
        [CONV_ELEMENT_U8] = "|u1",
        [CONV_ELEMENT_U16] = "<u2",
        [CONV_ELEMENT_F16] = "<f2",
        [CONV_ELEMENT_F32] = "<f4",
    };
    char text[CONV_TENSOR_TEXT_SIZE], dict[CONV_NPY_OWN_HEADER];
    int length =
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                 types[element], conv_tensor_shape_text(text, shape));
    // Spaces and a line's end up to a multiple of 64, so that the elements can be mapped.
    size_t used = 10 + (size_t)length + 1;
    size_t total = ((used < least ? least : used) + 63) / 64 * 64;
    memset(header, ' ', total);
    memcpy(header, magic, sizeof magic);
    header[6] = 1;
    header[7] = 0;
    header[8] = (uint8_t)((total - 10) & 0xff);
    header[9] = (uint8_t)((total - 10) >> 8);
    memcpy(header + 10, dict, (size_t)length);
    header[total - 1] = '\n';
    return total;
}
