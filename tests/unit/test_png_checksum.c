// SPDX-License-Identifier: MIT
// The CRC-32 of PNG (src/png/chunk.h) against libdeflate's.
#include <libdeflate.h>

#include "png/chunk.h"
#include "support/random.h"
#include "support/unit.h"

#define MOST 5000

// As an exact allocation, so that sanitizers notice a read beyond the end.
static void check(const uint8_t *bytes, size_t size)
{
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    memcpy(data + 1, bytes, size);
    static const uint32_t starts[] = {0, 0x9e3779b9, UINT32_MAX, 0x12345678};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        assert_int_equal(conv_png_crc(starts[i], data + 1, size),
                         libdeflate_crc32(starts[i], data + 1, size));
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
    for (size_t cut = 0; cut <= MOST; cut += 7)
        assert_int_equal(conv_png_crc(conv_png_crc(0, bytes, cut), bytes + cut, MOST - cut),
                         libdeflate_crc32(0, bytes, MOST));
}

UNIT_MAIN(NULL, NULL)
