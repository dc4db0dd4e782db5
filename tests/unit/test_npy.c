// SPDX-License-Identifier: MIT
// Headers of .npy files: what NumPy writes, what other programs write, and damaged ones.

#include "support/unit.h"
#include "tensor/tensor_formats.h"

// A header of version `major` around `dict`. Memory ends with it, so that a sanitizer sees reads
// beyond; the caller frees it.
static uint8_t *make_header(int major, const char *dict, size_t *size)
{
    size_t length = strlen(dict), lead = major == 1 ? 10 : 12;
    uint8_t *header = malloc(lead + length);
    assert_non_null(header);
    memcpy(header, "\x93NUMPY", 6);
    header[6] = (uint8_t)major;
    header[7] = 0;
    header[8] = (uint8_t)(length & 0xff);
    header[9] = (uint8_t)(length >> 8);
    if (major > 1)
        header[10] = header[11] = 0;
    memcpy(header + lead, dict, length);
    *size = lead + length;
    return header;
}

static enum conv_status parse(struct conv_npy *npy, int major, const char *dict,
                              struct conv_err *err)
{
    size_t size, needed;
    uint8_t *header = make_header(major, dict, &size);
    enum conv_status status = conv_npy_header_bytes(header, size, &needed, err);
    if (!status) {
        assert_int_equal(needed, size);
        status = conv_npy_parse(npy, header, size, err);
    }
    free(header);
    return status;
}

UNIT_TEST(reads_what_numpy_writes)
{
    static const struct {
        int major;
        const char *dict;
        enum conv_element element;
        bool is_double, is_swapped;
        int axes;
        uint64_t bytes;
    } cases[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }  \n", CONV_ELEMENT_F32,
         false, false, 3, 96},
        {2, "{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }\n", CONV_ELEMENT_U8, false,
         false, 1, 7},
        {3, "{\"shape\":(),\"descr\":\"<f2\",\"fortran_order\":False}", CONV_ELEMENT_F16, false,
         false, 0, 2},
        {1, "{'descr': '>u2', 'fortran_order': False, 'shape': (5L, 2L)}", CONV_ELEMENT_U16, false,
         true, 2, 20},
        {1, "{'descr': '>f8', 'fortran_order': False, 'shape': (0, 5)}", CONV_ELEMENT_F32, true,
         true, 2, 0},
        // With one long axis both orders are the same.
        {1, "{'descr': '=f4', 'fortran_order': True, 'shape': (1, 5, 1)}", CONV_ELEMENT_F32, false,
         false, 3, 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct conv_npy npy;
        struct conv_err err = {0};
        if (parse(&npy, cases[i].major, cases[i].dict, &err))
            fail_msg("%s: %s", cases[i].dict, err.text);
        assert_int_equal(npy.element, cases[i].element);
        assert_int_equal(npy.is_double, cases[i].is_double);
        assert_int_equal(npy.is_swapped, cases[i].is_swapped);
        assert_int_equal(npy.shape.axes, cases[i].axes);
        assert_int_equal(npy.data, cases[i].bytes);
    }
}

UNIT_TEST(refuses_with_a_reason)
{
#define F4 "'descr': '<f4', "
#define C_ORDER "'fortran_order': False, "
    static const struct {
        const char *dict;
        enum conv_status status;
        const char *text;
    } cases[] = {
        {"{" F4 "'fortran_order': True, 'shape': (2, 3)}", CONV_ERR_UNSUPPORTED,
         "np.ascontiguousarray"},
        {"{'descr': '<i4', " C_ORDER "'shape': (2, 3)}", CONV_ERR_UNSUPPORTED, "astype('float32')"},
        {"{'descr': '|O', " C_ORDER "'shape': (2, 3)}", CONV_ERR_UNSUPPORTED, "'|O'"},
        {"{'descr': '', " C_ORDER "'shape': (2, 3)}", CONV_ERR_UNSUPPORTED, "type ''"},
        {"{'descr': '|f4', " C_ORDER "'shape': (2, 3)}", CONV_ERR_UNSUPPORTED, "'|f4'"},
        {"{'descr': [('a', '<f4')], " C_ORDER "'shape': (2, 3)}", CONV_ERR_UNSUPPORTED, "records"},
        {"{" F4 C_ORDER "'shape': (4294967296, 4294967296)}", CONV_ERR_LIMIT, "more elements"},
        {"{" F4 C_ORDER "'shape': (0, 4294967296, 4294967296)}", CONV_ERR_LIMIT, "more elements"},
        {"{" F4 C_ORDER "'shape': (99999999999999999999,)}", CONV_ERR_FORMAT, "shape"},
        {"{" F4 C_ORDER "'shape': (-1,)}", CONV_ERR_FORMAT, "shape"},
        {"{" F4 C_ORDER "'shape': (3)}", CONV_ERR_FORMAT, "shape"},
        {"{" F4 C_ORDER "'shape': (3 4)}", CONV_ERR_FORMAT, "shape"},
        {"{" F4 C_ORDER "'shape': (3,", CONV_ERR_FORMAT, "shape"},
        {"{" F4 C_ORDER "'shape': [3, 4]}", CONV_ERR_FORMAT, "shape"},
        {"{" F4 C_ORDER "'shape': (1,1,1,1,1,1,1,1,1)}", CONV_ERR_LIMIT, "axes"},
        {"{" F4 C_ORDER "'shape': (3, 4)", CONV_ERR_FORMAT, "end where it should"},
        {"{" F4 C_ORDER "'shape': (3, 4)} x", CONV_ERR_FORMAT, "end where it should"},
        {"{" F4 C_ORDER "'shape': (3, 4)}}", CONV_ERR_FORMAT, "end where it should"},
        {"{" F4 C_ORDER "}", CONV_ERR_FORMAT, "lacks"},
        {"{" F4 F4 C_ORDER "'shape': (3, 4)}", CONV_ERR_FORMAT, "descr"},
        {"{" F4 C_ORDER "'shape': (3, 4), 'more': 1}", CONV_ERR_FORMAT, "more"},
        {"{" F4 "'fortran_order': 0, 'shape': (3, 4)}", CONV_ERR_FORMAT, "fortran_order"},
        {"{'descr': '<f\\x34', " C_ORDER "'shape': (3, 4)}", CONV_ERR_FORMAT, "descr"},
        {"import os", CONV_ERR_FORMAT, "not a dict"},
        {"{}", CONV_ERR_FORMAT, "lacks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct conv_npy npy;
        struct conv_err err = {0};
        enum conv_status status = parse(&npy, 1, cases[i].dict, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].text))
            fail_msg("%s: status %d, '%s'", cases[i].dict, (int)status, err.text);
    }
}

