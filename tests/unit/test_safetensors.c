// SPDX-License-Identifier: MIT
// Headers of .safetensors files, and what a message says about a tensor that is not there.

#include "support/unit.h"
#include "tensor/tensor_formats.h"

// The header in memory that ends with it, so that a sanitizer sees reads beyond.
static enum conv_status find(struct conv_safetensors *found, const char *json, uint64_t data,
                             const char *name, struct conv_err *err)
{
    size_t size = strlen(json);
    char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, json, size);
    enum conv_status status =
        conv_safetensors_find(found, copy, size, CONV_SAFETENSORS_HEAD + size + data, name, err);
    free(copy);
    return status;
}

UNIT_TEST(finds_tensors)
{
    const char *json = "{\"__metadata__\":{\"format\":\"pt\",\"a\":[1,{\"b\":[]},-2.5e3,null,{}]},"
                       "\"conv1.bias\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                       "\"conv1.weight\" : {\"shape\":[2,1,1,3],\"dtype\":\"F32\","
                       "\"data_offsets\":[4,28]},\n"
                       "\"caf\\u00e9\\ud83d\\ude00\":{\"dtype\":\"BF16\",\"shape\":[],"
                       "\"data_offsets\":[28,30]}}   ";
    struct conv_safetensors found;
    struct conv_err err = {0};
    assert_ok(find(&found, json, 30, "conv1.weight", &err));
    assert_int_equal(found.type, CONV_SAFETENSORS_F32);
    assert_int_equal(found.shape.axes, 4);
    assert_int_equal(found.shape.side[3], 3);
    assert_int_equal(found.offset, CONV_SAFETENSORS_HEAD + strlen(json) + 4);
    assert_int_equal(found.bytes, 24);
    assert_ok(find(&found, json, 30, "conv1.bias", &err));
    assert_int_equal(found.type, CONV_SAFETENSORS_F16);
    assert_ok(find(&found, json, 30, "caf\xc3\xa9\xf0\x9f\x98\x80", &err));
    assert_int_equal(found.type, CONV_SAFETENSORS_BF16);
    assert_int_equal(find(&found, json, 29, "caf\xc3\xa9\xf0\x9f\x98\x80", &err), CONV_ERR_FORMAT);
    assert_non_null(strstr(err.text, "cut off"));
}

#define TENSOR(TYPE, SHAPE, OFFSETS)                                                               \
    "{\"dtype\":\"" TYPE "\",\"shape\":[" SHAPE "],\"data_offsets\":[" OFFSETS "]}"

UNIT_TEST(suggests_names)
{
    static const char json[] = "{\"features.conv1.weight\":" TENSOR("F32", "1", "0,4") //
        ",\"features.conv2.weight\":" TENSOR("F32", "1", "0,4")                        //
        ",\"head.bias\":" TENSOR("F32", "1", "0,4") "}";
    static const struct {
        const char *name, *text;
    } cases[] = {
        {"features.conv1.wieght", "did you mean 'features.conv1.weight'?"},
        {"conv2.weight", "did you mean 'features.conv2.weight'?"},
        {"features.conv3.weight", "did you mean 'features.conv1.weight', 'features.conv2.weight'?"},
        {"x", "there are 3: 'features.conv1.weight', 'features.conv2.weight', 'head.bias'"},
        {"", "there are 3: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct conv_safetensors found;
        struct conv_err err = {0};
        assert_int_equal(find(&found, json, 4, cases[i].name, &err), CONV_ERR_USAGE);
        if (!strstr(err.text, cases[i].text))
            fail_msg("'%s': %s", cases[i].name, err.text);
    }
    struct conv_safetensors found;
    struct conv_err err = {0};
    assert_int_equal(find(&found, "{}", 0, "x", &err), CONV_ERR_USAGE);
    assert_non_null(strstr(err.text, "nor any other"));
}

UNIT_TEST(refuses_with_a_reason)
{
    static const struct {
        const char *json;
        enum conv_status status;
        const char *text;
    } cases[] = {
        {"", CONV_ERR_FORMAT, "byte 0"},
        {"[]", CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":" TENSOR("I64", "1", "0,8") "}", CONV_ERR_UNSUPPORTED, "I64"},
        {"{\"a\":" TENSOR("F32", "1", "0,8") "}", CONV_ERR_FORMAT, "does not match its shape"},
        {"{\"a\":" TENSOR("F32", "2", "4,12") "}", CONV_ERR_FORMAT, "cut off"},
        {"{\"a\":" TENSOR("F32", "2", "8,0") "}", CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":" TENSOR("F32", "4294967296,4294967296", "0,0") "}", CONV_ERR_FORMAT,
         "does not match its shape"},
        {"{\"a\":" TENSOR("F32", "1,1,1,1,1,1,1,1,1", "0,4") "}", CONV_ERR_LIMIT, "axes"},
        {"{\"a\":" TENSOR("F32", "-1", "0,4") "}", CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":" TENSOR("F32", "99999999999999999999", "0,4") "}", CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":" TENSOR("F32", "1", "0") "}", CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":" TENSOR("F32", "1", "0,4") ",\"a\":" TENSOR("F32", "1", "4,8") "}",
         CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":" TENSOR("F32", "1", "0,4") "} x", CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":" TENSOR("F32", "1", "0,4") ",}", CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":" TENSOR("F32", "1", "0,4"), CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", CONV_ERR_FORMAT, "damaged"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}",
         CONV_ERR_FORMAT, "damaged"},
        {"{\"\\ud800\":" TENSOR("F32", "1", "0,4") "}", CONV_ERR_FORMAT, "damaged"},
        {"{\"\\u0000\":" TENSOR("F32", "1", "0,4") "}", CONV_ERR_FORMAT, "damaged"},
        {"{\"__metadata__\":[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]}", CONV_ERR_FORMAT, "damaged"},
        {"{\"__metadata__\":{\"a\"}}", CONV_ERR_FORMAT, "damaged"},
        {"{\"__metadata__\":{\"a\":1,}}", CONV_ERR_FORMAT, "damaged"},
        {"{\"__metadata__\":[1 2]}", CONV_ERR_FORMAT, "damaged"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct conv_safetensors found;
        struct conv_err err = {0};
        enum conv_status status = find(&found, cases[i].json, 8, "a", &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].text))
            fail_msg("%s: status %d, '%s'", cases[i].json, (int)status, err.text);
    }
}

UNIT_TEST(checks_the_length_of_the_header)
{
    static const struct {
        const char *head;
        uint64_t file;
        enum conv_status status;
    } cases[] = {
        {"\2\0\0\0\0\0\0\0", 10, CONV_OK},
        {"\2\0\0\0\0\0\0\0", 9, CONV_ERR_FORMAT},
        {"\1\0\0\0\0\0\0\0", 100, CONV_ERR_FORMAT},
        {"\xff\xff\xff\xff\xff\xff\xff\xff", 100, CONV_ERR_FORMAT},
        {"\0\0\0\x10\0\0\0\0", (uint64_t)1 << 40, CONV_ERR_LIMIT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t header;
        struct conv_err err = {0};
        const uint8_t *head = (const uint8_t *)cases[i].head;
        assert_int_equal(conv_safetensors_header_bytes(head, 8, cases[i].file, &header, &err),
                         cases[i].status);
        assert_int_equal(conv_safetensors_header_bytes(head, 7, 7, &header, &err), CONV_ERR_FORMAT);
    }
}

UNIT_MAIN(NULL, NULL)
