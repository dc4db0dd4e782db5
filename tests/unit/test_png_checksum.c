// SPDX-License-Identifier: MIT
// The sums of PNG (src/png/chunk.h) against libdeflate's.
#include <libdeflate.h>

#include "png/chunk.h"
#include "support/random.h"
#include "support/unit.h"

#define MOST 5000
#define LARGE ((size_t)200 << 10) // several stretches between two reductions of Adler-32

static uint32_t libdeflate_adler(uint32_t adler, const uint8_t *data, size_t size)
{
    return libdeflate_adler32(adler, data, size);
}

static uint32_t libdeflate_crc(uint32_t crc, const uint8_t *data, size_t size)
{
    return libdeflate_crc32(crc, data, size);
}

static const struct sum {
    uint32_t (*own)(uint32_t sum, const uint8_t *data, size_t size);
    uint32_t (*wanted)(uint32_t sum, const uint8_t *data, size_t size);
    uint32_t starts[4];
} sums[] = {
    {conv_png_adler, libdeflate_adler, {1, 0, 65520u << 16 | 65520u, 0x12345678}},
    {conv_png_crc, libdeflate_crc, {0, 0x9e3779b9, UINT32_MAX, 0x12345678}},
};
enum { SUMS = sizeof sums / sizeof *sums };

// As an exact allocation, so that sanitizers notice a read beyond the end.
static void check(const uint8_t *bytes, size_t size)
{
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    memcpy(data + 1, bytes, size);
    for (const struct sum *sum = sums; sum < sums + SUMS; sum++)
        for (size_t i = 0; i < sizeof sum->starts / sizeof *sum->starts; i++)
            assert_int_equal(sum->own(sum->starts[i], data + 1, size),
                             sum->wanted(sum->starts[i], data + 1, size));
    free(data);
}

static const uint8_t *noise(void)
{
    static uint8_t bytes[MOST];
    uint64_t seed = 5;
    for (size_t i = 0; i < MOST; i++)
        bytes[i] = (uint8_t)random_bits(&seed);
    return bytes;
}

UNIT_TEST(every_size)
{
    const uint8_t *bytes = noise();
    for (size_t size = 0; size <= MOST; size++)
        check(bytes, size);
}

UNIT_TEST(largest_sums)
{
    uint8_t *bytes = malloc(LARGE);
    assert_non_null(bytes);
    memset(bytes, 255, LARGE);
    for (size_t size = LARGE - 200; size <= LARGE; size += 50)
        check(bytes, size);
    free(bytes);
}

UNIT_TEST(every_bit_counts)
{
    static uint8_t bytes[2 * 512 + 100]; // zeros but for one bit
    for (size_t i = 0; i < 8 * sizeof bytes; i++) {
        bytes[i / 8] = (uint8_t)(1 << i % 8);
        check(bytes, sizeof bytes);
        bytes[i / 8] = 0;
    }
}

UNIT_TEST(parts_add_up)
{
    const uint8_t *bytes = noise();
    for (const struct sum *sum = sums; sum < sums + SUMS; sum++)
        for (size_t cut = 0; cut <= MOST; cut += 7)
            assert_int_equal(
                sum->own(sum->own(sum->starts[0], bytes, cut), bytes + cut, MOST - cut),
                sum->wanted(sum->starts[0], bytes, MOST));
}

UNIT_MAIN(NULL, NULL)
