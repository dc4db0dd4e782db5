// SPDX-License-Identifier: MIT
// Matrix files and --kernel: the filters read, and the error of each malformed text.
#include <math.h>
#include <stdio.h>

#include "filter/filter.h"
#include "support/folder.h"
#include "support/unit.h"

static struct conv_filter filter;
static struct conv_err err;

// Parses a copy without the final NUL in separate memory, so that a sanitizer detects reads beyond
// it.
static enum conv_status parse_bytes(const char *text, size_t size)
{
    char *copy = malloc(size + (size == 0));
    assert_non_null(copy);
    memcpy(copy, text, size);
    enum conv_status status = conv_filter_parse_matrix(&filter, copy, size, "dir/t.mat", &err);
    free(copy);
    return status;
}

static void accept_matrix(const char *text)
{
    if (parse_bytes(text, strlen(text)) != CONV_OK)
        fail_msg("%s", err.text);
}

static void refuse_matrix(const char *text, const char *where, const char *reason)
{
    char prefix[64];
    filter.width = -7;
    assert_int_equal(parse_bytes(text, strlen(text)), CONV_ERR_FORMAT);
    assert_int_equal(err.status, CONV_ERR_FORMAT);
    assert_int_equal(filter.width, -7); // left alone
    snprintf(prefix, sizeof prefix, "dir/t.mat:%s: ", where);
    if (strncmp(err.text, prefix, strlen(prefix)) != 0 || !strstr(err.text, reason))
        fail_msg("'%s' is not '%s...%s...'", err.text, prefix, reason);
}

static void expect(int width, int height, double scale, double offset, const double *coef)
{
    assert_int_equal(filter.width, width);
    assert_int_equal(filter.height, height);
    assert_true(filter.scale == scale && filter.offset == offset);
    for (int k = 0; k < width * height; k++)
        assert_true(filter.coef[k] == coef[k]);
}

UNIT_TEST(matrices_are_read)
{
    static const double emboss[] = {-2, -1, 0, -1, 1, 1, 0, 1, 2};
    static const char *const same[] = {
        "3 3 1 0\n-2 -1 0\n-1 1 1\n0 1 2\n",
        "3 3\n-2 -1 0\n-1 1 1\n0 1 2",
        "3 3 1\n-2 -1 0\n-1 1 1\n0 1 2\n",
        "3 3 1 0\r\n-2 -1 0\r\n-1 1 1\r\n0 1 2\r\n",
        "3 3 1 0\r-2 -1 0\r-1 1 1\r0 1 2\r",
        "\n  \n3 3 1 0\n\n-2 -1 0\n\n-1 1 1\n \t\n0 1 2\n\n \n",
        ("\xef\xbb\xbf"
         "3 3 1 0\n-2 -1 0\n-1 1 1\n0 1 2\n"),
        "3, 3, 1, 0\n-2,-1,0\n-1;1;1\n0 ,\t1 , 2\n",
        " 3\t3 1 0 \n -2 -1 -0\n-1. +1 1.0\n0e5 .1e1 20E-1 \n",
        "3 3 1 0\n-2,-1,0,\n-1,1,1,\n0,1,2,\n",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        accept_matrix(same[i]);
        expect(3, 3, 1, 0, emboss);
        assert_string_equal(filter.name, "t");
        assert_true(conv_filter_is_exact(&filter));
    }
    accept_matrix("5 1 -2.5 128.5\n1 2 3 4 0.1\n");
    expect(5, 1, -2.5, 128.5, (const double[]){1, 2, 3, 4, 0.1});
    assert_false(conv_filter_is_exact(&filter));
    accept_matrix("1 1\n2147483647\n");
    expect(1, 1, 1, 0, (const double[]){2147483647.0});
}

UNIT_TEST(largest_matrix_is_read)
{
    char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text, "31 31 961 0\n");
    for (int k = 0; k < 961; k++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%d%c", k % 97,
                                 k % 31 == 30 ? '\n' : ' ');
    accept_matrix(text);
    assert_int_equal(filter.width, 31);
    assert_true(filter.coef[960] == 960 % 97);
}

