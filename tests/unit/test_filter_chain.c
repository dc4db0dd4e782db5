// SPDX-License-Identifier: MIT
// From "emboss,blur" and its options to filters, and the names of the borders.
#include <math.h>
#include <stdio.h>

#include "filter/filter.h"
#include "support/folder.h"
#include "support/unit.h"

static struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
static struct conv_err err;
static int count;

static void accept(const char *text, struct conv_filter_settings options, int expected)
{
    count = 0;
    if (conv_filter_parse_chain(filters, &count, text, &options, &err) != CONV_OK)
        fail_msg("'%s': %s", text, err.text);
    assert_int_equal(count, expected);
}

static void refuse(const char *text, struct conv_filter_settings options, const char *reason)
{
    count = -7;
    assert_int_equal(conv_filter_parse_chain(filters, &count, text, &options, &err),
                     CONV_ERR_USAGE);
    assert_int_equal(count, -7);
    if (!strstr(err.text, reason))
        fail_msg("'%s' does not say '%s'", err.text, reason);
}

#define OPTIONS(...) ((struct conv_filter_settings){__VA_ARGS__})
#define NO_OPTIONS OPTIONS(.size = 0)

UNIT_TEST(chains_are_read)
{
    accept("emboss", NO_OPTIONS, 1);
    assert_string_equal(filters[0].name, "emboss");
    assert_true(filters[0].coef[0] == -2 && filters[0].coef[8] == 2);
    accept("sobel-x,blur5,emboss", NO_OPTIONS, 3);
    assert_string_equal(filters[1].name, "blur5");
    assert_int_equal(filters[1].width, 5);
    accept("blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur",
           NO_OPTIONS, 16);
}

