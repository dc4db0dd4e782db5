// SPDX-License-Identifier: MIT
// What each file of unit tests begins with.
#ifndef CONV_TESTS_UNIT_H
#define CONV_TESTS_UNIT_H

#include <setjmp.h> // cmocka.h needs these four
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// Begins a test, as in UNIT_TEST(name) { ... }, for cmocka_unit_test(name).
#define UNIT_TEST(name) static void name(void **state __attribute__((unused)))

#endif
