// SPDX-License-Identifier: MIT
// Errors without option names, and how the command line prints them.
#include <errno.h>

#include "cli/commands.h"
#include "filter/filter.h"
#include "support/unit.h"

static struct conv_err err;
static char text[CONV_ERRORS_SIZE];

UNIT_TEST(every_hint_has_words)
{
    for (int hint = CONV_HINT_NONE + 1; hint < CONV_HINT_COUNT; hint++) {
        conv_err_hint(&err, (enum conv_hint)hint, 7, conv_err_usage(&err, "(cause)"));
        conv_errors_explain(text, sizeof text, &err);
        if (!strstr(text, "(cause)") || !strstr(text, "--") || strchr(text, '{'))
            fail_msg("hint %d: %s", hint, text);
    }
}

// EAGAIN says "Resource temporarily unavailable", which is not what a user can change.
UNIT_TEST(errors_of_threads_say_what_to_change)
{
    assert_int_equal(conv_err_workers(&err, 64), CONV_ERR_MEMORY);
    assert_string_equal(conv_errors_explain(text, sizeof text, &err),
                        "no memory for the worker threads (64); use fewer --jobs");
    assert_int_equal(conv_err_thread(&err, EAGAIN), CONV_ERR_IO);
    assert_non_null(strstr(err.text, "ulimit -u"));
    assert_int_equal(conv_err_thread(&err, EPERM), CONV_ERR_IO);
    assert_non_null(strstr(err.text, strerror(EPERM)));
}

UNIT_TEST(an_error_without_a_hint_is_its_text)
{
    conv_err_hint(&err, CONV_HINT_BIAS, 0, conv_err_usage(&err, "old"));
    conv_err_set(&err, CONV_ERR_IO, "no space on 'device {N}'");
    assert_string_equal(conv_errors_explain(text, sizeof text, &err), "no space on 'device {N}'");
    conv_err_hint(NULL, CONV_HINT_BIAS, 0, CONV_ERR_IO); // the caller asked for no text
}

UNIT_TEST(values_are_filled_in)
{
    static const struct {
        uint64_t value;
        const char *expected;
    } sizes[] = {{(uint64_t)300 << 20, "x: use --mem-limit 300M"},
                 {(uint64_t)5121 << 10, "x: use --mem-limit 5121K"},
                 {1025, "x: use --mem-limit 2K"}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        conv_err_hint(&err, CONV_HINT_MEM_LIMIT, sizes[i].value, conv_err_limit(&err, "x"));
        assert_string_equal(conv_errors_explain(text, sizeof text, &err), sizes[i].expected);
    }
}

UNIT_TEST(long_texts_are_cut)
{
    char small[24];
    conv_err_hint(&err, CONV_HINT_SIZE, 3, conv_err_usage(&err, "%0100d", 0));
    assert_string_equal(conv_errors_explain(small, sizeof small, &err), "--size 3: 0000000000000");
}

// The texts of every filter option, as they were before hints were introduced.
UNIT_TEST(filters_are_explained)
{
    static const struct {
        const char *chain;
        struct conv_filter_settings options;
        const char *expected;
    } cases[] = {
        {"unsharp", {.size = 3}, "--size 3: 'unsharp' comes in 5x5 only"},
        {"blur5", {.size = 3}, "--size 3: 'blur5' is 5x5; write 'blur'"},
        {"custom",
         {.kernel = "3x3: 1 2 1 2 4 2 1 2 1", .size = 5},
         "--size 5 chooses among built-in filters; 'custom' is 3x3"},
        {"sobel-x", {.divisor = "sum"}, "--divisor sum: the coefficients of 'sobel-x' sum to 0"},
        {"blur", {.divisor = "0"}, "--divisor: the divisor must not be 0"},
        {"blur", {.bias = "half"}, "--bias: expected a number, found 'half'"},
        {"custom", {0}, "the filter 'custom' needs a kernel: --kernel SPEC"},
        {"custom", {.kernel = "3x1: 1 2"}, "--kernel: 3x1 takes 3 numbers; 2 given"},
        {"custom", {.kernel = "3x3 1"}, "--kernel, character 1: expected a number, found '3x3'"},
        {"blur",
         {.kernel = "1"},
         "--kernel: it defines the filter 'custom', which 'blur' does not use"},
    };
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int count;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(
            conv_filter_parse_chain(filters, &count, cases[i].chain, &cases[i].options, &err),
            CONV_ERR_USAGE);
        assert_string_equal(conv_errors_explain(text, sizeof text, &err), cases[i].expected);
    }
}

UNIT_MAIN(NULL, NULL)