UNIT_TEST(malformed_matrices_are_told_where)
{
    refuse_matrix("", "1:1", "expected a matrix");
    refuse_matrix("\n \n", "3:1", "expected a matrix");
    refuse_matrix("3\n", "1:2", "height is missing");
    refuse_matrix("4 3 1 0\n", "1:1", "width is 4, but must be an odd number from 1 to 31");
    refuse_matrix("3 2\n", "1:3", "height is 2");
    refuse_matrix("3 33\n", "1:3", "height is 33");
    refuse_matrix("3 -3\n", "1:3", "height is -3");
    refuse_matrix("0 3\n", "1:1", "width is 0");
    refuse_matrix("3.5 3\n", "1:1", "width is 3.5");
    refuse_matrix("99999999999 3\n", "1:1", "out of range");
    refuse_matrix("3 3 0 0\n", "1:5", "scale is 0");
    refuse_matrix("3 3 1 70000\n", "1:7", "out of range");
    refuse_matrix("3 3 1 0 5\n", "1:9", "more than 4 numbers");
    refuse_matrix("3 3 1 0\n1 2 x\n", "2:5", "expected a number, found 'x'");
    refuse_matrix("3 3\r\n1 2 3\r\n1 2 1/9\r\n", "3:5", "found '1/9'");
    refuse_matrix("\xef\xbb\xbf"
                  "3 x\n",
                  "1:3", "found 'x'");
    refuse_matrix("3 3\n1 2 3\n1 2\n1 2 3\n", "3:4", "row 2 has 2 numbers, 3 expected");
    refuse_matrix("3 3\n1 2 3\n1 2 3 4 5\n1 2 3\n", "3:7", "row 2 has 5 numbers, 3 expected");
    refuse_matrix("3 3\n1\n", "2:2", "row 1 has 1 number, 3 expected");
    refuse_matrix("3 3\n1 2 3\n1 2 3\n", "4:1", "ends after 2 rows, 3 expected");
    refuse_matrix("3 3 1 0", "1:8", "ends after 0 rows, 3 expected");
    refuse_matrix("1 1\n5\n\n 6\n", "4:2", "unexpected text after the last row (1 expected)");
    refuse_matrix("1 1\n5\n# the end\n", "3:1", "unexpected text after");
    refuse_matrix("3 1\n1,,2,3\n", "2:3", "found ','");
    refuse_matrix("3 1\n,1,2,3\n", "2:1", "found ','");
    refuse_matrix("1 1\n1e10\n", "2:1", "out of range");
    refuse_matrix("1 1 1e-3\n2147483647\n", "2:1", "divided by the scale");
}

UNIT_TEST(only_decimal_numbers_are_numbers)
{
    static const char *const bad[] = {
        "nan",
        "-inf",
        "0x10",
        "0x1p3",
        "1e",
        "e5",
        ".",
        "-",
        "+",
        "--1",
        "1.2.3",
        "\"1\"",
        ("\xe2\x88\x92"
         "1"),
        "\x1b[31m",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "1 1\n%s\n", bad[i]);
        refuse_matrix(text, "2:1", "expected a number, found '"); // escaped where it is printed
    }
    refuse_matrix("1 1\n1e999\n", "2:1", "out of range");
    refuse_matrix("1 1\n1e-999\n", "2:1", "out of range");

    char digits[256] = "1 1\n0.";
    memset(digits + 6, '3', 200);
    refuse_matrix(digits, "2:1", "expected a number, found '0.3");
    assert_int_equal(parse_bytes("1 1\n1\0\n", 7), CONV_ERR_FORMAT);
    assert_non_null(strstr(err.text, "found '1\xe2\x90\x80'"));
    assert_int_equal(parse_bytes("1 1\n1\n\0", 7), CONV_ERR_FORMAT);
}

// Every beginning of a good text, every byte of it replaced: no crash, no step beyond the end.
UNIT_TEST(damaged_matrices_do_no_harm)
{
    static const char good[] = "3 3 1 0\r\n-2 -1 0\n-1,1e0;1\n0 1 .5\n";
    for (size_t size = 0; size < sizeof good - 1; size++) {
        parse_bytes(good, size);
        for (int byte = 0; byte < 256; byte++) {
            char text[sizeof good];
            memcpy(text, good, sizeof good);
            text[size] = (char)byte;
            if (parse_bytes(text, sizeof good - 1) == CONV_OK)
                assert_ok(conv_filter_check(&filter, &err));
        }
    }
}

