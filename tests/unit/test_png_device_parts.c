// SPDX-License-Identifier: MIT
// The arithmetic of the device's PNG encoder, compiled for this processor, against definitions: row
// filters and interleaving byte by byte, CRCs against zlib's, symbols and header items against RFC
// 1951's tables.
#include <zlib.h>

#include "png/cuda/bytes.cuh"
#include "png/cuda/crc.cuh"
#include "png/cuda/deflate.cuh"
#include "support/png_predict.h"
#include "support/random.h"
#include "support/unit.h"

#define STEP (CONV_SANITIZED ? 7u : 1u)

static uint8_t byte_of(uint32_t word, int i)
{
    return (uint8_t)(word >> 8 * i);
}

// --- row filters ---------------------------------------------------------------------------------

// Three bytes of other values around each, so that a carry between bytes shows. Sanitizers, which
// look for other faults than wrong results, see a seventh of the triples.
UNIT_TEST(test_paeth_of_all_bytes)
{
    for (uint32_t a = 0; a < 256; a++)
        for (uint32_t b = 0; b < 256; b++)
            for (uint32_t c = (a + b) % STEP; c < 256; c += STEP) {
                uint32_t as = a | b << 8 | c << 16 | (a ^ 255) << 24;
                uint32_t bs = b | c << 8 | a << 16 | (b ^ 255) << 24;
                uint32_t cs = c | a << 8 | b << 16 | (c ^ 255) << 24;
                uint32_t result = paeth_bytes(as, bs, cs);
                for (int i = 0; i < 4; i++)
                    if (byte_of(result, i) !=
                        png_predict(PNG_PAETH, byte_of(as, i), byte_of(bs, i), byte_of(cs, i)))
                        fail_msg("a %u, b %u, c %u", a, b, c);
            }
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

UNIT_TEST(test_joins)
{
    uint32_t planes[4] = {0x03020100, 0x13121110, 0x23222120, 0x33323130}, out[4];
    for (int bytes = 1; bytes <= 2; bytes++)
        for (int channels = 1; channels <= 4; channels++) {
            join_bytes(out, planes, channels, bytes);
            for (int i = 0; i < 4 * channels; i++) {
                int sample = i / bytes, channel = sample % channels, at = sample / channels * bytes;
                int byte = bytes - 1 - i % bytes; // big endian
                assert_int_equal(byte_of(out[i / 4], i % 4), byte_of(planes[channel], at + byte));
            }
        }
}

UNIT_TEST(test_shifts)
{
    assert_int_equal(shift_in(0x76543210, 0xfedcba98, 0), 0xfedcba98);
    assert_int_equal(shift_in(0x76543210, 0xfedcba98, 8), 0xdcba9876);
    assert_int_equal(shift_in(0x76543210, 0xfedcba98, 24), 0x98765432);
    assert_int_equal(shift_out(0x76543210, 0xfedcba98, 0), 0x76543210);
    assert_int_equal(shift_out(0x76543210, 0xfedcba98, 20), 0xcba98765);
}

// --- checksums -----------------------------------------------------------------------------------

static uint32_t word_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// Words in their places add up to zlib's CRC, in any order.
UNIT_TEST(test_crc_of_parts)
{
    uint8_t data[4 * 57];
    uint64_t seed = 2;
    uint32_t crc = 0;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)random_bits(&seed);
    uint64_t bits = 8 * sizeof data;
    for (size_t i = 0; i < sizeof data; i += 4) {
        uint32_t word = word_at(data + i);
        if (i == 0)
            word = ~word; // begins with ones
        crc ^= crc_multiply(word, crc_power(crc_exponent(bits - 8 * i - 32 + 32)));
    }
    assert_int_equal(~crc, crc32(0, data, sizeof data));
}

// Bits that are not whole bytes: a word cut at any bit, each part's remainder by itself, the zeros
// after its bits divided off, and the two put together again.
UNIT_TEST(test_crc_of_bits)
{
    const uint32_t word = 0x9e3779b9;
    for (uint32_t cut = 1; cut < 32; cut++) {
        uint32_t low = word & ((1u << cut) - 1), high = word >> cut;
        uint32_t first = crc_multiply(low, crc_power(crc_inverse(32 - cut)));
        uint32_t second = crc_multiply(high, crc_power(crc_inverse(cut)));
        assert_int_equal(crc_multiply(first, crc_power(32 - cut)) ^ second, word);
    }
}

