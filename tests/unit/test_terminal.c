// SPDX-License-Identifier: MIT
// The progress line at every width of a terminal, and lines about images in the order of the images
// (src/report/terminal.h).
#include <stdio.h>

#include "report/terminal.h"
#include "support/random.h"
#include "support/unit.h"

// --- the progress --------------------------------------------------------------------------------

static const char *bar(int columns, const struct conv_progress_state *state)
{
    static char text[512];
    conv_progress_format_bar(text, sizeof text, columns, state);
    return text;
}

static const struct conv_progress_state half = {
    .over = 2134, .failed = 3, .total = 5000, .is_complete = true, .rate = 67};

UNIT_TEST(test_parts_that_fit)
{
    assert_string_equal(bar(200, &half),
                        "[========================>                                 ]   42 %  "
                        "2134 of 5000  67 img/s  0:43 left  3 failed");
    assert_string_equal(bar(80, &half), "[=========>             ]   42 %  2134 of 5000  67 img/s  "
                                        "0:43 left  3 failed");
    assert_string_equal(bar(62, &half), " 42 %  2134 of 5000  67 img/s  0:43 left  3 failed");
    assert_string_equal(bar(43, &half), " 42 %  2134 of 5000  0:43 left  3 failed");
    assert_string_equal(bar(40, &half), " 42 %  0:43 left  3 failed");
    assert_string_equal(bar(20, &half), " 42 %  3 failed");
    assert_string_equal(bar(13, &half), " 42 %");
    assert_string_equal(bar(4, &half), "");
}

UNIT_TEST(test_what_is_unknown)
{
    struct conv_progress_state unknown = {.over = 12, .rate = 0.26};
    assert_string_equal(bar(80, &unknown), "12 done  0.3 img/s");
    struct conv_progress_state counted = {.over = 12, .total = 70000, .rate = 10};
    assert_string_equal(bar(80, &counted), "12 of at least 70000  10 img/s");
    assert_string_equal(bar(30, &counted), "12 of at least 70000");
    struct conv_progress_state begun = {.total = 9, .is_complete = true};
    assert_string_equal(bar(40, &begun), "[>                   ]    0 %  0 of 9");
    struct conv_progress_state done = {.over = 9, .total = 9, .is_complete = true, .rate = 3};
    assert_string_equal(bar(46, &done), "[===============]  100 %  9 of 9  3.0 img/s");
}

UNIT_TEST(test_every_width_and_number)
{
    static const uint64_t totals[] = {0, 1, 999, 1000000, UINT64_MAX / 2};
    static const double rates[] = {0, 0.001, 9.96, 123456};
    for (int columns = 1; columns < 300; columns++)
        for (int i = 0; i < 5 * 4 * 2 * 2; i++) {
            struct conv_progress_state s = {
                .total = totals[i % 5],
                .over = totals[i % 5] / 3 + 1,
                .rate = rates[i / 5 % 4],
                .is_complete = i / 20 % 2,
                .failed = i / 40 ? totals[i % 5] / 7 : 0,
            };
            size_t length = strlen(bar(columns, &s));
            assert_true(columns < 3 ? length == 0 : length <= (size_t)columns - 3);
        }
}

UNIT_TEST(test_line)
{
    char text[512];
    conv_progress_format_line(text, sizeof text, &half);
    assert_string_equal(text, "2134 of 5000 (42 %), 67 img/s, 0:43 left, 3 failed");
    struct conv_progress_state slow = {.over = 1, .total = 30000, .is_complete = true, .rate = 0.5};
    conv_progress_format_line(text, sizeof text, &slow);
    assert_string_equal(text, "1 of 30000 (0 %), 0.5 img/s, 16:39:58 left");
    struct conv_progress_state unknown = {.over = 12};
    conv_progress_format_line(text, sizeof text, &unknown);
    assert_string_equal(text, "12 done");
}

// --- lines in order ------------------------------------------------------------------------------

static struct conv_order order;
static char *printed;
static size_t length;
static FILE *stream;

static int begin(void **)
{
    memset(&order, 0, sizeof order);
    stream = open_memstream(&printed, &length);
    return stream ? 0 : -1;
}

static int end(void **)
{
    fclose(stream);
    free(printed);
    return 0;
}

static void add(uint64_t number)
{
    char *text = malloc(32);
    assert_non_null(text);
    snprintf(text, 32, "%d ", (int)number);
    conv_order_add(&order, stream, number, text);
    fflush(stream);
}

UNIT_TEST_IN(test_lines_wait_for_those_before_them, begin, end)
{
    add(3);
    add(2);
    assert_string_equal(printed, "");
    add(1);
    assert_string_equal(printed, "1 2 3 ");
    add(5);
    conv_order_add(&order, stream, 4, NULL); // a failure was printed at once
    fflush(stream);
    assert_string_equal(printed, "1 2 3 5 ");
    add(9);
    add(7);
    conv_order_flush(&order, stream);
    fflush(stream);
    assert_string_equal(printed, "1 2 3 5 7 9 ");
}

UNIT_TEST_IN(test_any_order, begin, end)
{
    int numbers[CONV_ORDER_MOST], last = 0;
    for (int i = 0; i < CONV_ORDER_MOST; i++)
        numbers[i] = i + 1;
    uint64_t random = 7;
    for (int i = CONV_ORDER_MOST - 1; i > 0; i--) {
        int other = (int)random_below(&random, (unsigned)i + 1), number = numbers[i];
        numbers[i] = numbers[other];
        numbers[other] = number;
    }
    for (int i = 0; i < CONV_ORDER_MOST; i++)
        add((uint64_t)numbers[i]);
    char *at = printed;
    for (int i = 0; i < CONV_ORDER_MOST; i++, last++)
        assert_int_equal(strtol(at, &at, 10), last + 1);
}

UNIT_TEST_IN(test_one_image_does_not_hold_up_all_others, begin, end)
{
    for (uint64_t number = 2; number <= CONV_ORDER_MOST; number++)
        add(number);
    assert_string_equal(printed, "");
    add(CONV_ORDER_MOST + 1);
    assert_memory_equal(printed, "2 3 4 ", 6);
    add(1); // late
    conv_order_flush(&order, stream);
    fflush(stream);
    assert_string_equal(printed + length - 2, "1 ");
}

UNIT_MAIN(NULL, NULL)
