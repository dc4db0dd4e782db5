// SPDX-License-Identifier: MIT
// What the device's PNG decoder does with inflated rows, compiled for this processor: Adler-32
// against zlib's, filters against the definitions of the standard.
#include <zlib.h>

#include "png/cuda/adler.cuh"
#include "png/cuda/unfilter.cuh"
#include "support/png_predict.h"
#include "support/random.h"
#include "support/unit.h"

#define MOST 60000 // bytes of data

// --- Adler-32 ------------------------------------------------------------------------------------

// Parts of the bytes, in any order, as threads have them.
UNIT_TEST(test_adler)
{
    static uint8_t data[MOST];
    for (int i = 0; i < 60; i++) {
        uint64_t seed = (uint64_t)i;
        uint32_t size = 1 + random_below(&seed, i % 4 ? 500 : MOST - 1);
        for (uint32_t b = 0; b < size; b++)
            data[b] = i % 3 ? (uint8_t)random_below(&seed, 256) : 255;
        struct adler parts[3] = {{0, 0}}, sum = {0, 0};
        for (uint32_t at = 0; at < size;) {
            uint32_t n = 1 + random_below(&seed, 64), bytes = 0, weighted = 0;
            for (uint32_t b = 0; b < n && at + b < size; b++) {
                bytes += data[at + b];
                weighted += b * data[at + b];
            }
            add_adler(&parts[random_below(&seed, 3)], at, bytes, weighted);
            at += n;
        }
        for (int p = 0; p < 3; p++) {
            sum.bytes = (sum.bytes + parts[p].bytes) % ADLER_MODULUS;
            sum.weighted = (sum.weighted + parts[p].weighted) % ADLER_MODULUS;
        }
        assert_int_equal(finish_adler(&sum, size), adler32(1, data, size));
    }
    // The largest sums that add_adler promises to accept.
    struct adler most = {ADLER_MODULUS - 1, ADLER_MODULUS - 1};
    add_adler(&most, ADLER_MODULUS - 1, ADLER_BYTES, (1u << 31) - 1);
    uint64_t exact =
        (uint64_t)(ADLER_MODULUS - 1) * ADLER_BYTES + (1u << 31) - 1 + ADLER_MODULUS - 1;
    assert_int_equal(most.weighted, exact % ADLER_MODULUS);
}

// --- filters -------------------------------------------------------------------------------------

UNIT_TEST(test_filters)
{
    struct row_filter filters[5];
    for (uint32_t f = 0; f < 5; f++)
        filters[f] = choose_filter(f);
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b += 3)
            for (int c = 0; c < 256; c += 5) {
                // Two bytes at a time, with the neighbours in another order.
                for (int f = 0; f < 5; f++) {
                    uint32_t low = (uint32_t)(a * 7 + c) & 255, high = (uint32_t)(b * 5 + a) & 255;
                    uint32_t got = unfilter_pair(&filters[f], low | high << 16,
                                                 (uint32_t)(a | c << 16) & filters[f].left,
                                                 (uint32_t)(b | a << 16) & filters[f].above,
                                                 (uint32_t)(c | b << 16) & filters[f].above);
                    if ((got & 255) != ((low + (uint32_t)png_predict(f, a, b, c)) & 255) ||
                        (got >> 16 & 255) != ((high + (uint32_t)png_predict(f, c, a, b)) & 255))
                        fail_msg("filter %d of %d, %d, %d gives %x", f, a, b, c, got);
                }
            }
}

UNIT_MAIN(NULL, NULL)
