// SPDX-License-Identifier: MIT
// Lines about images come in the order of the images (src/report/terminal.h).
#include <stdio.h>

#include "report/terminal.h"
#include "support/random.h"
#include "support/unit.h"

static struct conv_order order;
static char *printed;
static size_t length;
static FILE *stream;

static int begin(void **state)
{
    (void)state;
    memset(&order, 0, sizeof order);
    stream = open_memstream(&printed, &length);
    return stream ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
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

UNIT_TEST(test_lines_wait_for_those_before_them)
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

UNIT_TEST(test_any_order)
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

UNIT_TEST(test_one_image_does_not_hold_up_all_others)
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

UNIT_MAIN_EACH(begin, end)
