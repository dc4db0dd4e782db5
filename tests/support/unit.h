// SPDX-License-Identifier: MIT
// What each file of unit tests begins with.
#pragma once

#include <setjmp.h> // cmocka.h needs these four
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// The tests of one file, in the order in which they stand there: each enters itself before main
// begins.
static struct CMUnitTest unit_tests[64] __attribute__((unused));

// UNIT_TEST(name) { ... } is a test; one of UNIT_TEST_IN runs between set_up and tear_down.
#define UNIT_TEST(name) UNIT_TEST_IN(name, NULL, NULL)
#define UNIT_TEST_IN(name, set_up, tear_down)                                                      \
    static void name(void **state);                                                                \
    __attribute__((constructor)) static void enter_##name(void)                                    \
    {                                                                                              \
        unit_tests[__COUNTER__] = (struct CMUnitTest){#name, name, set_up, tear_down, NULL};       \
    }                                                                                              \
    static void name(void **state __attribute__((unused)))

// The status that the call returns is CONV_OK.
#define assert_ok(call) assert_int_equal(call, CONV_OK)

// Runs the file's tests, with set_up before the first and tear_down after the last; UNIT_MAIN is
// the main function that does so.
#define UNIT_RUN(set_up, tear_down) cmocka_run_group_tests(unit_tests, set_up, tear_down)
#define UNIT_MAIN(set_up, tear_down)                                                               \
    int main(void)                                                                                 \
    {                                                                                              \
        return UNIT_RUN(set_up, tear_down);                                                        \
    }

// The same with set_up before and tear_down after each test.
#define UNIT_MAIN_EACH(set_up, tear_down)                                                          \
    int main(void)                                                                                 \
    {                                                                                              \
        for (struct CMUnitTest *test = unit_tests; test->name; test++) {                           \
            test->setup_func = set_up;                                                             \
            test->teardown_func = tear_down;                                                       \
        }                                                                                          \
        return UNIT_RUN(NULL, NULL);                                                               \
    }
