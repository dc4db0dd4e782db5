// SPDX-License-Identifier: MIT
// The Adler-32 of zlib streams (src/png/cpu/adler.h) against libdeflate's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <libdeflate.h>

#include "png/cpu/adler.h"
#include "support/random.h"

#define MOST 1000
#define LARGE ((size_t)200 << 10) // several stretches between two reductions

static const uint32_t starts[] = {1, 0, 65520u << 16 | 65520u, 0x12345678};

// As an exact allocation, so that sanitizers notice a read beyond the end.
static void check(const uint8_t *bytes, size_t size)
{
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    memcpy(data + 1, bytes, size);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        assert_int_equal(conv_png_adler(starts[i], data + 1, size),
                         libdeflate_adler32(starts[i], data + 1, size));
    free(data);
}

static void test_every_size(void **state)
{
    static uint8_t bytes[MOST];
    uint64_t seed = 5;
    (void)state;
    for (size_t i = 0; i < MOST; i++)
        bytes[i] = (uint8_t)random_bits(&seed);
    for (size_t size = 0; size <= MOST; size++)
        check(bytes, size);
}

static void test_largest_sums(void **state)
{
    uint8_t *bytes = malloc(LARGE);
    (void)state;
    assert_non_null(bytes);
    memset(bytes, 255, LARGE);
    for (size_t size = LARGE - 200; size <= LARGE; size += 50)
        check(bytes, size);
    free(bytes);
}

static void test_every_byte_counts(void **state)
{
    static uint8_t bytes[2 * 128 + 70]; // zeros but for one byte
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(1 + i % 255);
        check(bytes, sizeof bytes);
        bytes[i] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_largest_sums),
        cmocka_unit_test(test_every_byte_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
