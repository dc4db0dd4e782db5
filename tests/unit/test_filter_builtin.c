// SPDX-License-Identifier: MIT
// The table of built-in filters against the files that it embeds, and against the meaning of their
// names.
#include <stdio.h>

#include "filter/filter.h"
#include "support/unit.h"

static void parse(struct conv_filter *filter, const struct conv_filter_builtin *row)
{
    struct conv_err err = {0};
    if (conv_filter_parse_matrix(filter, row->text, strlen(row->text), row->name, &err) != CONV_OK)
        fail_msg("%s", err.text);
}

static const struct conv_filter_builtin *find(const char *name)
{
    int count;
    const struct conv_filter_builtin *rows = conv_filter_builtins(&count);
    for (int i = 0; i < count; i++) {
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    }
    fail_msg("no built-in filter '%s'", name);
    return NULL;
}

UNIT_TEST(every_row_is_a_filter)
{
    int count;
    const struct conv_filter_builtin *rows = conv_filter_builtins(&count);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        struct conv_filter filter;
        parse(&filter, &rows[i]);
        assert_string_equal(filter.name, rows[i].name);
        assert_ok(conv_filter_check(&filter, NULL));
        assert_true(conv_filter_is_exact(&filter));
        filter.magnitude = rows[i].magnitude;
        assert_ok(conv_filter_check(&filter, NULL));
        assert_true(conv_filter_is_exact(&filter) != rows[i].magnitude);
        assert_true(filter.width == filter.height);
        assert_true(strlen(rows[i].summary) > 0 && strlen(rows[i].summary) <= 60);
        assert_null(strchr(rows[i].summary, '\n'));
        // libvips refuses a short header before a first coefficient of 0.
        int numbers[4];
        char end;
        assert_int_equal(sscanf(rows[i].text, "%d %d %d %d%c", &numbers[0], &numbers[1],
                                &numbers[2], &numbers[3], &end),
                         5);
        assert_int_equal(end, '\n');
        for (int j = 0; j < i; j++)
            assert_string_not_equal(rows[i].name, rows[j].name);
    }
}

// --size relies on this: a family is named after one member, no two members have the same size.
UNIT_TEST(families_hold_together)
{
    int count;
    const struct conv_filter_builtin *rows = conv_filter_builtins(&count);
    for (int i = 0; i < count; i++) {
        struct conv_filter one, other;
        assert_string_equal(find(rows[i].family)->family, rows[i].family);
        parse(&one, &rows[i]);
        for (int j = 0; j < i; j++) {
            parse(&other, &rows[j]);
            if (strcmp(rows[i].family, rows[j].family) == 0)
                assert_int_not_equal(one.width, other.width);
            // No file was copied under a second name.
            assert_false(rows[i].magnitude == rows[j].magnitude && one.width == other.width &&
                         one.scale == other.scale &&
                         memcmp(one.coef, other.coef, sizeof one.coef) == 0);
        }
    }
}

UNIT_TEST(sums_keep_or_drop_the_brightness)
{
    static const struct {
        const char *name;
        double sum; // of the coefficients, divided by the scale
    } expected[] = {
        {"identity", 1},  {"blur", 1},       {"blur5", 1},     {"gaussian", 1},  {"gaussian5", 1},
        {"motion", 1},    {"sharpen", 1},    {"sharpen5", 1},  {"unsharp", 1},   {"emboss", 1},
        {"emboss5", 1},   {"edge", 0},       {"laplacian", 0}, {"sobel-x", 0},   {"sobel-y", 0},
        {"prewitt-x", 0}, {"laplacian5", 0}, {"scharr-x", 0},  {"prewitt-y", 0}, {"scharr-y", 0},
        {"sobel", 0},     {"prewitt", 0},    {"scharr", 0},
    };
    int count;
    conv_filter_builtins(&count);
    assert_int_equal(count, sizeof expected / sizeof expected[0]);
    for (int i = 0; i < count; i++) {
        struct conv_filter filter;
        parse(&filter, find(expected[i].name));
        if (conv_filter_sum(&filter) / filter.scale != expected[i].sum)
            fail_msg("%s sums to %g / %g", filter.name, conv_filter_sum(&filter), filter.scale);
    }
}

UNIT_TEST(numbers_are_the_known_ones)
{
    static const struct {
        const char *name, *text;
    } known[] = {
        {"emboss", "3 3 1 0\n-2 -1 0\n-1 1 1\n0 1 2\n"},
        {"sharpen", "3 3 1 0\n0 -1 0\n-1 5 -1\n0 -1 0\n"},
        {"edge", "3 3 1 0\n-1 -1 -1\n-1 8 -1\n-1 -1 -1\n"},
        {"laplacian", "3 3 1 0\n0 1 0\n1 -4 1\n0 1 0\n"},
        {"sobel-x", "3 3 1 0\n-1 0 1\n-2 0 2\n-1 0 1\n"},
        {"sobel-y", "3 3 1 0\n-1 -2 -1\n0 0 0\n1 2 1\n"},
        {"prewitt-x", "3 3 1 0\n-1 0 1\n-1 0 1\n-1 0 1\n"},
        {"prewitt-y", "3 3 1 0\n-1 -1 -1\n0 0 0\n1 1 1\n"},
        {"scharr-x", "3 3 1 0\n-3 0 3\n-10 0 10\n-3 0 3\n"},
        {"scharr-y", "3 3 1 0\n-3 -10 -3\n0 0 0\n3 10 3\n"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_string_equal(find(known[i].name)->text, known[i].text);

    struct conv_filter gaussian5, unsharp;
    parse(&gaussian5, find("gaussian5"));
    parse(&unsharp, find("unsharp"));
    for (int k = 0; k < 25; k++)
        assert_true(unsharp.coef[k] == (k == 12 ? 512 : 0) - gaussian5.coef[k]);
}

UNIT_MAIN(NULL, NULL)