UNIT_TEST(malformed_chains_are_refused)
{
    refuse("", NO_OPTIONS, "filter 1 of '' is empty");
    refuse("blur,", NO_OPTIONS, "filter 2 of 'blur,' is empty");
    refuse(",blur", NO_OPTIONS, "filter 1");
    refuse("blur,,blur", NO_OPTIONS, "filter 2");
    refuse("blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur,blur",
           NO_OPTIONS, "more than 16 filters");
    refuse("embos", NO_OPTIONS,
           "unknown filter 'embos'; did you mean 'emboss'? (conv list shows all)");
    refuse("emboss, blr", NO_OPTIONS, "did you mean 'blur'?");
    refuse("gauss", NO_OPTIONS, "did you mean 'gaussian'?");
    refuse("custon", NO_OPTIONS, "did you mean 'custom'?");
    refuse("median", NO_OPTIONS, "unknown filter 'median' (conv list shows all; for a file write");
    char huge[8192];
    memset(huge, 'a', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    refuse(huge, NO_OPTIONS, "8191 characters");
    huge[4000] = '\0';
    refuse(huge, NO_OPTIONS, "unknown filter 'aaa");
}

UNIT_TEST(size_chooses_within_the_family)
{
    accept("emboss,blur", OPTIONS(.size = 5), 2);
    assert_string_equal(filters[0].name, "emboss5");
    assert_string_equal(filters[1].name, "blur5");
    accept("blur5,unsharp", OPTIONS(.size = 5), 2);
    assert_string_equal(filters[0].name, "blur5");
    accept("emboss", OPTIONS(.size = 3), 1);
    assert_string_equal(filters[0].name, "emboss");
    refuse("unsharp", OPTIONS(.size = 3), "'unsharp' comes in 5x5 only");
    refuse("sobel-x", OPTIONS(.size = 5), "'sobel-x' comes in 3x3 only");
    refuse("blur", OPTIONS(.size = 7), "'blur' comes in 3x3, 5x5 only");
    refuse("blur5", OPTIONS(.size = 3), "'blur5' is 5x5; write 'blur'");
    refuse("custom", OPTIONS(.size = 5, .kernel = "3x1: 1 1 1"), "'custom' is 3x1");
    accept("custom", OPTIONS(.size = 3, .kernel = "1 1 1 1 1 1 1 1 1"), 1);
}

UNIT_TEST(divisor_bias_and_flip_apply_to_each)
{
    accept("emboss,sharpen5", OPTIONS(.divisor = "2.5", .bias = "-128", .flip = true), 2);
    for (int i = 0; i < 2; i++)
        assert_true(filters[i].scale == 2.5 && filters[i].offset == -128);
    assert_true(filters[0].coef[0] == 2 && filters[0].coef[8] == -2);
    accept("custom", OPTIONS(.kernel = "1 2 1 2 4 2 1 2 1", .divisor = "sum"), 1);
    assert_true(filters[0].scale == 16);
    accept("custom", OPTIONS(.kernel = "1 2 1 2 4 2 1 2 1"), 1);
    assert_true(filters[0].scale == 1); // never normalised unasked
    accept("custom", OPTIONS(.kernel = "3x1: -1 -2 -1", .divisor = "sum"), 1);
    assert_true(filters[0].scale == -4);
    refuse("blur,sobel-x", OPTIONS(.divisor = "sum"), "the coefficients of 'sobel-x' sum to 0");
    // 0.1 + 0.2 - 0.3 is 5.6e-17 in double precision.
    refuse("custom", OPTIONS(.kernel = "3x1: .1 .2 -.3", .divisor = "sum"), "sum to 0");
    refuse("blur", OPTIONS(.divisor = "0"), "the divisor must not be 0");
    refuse("blur", OPTIONS(.divisor = "total"), "expected a number, found 'total'");
    refuse("blur", OPTIONS(.divisor = ""), "expected a number, found ''");
    refuse("blur", OPTIONS(.divisor = "9 9"), "expected a number");
    refuse("blur", OPTIONS(.divisor = "1e10"), "out of range");
    refuse("blur", OPTIONS(.divisor = "1e-30"), "filter 'blur': the coefficient in row 1");
    refuse("blur", OPTIONS(.bias = "70000"), "the number '70000' is out of range");
    refuse("blur", OPTIONS(.bias = "half"), "expected a number, found 'half'");
    refuse("custom", OPTIONS(.kernel = "3x1: 2147483647 2147483647 1", .divisor = "sum"),
           "the divisor is");
}

UNIT_TEST(custom_and_kernel_belong_together)
{
    accept("emboss,custom", OPTIONS(.kernel = "3x1: 1 2 1"), 2);
    assert_string_equal(filters[1].name, "custom");
    refuse("custom", NO_OPTIONS, "the filter 'custom' needs a kernel");
    refuse("emboss", OPTIONS(.kernel = "3x1: 1 2 1"), "'emboss' does not use");
    refuse("custom", OPTIONS(.kernel = "3x1: 1 2"), "3x1 takes 3 numbers; 2 given");
}

UNIT_TEST_IN(files_are_elements, folder_make, folder_remove)
{
    char text[300];
    folder_write("matrix", "3 1 4 0\n1 2 1\n");
    snprintf(text, sizeof text, "%s,blur", folder_path("matrix"));
    accept(text, NO_OPTIONS, 2);
    assert_int_equal(filters[0].width, 3);
    assert_true(filters[0].scale == 4);
    int status = conv_filter_parse_chain(filters, &count, "nowhere.mat", &NO_OPTIONS, &err);
    assert_int_equal(status, CONV_ERR_IO);
    assert_non_null(strstr(err.text, "nowhere.mat"));
}

UNIT_TEST(borders_have_names)
{
    static const struct {
        const char *text;
        enum conv_border border;
        float value;
    } good[] = {
        {"replicate", CONV_BORDER_REPLICATE, 0},      {"edge", CONV_BORDER_REPLICATE, 0},
        {"clamp", CONV_BORDER_REPLICATE, 0},          {"nearest", CONV_BORDER_REPLICATE, 0},
        {"reflect", CONV_BORDER_REFLECT, 0},          {"reflect101", CONV_BORDER_REFLECT101, 0},
        {"reflect-101", CONV_BORDER_REFLECT101, 0},   {"wrap", CONV_BORDER_WRAP, 0},
        {"constant", CONV_BORDER_CONSTANT, 0},        {"constant:0", CONV_BORDER_CONSTANT, 0},
        {"constant:255", CONV_BORDER_CONSTANT, 255},  {"constant:256", CONV_BORDER_CONSTANT, 256},
        {"constant:0.5", CONV_BORDER_CONSTANT, 0.5},  {"constant:-1", CONV_BORDER_CONSTANT, -1},
        {"constant:1e3", CONV_BORDER_CONSTANT, 1000},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        enum conv_border border = (enum conv_border)99;
        float value = 99;
        assert_ok(conv_filter_parse_border(&border, &value, good[i].text, &err));
        assert_int_equal(border, good[i].border);
        assert_true(value == good[i].value);
        bool whole = value >= 0 && value <= 255 && value == truncf(value);
        assert_int_equal(conv_filter_check_border(value, &err), whole ? CONV_OK : CONV_ERR_USAGE);
    }
    assert_string_equal(conv_filter_border_name(CONV_BORDER_REPLICATE), "replicate");
    assert_string_equal(conv_filter_border_name(CONV_BORDER_REFLECT), "reflect");
    assert_string_equal(conv_filter_border_name(CONV_BORDER_REFLECT101), "reflect101");
    assert_string_equal(conv_filter_border_name(CONV_BORDER_WRAP), "wrap");
    assert_string_equal(conv_filter_border_name(CONV_BORDER_CONSTANT), "constant");
}

UNIT_TEST(wrong_borders_are_explained)
{
    static const struct {
        const char *text, *reason;
    } bad[] = {
        {"mirror", "'mirror' means reflect (edge repeated) in some programs and reflect101 (edge "
                   "not repeated) in others; say which"},
        {"refelct", "did you mean 'reflect'?"},
        {"constnat", "did you mean 'constant'?"},
        {"", "unknown border ''"},
        {"mosaic", "there are replicate, reflect, reflect101, wrap, constant[:V]"},
        {"constant:", "takes a number, not ''"},
        {"constant:1e31", "not '1e31'"},
        {"constant:nan", "not 'nan'"},
        {"constant:red", "not 'red'"},
        {"wrap:3", "unknown border 'wrap:3'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        enum conv_border border;
        float value;
        assert_int_equal(conv_filter_parse_border(&border, &value, bad[i].text, &err),
                         CONV_ERR_USAGE);
        if (!strstr(err.text, bad[i].reason))
            fail_msg("'%s' does not say '%s'", err.text, bad[i].reason);
    }
}

UNIT_MAIN(NULL, NULL)