UNIT_TEST(specs_are_read)
{
    static const double ramp[] = {1, 2, 1, 2, 4, 2, 1, 2, 1};
    static const char *const same[] = {
        "3x3: 1,2,1 2,4,2 1,2,1", "3:1,2,1,2,4,2,1,2,1", "1 2 1 2 4 2 1 2 1",
        "1 2 1\n2 4 2\n1 2 1\n",  "1 2 1; 2 4 2; 1 2 1", " 3X3 : 1 2 1 2 4 2 1 2 1 ",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_ok(conv_filter_parse_spec(&filter, same[i], &err));
        expect(3, 3, 1, 0, ramp);
        assert_string_equal(filter.name, "custom");
    }
    assert_ok(conv_filter_parse_spec(&filter, "5x1: -1 0 .5 0 1", &err));
    expect(5, 1, 1, 0, (const double[]){-1, 0, .5, 0, 1});
    assert_ok(conv_filter_parse_spec(&filter, "7", &err));
    expect(1, 1, 1, 0, (const double[]){7});
}

static void refuse_spec(const char *spec, const char *reason)
{
    assert_int_equal(conv_filter_parse_spec(&filter, spec, &err), CONV_ERR_USAGE);
    if (!strstr(err.text, reason))
        fail_msg("'%s' does not say '%s'", err.text, reason);
}

UNIT_TEST(malformed_specs_are_told_why)
{
    refuse_spec("", "0 given");
    refuse_spec("1 2 1 2 4 2 1 2", "9, 25, 49, ... numbers make a square kernel; 8 given "
                                   "(write WxH: for others)");
    refuse_spec("1 2 3 4", "4 given");
    refuse_spec("3x3: 1,2,1 2,4,2 1,2", "3x3 takes 9 numbers; 8 given");
    refuse_spec("3x3:", "3x3 takes 9 numbers; 0 given");
    refuse_spec("3: 1 1 1 1 1 1 1 1 1 1", "3x3 takes 9 numbers; 10 given");
    refuse_spec("2x2: 1 2 3 4", "character 1: 2x2: both sides must be odd");
    refuse_spec("3x33: 1", "both sides must be odd");
    refuse_spec("99999999999999999999x3: 1", "both sides must be odd");
    refuse_spec("0x0:", "both sides must be odd");
    refuse_spec("3x: 1 2 3", "both sides must be odd");
    refuse_spec("3x3+1+1: 1 2 3 4 5 6 7 8 9", "character 4: an origin cannot be given");
    refuse_spec("3x3>: 1 2 3 4 5 6 7 8 9", "character 4: expected WIDTHxHEIGHT:");
    refuse_spec(": 1", "character 1: expected WIDTHxHEIGHT:");
    refuse_spec("Sobel: 1", "character 1: expected WIDTHxHEIGHT:");
    refuse_spec("3x3 1 2 3", "character 1: expected a number, found '3x3'");
    refuse_spec("3: 1 2 3 4 nan 6 7 8 9", "character 12: expected a number, found 'nan'");
    refuse_spec("1,,2", "found ','");
    refuse_spec("1 1 1 1 0x5 1 1 1 1", "found '0x5'");

    char many[4096];
    for (size_t i = 0; i < 962; i++)
        memcpy(many + 2 * i, "1 ", 3);
    refuse_spec(many, "962 given");
    many[2 * 961] = '\0';
    assert_ok(conv_filter_parse_spec(&filter, many, &err));
    assert_int_equal(filter.width, 31);
}

