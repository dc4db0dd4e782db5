// SPDX-License-Identifier: MIT
// Ranges of bytes (src/io/archive/zip.h) against a list of bytes that are taken.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "io/archive/zip.h"

static void test_against_bytes(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 200; round++) {
        struct conv_spans spans = {0};
        bool taken[64] = {false};
        for (int i = 0; i < 30; i++) {
            seed = seed * 1664525 + 1013904223;
            size_t start = seed >> 26, size = 1 + (seed >> 8) % 6;
            size = start + size > 64 ? 64 - start : size;
            bool apart, is_free = !memchr(taken + start, true, size);
            assert_int_equal(conv_spans_add(&spans, start, start + size, &apart, NULL), CONV_OK);
            assert_int_equal(apart, is_free);
            if (is_free)
                memset(taken + start, true, size);
        }
        size_t runs = 0;
        for (size_t i = 0; i < 64; i++)
            runs += taken[i] && (i == 0 || !taken[i - 1]);
        assert_int_equal(spans.count, runs); // neighbours are merged
        conv_spans_free(&spans);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
