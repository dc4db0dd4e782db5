// SPDX-License-Identifier: MIT
// Members of JSON objects, whole and damaged.
#include "report/json.h"
#include "support/unit.h"

static const char *text_of(const char *object, const char *name)
{
    static char text[16];
    struct conv_json_value value;
    return conv_json_read(&value, object, name) && conv_json_text(&value, text, sizeof text) ? text
                                                                                             : NULL;
}

UNIT_TEST(members_are_found_by_name)
{
    const char *object = " {\"a\" : \"x\", \"b\":{\"c\":\"inner\",\"d\":[1,{\"e\":2}]},\n"
                         "\"c\":\"outer\", \"n\":18446744073709551615, \"f\":-1.5e2, \"t\":true} ";
    struct conv_json_value value;
    uint64_t integer = 0;
    double number = 0;
    assert_string_equal(text_of(object, "a"), "x");
    assert_string_equal(text_of(object, "c"), "outer");
    assert_true(conv_json_read(&value, object, "b"));
    assert_string_equal(text_of(value.text, "c"), "inner");
    assert_null(text_of(object, "d"));
    assert_true(conv_json_read(&value, object, "n") && conv_json_integer(&value, &integer));
    assert_true(integer == UINT64_MAX);
    assert_true(conv_json_read(&value, object, "f") && conv_json_number(&value, &number));
    assert_true(number == -150 && !conv_json_integer(&value, &integer));
    assert_true(conv_json_read(&value, object, "t") && !conv_json_number(&value, &number));
    assert_true(conv_json_is_object(object));
}

UNIT_TEST(texts_are_unescaped_and_fit)
{
    assert_string_equal(text_of("{\"a\":\"\\\"\\\\\\/\\n\\u0041\\u00e4\"}", "a"), "\"\\/\nA\u00e4");
    assert_string_equal(text_of("{\"a\":\"\\ud83d\\ude42\"}", "a"), "\U0001F642");
    assert_string_equal(text_of("{\"a\":\"123456789012345\"}", "a"), "123456789012345");
    assert_null(text_of("{\"a\":\"1234567890123456\"}", "a"));
    static const char *const bad[] = {"{\"a\":\"\\x\"}",     "{\"a\":\"\\u12\"}",
                                      "{\"a\":\"\\u00g0\"}", "{\"a\":\"\\u0000\"}",
                                      "{\"a\":\"\\ud83d\"}", "{\"a\":1}"};
    assert_string_equal(text_of("{\"a\":\"\"}", "a"), "");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_null(text_of(bad[i], "a"));
}

// Every beginning of an object, each in memory of its own size, so that a sanitizer sees reads past
// the end.
UNIT_TEST(what_is_cut_short_is_no_object)
{
    const char *object = "{\"a\":[1,\"\\\"]\",{\"b\":{}}],\"c\":\"\\u0041\",\"d\":null}";
    struct conv_json_value value;
    for (size_t size = 0; size < strlen(object); size++) {
        char *cut = calloc(1, size + 1);
        memcpy(cut, object, size);
        assert_false(conv_json_is_object(cut));
        (void)conv_json_read(&value, cut, "d");
        free(cut);
    }
    static const char *const bad[] = {"",
                                      "[]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1}x",
                                      "{,}",
                                      "{\"a\":1 \"b\":2}",
                                      "{a:1}",
                                      "{\"a\":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(conv_json_is_object(bad[i]));
    assert_true(conv_json_is_object("{}"));
}

UNIT_MAIN(NULL, NULL)
