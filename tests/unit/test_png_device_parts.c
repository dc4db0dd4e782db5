// SPDX-License-Identifier: MIT
// Arithmetic of the device's PNG encoder whose faults its files seldom show: the costs by which
// filters are chosen, and symbols that few images need. Compiled for this processor.
#include "png/cuda/bytes.cuh"
#include "png/cuda/deflate.cuh"
#include "support/png_predict.h"
#include "support/random.h"
#include "support/unit.h"

#define STEP (CONV_SANITIZED ? 7u : 1u)

static uint8_t byte_of(uint32_t word, int i)
{
    return (uint8_t)(word >> 8 * i);
}

UNIT_TEST(test_filters_and_costs)
{
    uint64_t seed = 1;
    uint32_t costs[PNG_FILTERS] = {0}, defined[PNG_FILTERS] = {0};
    for (int round = 0; round < 100000; round += (int)STEP) {
        uint32_t x = (uint32_t)random_bits(&seed), a = (uint32_t)random_bits(&seed),
                 b = (uint32_t)random_bits(&seed), c = (uint32_t)random_bits(&seed);
        add_costs(costs, x, a, b, c);
        for (int f = 0; f < PNG_FILTERS; f++) {
            uint32_t residual = filter_bytes(f, x, a, b, c);
            for (int i = 0; i < 4; i++) {
                uint8_t right =
                    (uint8_t)(byte_of(x, i) -
                              png_predict(f, byte_of(a, i), byte_of(b, i), byte_of(c, i)));
                assert_int_equal(byte_of(residual, i), right);
                int predicted = byte_of(x, i) - right; // but for multiples of 256
                int difference = f ? byte_of(x, i) - (predicted & 255) : (int8_t)right;
                defined[f] += (uint32_t)abs(difference);
            }
            assert_int_equal(costs[f], defined[f]);
        }
    }
    const uint32_t equal[PNG_FILTERS] = {9, 5, 5, 7, 5};
    assert_int_equal(cheapest_filter(equal), PNG_SUB);
}

UNIT_TEST(test_length_symbols)
{
    static const uint16_t base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11, 13,  15,  17,  19,  23,
                                    27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227};
    static const uint8_t bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2,
                                   2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5};
    for (uint32_t length = 3; length <= 257; length++) {
        uint32_t extra_bits, extra, symbol = deflate_length_symbol(length, &extra_bits, &extra);
        assert_in_range(symbol, 257, 284);
        assert_int_equal(extra_bits, bits[symbol - 257]);
        assert_int_equal(base[symbol - 257] + extra, length);
        assert_true(extra < 1u << extra_bits);
    }
}

// The distances of pixels (RFC 1951, 3.2.5).
UNIT_TEST(test_distance_symbols)
{
    static const uint32_t base[] = {1, 2, 3, 4, 5, 7, 9, 13, 17, 25};
    static const uint32_t bits[] = {0, 0, 0, 0, 1, 1, 2, 2, 3, 3};
    for (uint32_t distance = 2; distance <= 32; distance++) {
        uint32_t extra_bits, extra;
        uint32_t symbol = deflate_distance_symbol(distance, &extra_bits, &extra);
        assert_in_range(symbol, 1, 9);
        assert_int_equal(extra_bits, bits[symbol]);
        assert_int_equal(base[symbol] + extra, distance);
        assert_true(extra < 1u << extra_bits);
    }
}

UNIT_MAIN(NULL, NULL)