UNIT_TEST_IN(files_are_loaded, folder_make, folder_remove)
{
    static char blanks[300 << 10];
    char spec[300];
    const char *path = folder_path("matrix");
    folder_write("matrix", "3 1 4 0\n1 2 1\n");
    assert_ok(conv_filter_load(&filter, path, &err));
    expect(3, 1, 4, 0, (const double[]){1, 2, 1});
    assert_string_equal(filter.name, "matrix");
    snprintf(spec, sizeof spec, "@%s", path);
    assert_ok(conv_filter_parse_spec(&filter, spec, &err));
    expect(3, 1, 4, 0, (const double[]){1, 2, 1});

    memset(blanks, ' ', sizeof blanks - 1);
    folder_write("matrix", blanks);
    assert_int_equal(conv_filter_load(&filter, folder_path("matrix"), &err), CONV_ERR_FORMAT);
    assert_int_equal(conv_filter_load(&filter, folder_path("none"), &err), CONV_ERR_IO);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(conv_filter_load(&filter, "/tmp", &err), CONV_ERR_IO);
    assert_non_null(strstr(err.text, "directory"));
}

UNIT_TEST(long_paths_leave_room_for_the_reason)
{
    char path[3000];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(conv_filter_parse_matrix(&filter, "1 1\nx", 5, path, &err), CONV_ERR_FORMAT);
    assert_non_null(strstr(err.text, "aaa:2:1: expected a number, found 'x'"));
    assert_ok(conv_filter_parse_matrix(&filter, "1 1\n1", 5, path, &err));
    assert_int_equal(strlen(filter.name), sizeof filter.name - 1);
    assert_int_equal(conv_filter_load(&filter, path, &err), CONV_ERR_IO);
    assert_non_null(strstr(err.text, "name too long"));
}

UNIT_TEST(checks_guard_filters_made_by_hand)
{
    const struct conv_filter good = {.width = 3, .height = 3, .scale = 1};
    filter = good;
    assert_ok(conv_filter_check(&filter, &err));
    const double bad[] = {(double)NAN, (double)INFINITY, 3e9};
    for (int i = 0; i < 3; i++) {
        filter = good;
        filter.scale = bad[i];
        assert_int_equal(conv_filter_check(&filter, &err), CONV_ERR_FORMAT);
        filter = good;
        filter.offset = bad[i];
        assert_int_equal(conv_filter_check(&filter, &err), CONV_ERR_FORMAT);
        filter = good;
        filter.coef[5] = bad[i];
        assert_int_equal(conv_filter_check(&filter, &err), CONV_ERR_FORMAT);
        assert_non_null(strstr(err.text, "row 2, column 3"));
    }
    filter = good;
    filter.height = 4;
    assert_int_equal(conv_filter_check(&filter, &err), CONV_ERR_FORMAT);
    filter = good;
    filter.scale = 0;
    assert_int_equal(conv_filter_check(&filter, &err), CONV_ERR_FORMAT);
}

UNIT_TEST(analysis_holds_at_the_limits)
{
    double column[31], row[31];
    accept_matrix("3 3\n2147483647 0 -2147483647\n0 0 0\n-2147483646 0 2147483646\n");
    assert_true(conv_filter_is_separable(&filter, column, row));
    assert_true(row[0] == 1 && row[2] == -1);
    assert_true(column[0] == 2147483647 && column[1] == 0 && column[2] == -2147483646);
    accept_matrix("1 3\n6\n-4\n10\n");
    assert_true(conv_filter_is_separable(&filter, column, row));
    assert_true(column[0] * row[0] == 6 && column[1] * row[0] == -4 && column[2] * row[0] == 10);
    // The products differ by 1 in 4e18, which double precision does not see.
    accept_matrix("3 3\n2147483647 2147483646 0\n2147483646 2147483645 0\n0 0 0\n");
    assert_false(conv_filter_is_separable(&filter, NULL, NULL));
    accept_matrix("3 3\n0 0 0\n0 0 0\n0 0 0\n");
    assert_false(conv_filter_is_separable(&filter, column, row));
    // A column times a row, but real: kernels filter it in one pass.
    accept_matrix("3 3\n0.01 0.1 0.01\n0.1 1 0.1\n0.01 0.1 0.01\n");
    assert_false(conv_filter_is_separable(&filter, NULL, NULL));
    accept_matrix("3 1 1 0.5\n1 2 1\n");
    assert_false(conv_filter_is_separable(&filter, NULL, NULL));

    accept_matrix("3 1\n1 2 4\n");
    assert_true(conv_filter_sum(&filter) == 7);
    conv_filter_flip(&filter);
    expect(3, 1, 1, 0, (const double[]){4, 2, 1});
}

UNIT_MAIN(NULL, NULL)