UNIT_TEST(test_powers)
{
    uint32_t power = CRC_ONE;
    for (uint32_t n = 0; n < 200; n++, power = crc_times_x(power))
        assert_int_equal(crc_power(n), power);
    assert_int_equal(crc_power(0xffffffff), CRC_ONE); // the order of x
    assert_int_equal(crc_multiply(crc_power(1234567), crc_power(crc_inverse(1234567))), CRC_ONE);
    assert_int_equal(crc_power(crc_exponent(0xfffffffffull)),
                     crc_multiply(crc_power(0xffffffff), crc_power(15)));
}

// --- deflate -------------------------------------------------------------------------------------

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

UNIT_TEST(test_fixed_codes)
{
    uint32_t sum = 0;
    for (uint32_t s = 0; s < 288; s++)
        sum += 1u << (DEFLATE_LIMIT - deflate_fixed_bits(s));
    assert_int_equal(sum, 1u << DEFLATE_LIMIT);
    assert_int_equal(deflate_fixed_bits(143), 8);
    assert_int_equal(deflate_fixed_bits(144), 9);
    assert_int_equal(deflate_fixed_bits(256), 7);
    assert_int_equal(deflate_fixed_bits(280), 8);
    assert_int_equal(deflate_reverse(6, 3), 3);
    assert_int_equal(deflate_reverse(1, 15), 1 << 14);
}

// Runs of every length, read back as an inflater does.
UNIT_TEST(test_header_items)
{
    for (uint32_t length = 0; length <= 15; length += 5)
        for (uint32_t run = 1; run <= 300; run++) {
            uint32_t told = 0;
            for (uint32_t j = 0; j < run; j++) {
                uint32_t bits, extra, item = deflate_length_item(length, j, run, &bits, &extra);
                if (item == DEFLATE_ITEM_NONE)
                    continue;
                assert_int_equal(told, j); // in order, and each is reported once
                assert_int_equal(bits, item == 16 ? 2 : item == 17 ? 3 : item == 18 ? 7 : 0);
                assert_true(extra < 1u << bits);
                assert_true(item > 15 || item == length);
                assert_true(item == 16 ? length > 0 && j > 0 : item < 16 || length == 0);
                told += item < 16 ? 1 : extra + (item == 18 ? 11 : 3);
            }
            assert_int_equal(told, run);
        }
}

// Whichever leaves are too deep, the code is complete afterwards and has the same number of
// symbols.
UNIT_TEST(test_repair)
{
    uint64_t seed = 3;
    for (int round = 0; round < 10000; round += (int)STEP) {
        // A tree grown by splitting leaves, mostly deep ones; those below the limit count there.
        uint32_t limit = round % 2 ? DEFLATE_LIMIT : DEFLATE_LENGTH_LIMIT;
        uint32_t symbols = 2 + random_below(&seed, round % 2 ? 284 : 17);
        uint32_t tree[320] = {[1] = 2}, at_depth[DEFLATE_LIMIT + 1] = {0};
        for (uint32_t leaves = 2, d = 1; leaves < symbols; leaves++) {
            d = random_below(&seed, 4) ? d : 1 + random_below(&seed, leaves);
            while (tree[d] == 0)
                d = d > 1 ? d - 1 : leaves;
            tree[d]--;
            tree[++d] += 2;
        }
        for (uint32_t d = 1; d < 320; d++)
            at_depth[d < limit ? d : limit] += tree[d];
        deflate_repair(at_depth, limit);
        uint32_t sum = 0, count = 0;
        for (uint32_t d = 1; d <= limit; d++) {
            sum += at_depth[d] << (limit - d);
            count += at_depth[d];
        }
        assert_int_equal(sum, 1u << limit);
        assert_int_equal(count, symbols);
    }
}

UNIT_MAIN(NULL, NULL)
