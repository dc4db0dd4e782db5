// SPDX-License-Identifier: MIT
// The CRC-32 of chunks (src/png/cpu/crc.h) against libdeflate's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <libdeflate.h>

#include "png/cpu/crc.h"

#define MOST 5000

// As an exact allocation, so that sanitizers notice a read beyond the end.
static void check(uint32_t crc, const uint8_t *bytes, size_t size)
{
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[1 + i] = bytes[i];
    assert_int_equal(conv_png_crc(crc, data + 1, size), libdeflate_crc32(crc, data + 1, size));
    free(data);
}

static void fill(uint8_t *bytes, size_t size)
{
    uint32_t state = 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223; // Numerical Recipes
        bytes[i] = (uint8_t)(state >> 24);
    }
}

static void test_every_size(void **state)
{
    static uint8_t bytes[MOST];
    (void)state;
    fill(bytes, sizeof bytes);
    for (size_t size = 0; size <= MOST; size++)
        check(size % 3 ? (uint32_t)(size * 0x9e3779b9) : 0, bytes, size);
}

static void test_every_bit_counts(void **state)
{
    static uint8_t bytes[2 * 512 + 100]; // zeros but for one bit
    (void)state;
    for (size_t i = 0; i < 8 * sizeof bytes; i++) {
        bytes[i / 8] = (uint8_t)(1 << i % 8);
        check(0, bytes, sizeof bytes);
        bytes[i / 8] = 0;
    }
}

static void test_parts_add_up(void **state)
{
    static uint8_t bytes[MOST];
    (void)state;
    fill(bytes, sizeof bytes);
    uint32_t whole = libdeflate_crc32(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut += 7)
        assert_int_equal(conv_png_crc(conv_png_crc(0, bytes, cut), bytes + cut, sizeof bytes - cut),
                         whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_parts_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