UNIT_TEST(refuses_other_files)
{
    static const struct {
        const char *head;
        enum conv_status status;
    } cases[] = {
        {"\x89PNG\r\n\x1a\n....", CONV_ERR_FORMAT},
        {"\x93NUMPY\0\0....", CONV_ERR_UNSUPPORTED},
        {"\x93NUMPY\4\0....", CONV_ERR_UNSUPPORTED},
        {"\x93NUMPY\1\1....", CONV_ERR_UNSUPPORTED},
        {"\x93NUMPY\1\0\1\0..", CONV_ERR_FORMAT},
        {"\x93NUMPY\2\0\xff\xff\xff\xff", CONV_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct conv_err err = {0};
        size_t header;
        const uint8_t *head = (const uint8_t *)cases[i].head;
        assert_int_equal(conv_npy_header_bytes(head, 12, &header, &err), cases[i].status);
        assert_int_equal(conv_npy_header_bytes(head, 11, &header, &err), CONV_ERR_FORMAT);
    }
}

UNIT_TEST(reads_its_own_headers)
{
    static const struct conv_tensor_shape shapes[] = {
        {4, {INT64_C(1) << 40, 1, 1, 7}}, {3, {1, 2, 3}}, {1, {5}}, {0, {0}}};
    for (int element = CONV_ELEMENT_U8; element <= CONV_ELEMENT_F32; element++) {
        if (element == CONV_ELEMENT_BF16) // which no header can name
            continue;
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            uint8_t header[CONV_NPY_OWN_HEADER];
            size_t size = conv_npy_write(header, (enum conv_element)element, &shapes[i],
                                         i == 0 ? CONV_NPY_OWN_HEADER : 0),
                   needed;
            struct conv_npy npy;
            struct conv_err err = {0};
            assert_int_equal(size % 64, 0);
            assert_ok(conv_npy_header_bytes(header, size, &needed, &err));
            assert_int_equal(needed, size);
            assert_ok(conv_npy_parse(&npy, header, size, &err));
            assert_int_equal(npy.element, element);
            assert_false(npy.is_swapped);
            assert_int_equal(npy.shape.axes, shapes[i].axes);
            for (int k = 0; k < shapes[i].axes; k++)
                assert_int_equal(npy.shape.side[k], shapes[i].side[k]);
        }
    }
}

UNIT_TEST(converts_elements)
{
    struct conv_npy npy;
    struct conv_err err = {0};
    assert_ok(parse(&npy, 1, "{'descr': '>f8', 'fortran_order': False, 'shape': (2,)}", &err));
    // 1 + 2^-24 lies half way between two floats and rounds to the even one, 1; then -0.1.
    uint8_t doubles[] = {0x3f, 0xf0, 0,    0,    0x10, 0,    0,    0,
                         0xbf, 0xb9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a};
    float floats[2];
    conv_npy_convert(&npy, floats, doubles, 2);
    assert_float_equal(floats[0], 1, 0);
    assert_float_equal(floats[1], -0.1f, 0);
    conv_npy_convert(&npy, doubles, doubles, 2); // in place
    assert_memory_equal(doubles, floats, sizeof floats);
    assert_ok(parse(&npy, 1, "{'descr': '>u2', 'fortran_order': False, 'shape': (2,)}", &err));
    uint16_t words[2];
    conv_npy_convert(&npy, words, "\x12\x34\xab\xcd", 2);
    assert_int_equal(words[0], 0x1234);
    assert_int_equal(words[1], 0xabcd);
}

UNIT_MAIN(NULL, NULL)
