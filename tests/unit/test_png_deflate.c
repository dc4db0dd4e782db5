// SPDX-License-Identifier: MIT
// The fast encoder's streams: Huffman codes are compared with their definition, zlib decodes the
// streams, and buffers end at pages without access.
#include <zlib.h>

#include "base/features.h"
#include "png/cpu/deflate.h"
#include "png/cpu/deflate_internal.h"
#include "support/guard.h"
#include "support/random.h"
#include "support/unit.h"

static uint64_t seed;

// --- Huffman codes ------------------------------------------------------------------------------

// Complete, within the limit, and no symbol in use without a code.
static void check_lengths(const uint8_t *lengths, const uint32_t *counts, size_t n, int limit)
{
    unsigned kraft = 0;
    for (size_t s = 0; s < n; s++) {
        assert_true(lengths[s] <= limit);
        assert_true(counts[s] == 0 || lengths[s] > 0);
        kraft += lengths[s] ? 1u << (limit - lengths[s]) : 0;
    }
    assert_int_equal(kraft, 1u << limit);
    for (size_t a = 0; a < n; a++) {
        for (size_t b = 0; b < n && n < 64; b++)
            assert_true(counts[a] <= counts[b] || lengths[a] <= lengths[b] || counts[b] == 0);
    }
}

static void check_codes(const uint8_t *lengths, size_t n)
{
    uint16_t codes[CONV_HUFFMAN_MAX_SYMBOLS];
    conv_huffman_codes(codes, lengths, n);
    for (size_t a = 0; a < n; a++) {
        assert_true(codes[a] >> lengths[a] == 0);
        for (size_t b = 0; b < n; b++) { // no code begins another
            if (a == b || lengths[a] == 0 || lengths[a] > lengths[b])
                continue;
            assert_true((codes[b] & ((1u << lengths[a]) - 1)) != codes[a]);
        }
    }
}

UNIT_TEST(huffman_lengths_make_a_code)
{
    static const int sizes[][2] = {{2, 1},    {3, 2},   {19, 7},  {30, 15},
                                   {286, 15}, {286, 9}, {288, 12}};
    uint32_t counts[CONV_HUFFMAN_MAX_SYMBOLS];
    uint8_t lengths[CONV_HUFFMAN_MAX_SYMBOLS];
    seed = 7;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = (size_t)sizes[i][0];
        for (int round = 0; round < (CONV_SANITIZED ? 40 : 200); round++) {
            unsigned spread = random_bits(&seed) % 20, zeros = random_bits(&seed) % 4;
            for (size_t s = 0; s < n; s++)
                counts[s] = random_bits(&seed) % 4 < zeros ? 0 : random_bits(&seed) >> spread;
            for (size_t s = 0; s < n; s++)
                counts[s] &= (1u << 24) - 1;
            conv_huffman_lengths(lengths, counts, n, sizes[i][1]);
            check_lengths(lengths, counts, n, sizes[i][1]);
            if (round % 20 == 0)
                check_codes(lengths, n);
        }
    }
}

UNIT_TEST(huffman_is_complete_for_few_symbols)
{
    uint32_t counts[30] = {0};
    uint8_t lengths[30];
    conv_huffman_lengths(lengths, counts, 30, 15);
    assert_true(lengths[0] == 1 && lengths[1] == 1 && lengths[2] == 0);
    counts[0] = 9;
    conv_huffman_lengths(lengths, counts, 30, 15);
    assert_true(lengths[0] == 1 && lengths[1] == 1 && lengths[2] == 0);
    counts[0] = 0;
    counts[29] = 9;
    conv_huffman_lengths(lengths, counts, 30, 15);
    assert_true(lengths[0] == 1 && lengths[1] == 0 && lengths[29] == 1);
    counts[3] = 1;
    conv_huffman_lengths(lengths, counts, 30, 15);
    assert_true(lengths[0] == 0 && lengths[3] == 1 && lengths[29] == 1);
}

UNIT_TEST(huffman_is_optimal_without_the_limit)
{
    // Weights 1 1 2 3 5 8: lengths 5 5 4 3 2 1 by hand.
    static const uint32_t counts[6] = {8, 1, 3, 1, 5, 2};
    static const uint8_t expected[6] = {1, 5, 3, 5, 2, 4};
    uint8_t lengths[6];
    conv_huffman_lengths(lengths, counts, 6, 15);
    assert_memory_equal(lengths, expected, 6);
    conv_huffman_lengths(lengths, counts, 6, 3);
    check_lengths(lengths, counts, 6, 3);
}

// --- deflate ------------------------------------------------------------------------------------

enum { NOISE, ZEROS, STEEP, RARE, MIXED, TEXT, FLAT, WORDS, CONTENTS };

#define FLAT_PIXEL 4

// Stretches of zeros, of one byte, of one pixel, from far before, and of noise.
static void fill_flat(uint8_t *bytes, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        static const size_t distances[] = {0, 0, 1, FLAT_PIXEL, 900, 33000};
        unsigned kind = random_bits(&seed) % 7;
        size_t distance = kind < 6 ? distances[kind] : 0;
        size_t most = kind == 6 ? 12 : random_bits(&seed) % 4 ? 90 : 1200;
        end = i + 1 + random_bits(&seed) % most;
        for (size_t k = i; k < end && k < n; k++)
            bytes[k] = kind == 6                       ? (uint8_t)random_bits(&seed)
                       : distance > 0 && k >= distance ? bytes[k - distance]
                                                       : 0;
    }
}

// Runs, each followed by one of four words: the least that is looked for far before.
static void fill_words(uint8_t *bytes, size_t n)
{
    static const uint8_t words[4][9] = {"conv1234", "Laplace!", "Gaussian", "(Sobel) "};
    for (size_t i = 0; i < n;) {
        size_t run = 6 + random_bits(&seed) % 60, word = random_bits(&seed) % 4;
        for (size_t k = 0; k < run && i < n; k++)
            bytes[i++] = (uint8_t)(run % 3);
        for (size_t k = 0; k < 8 && i < n; k++)
            bytes[i++] = words[word][k];
        if (i < n)
            bytes[i++] = (uint8_t)random_bits(&seed);
    }
}

static void fill_content(uint8_t *bytes, size_t n, int content)
{
    if (content == FLAT)
        fill_flat(bytes, n);
    if (content == WORDS)
        fill_words(bytes, n);
    for (size_t i = 0; i < n && content < FLAT; i++) {
        unsigned bits = random_bits(&seed);
        switch (content) {
        case NOISE:
            bytes[i] = (uint8_t)bits;
            break;
        case ZEROS:
            bytes[i] = 0;
            break;
        case STEEP: // each value half as frequent as the one before: codes up to the limit
            bytes[i] = (uint8_t)(bits ? __builtin_ctz(bits) * 7 : 255);
            break;
        case RARE: // the same, and 64 values twice in a row, in two orders: long codes in
                   // succession
            bytes[i] = (uint8_t)(bits ? __builtin_ctz(bits) : 31);
            if (i % 40000 >= 20000 && i % 40000 < 20064 && i < 80000)
                bytes[i] = (uint8_t)(128 + i % 40000 * (i < 40000 ? 1 : 27) % 64);
            break;
        case MIXED: // long runs between noise
            bytes[i] = (uint8_t)(i / 3000 % 2 ? bits : i / 700);
            break;
        default: // repeats from near and far
            bytes[i] =
                i > 900 && bits % 32 ? bytes[i - (i / 5000 % 2 ? 3 : 900)] : (uint8_t)(bits >> 5);
            break;
        }
    }
}

static void check_inflates(const uint8_t *stream, size_t stream_size, const uint8_t *data,
                           size_t size)
{
    uint8_t *back = malloc(size + 1);
    z_stream inflater = {.next_in = (uint8_t *)(uintptr_t)stream, .avail_in = (uInt)stream_size};
    inflater.next_out = back;
    inflater.avail_out = (uInt)size + 1;
    assert_int_equal(inflateInit2(&inflater, -15), Z_OK);
    assert_int_equal(inflate(&inflater, Z_FINISH), Z_STREAM_END);
    assert_int_equal(inflater.total_out, size);
    assert_int_equal(inflater.avail_in, 0);
    assert_memory_equal(back, data, size);
    inflateEnd(&inflater);
    free(back);
}

static const size_t deflate_sizes[] = {1,   2,   3,   7,    8,     9,     63,    64,
                                       255, 256, 257, 4000, 65535, 65536, 100003};
enum { DEFLATE_SIZES = sizeof deflate_sizes / sizeof deflate_sizes[0] };

// And every instruction set writes the same bytes.
UNIT_TEST(blocks_inflate_again)
{
    static const unsigned features[] = {0, CONV_CPU_AVX2, CONV_CPU_AVX2 | CONV_CPU_AVX512, ~0u};
    uLong sums[CONTENTS][DEFLATE_SIZES + 1];
    for (size_t v = 0; v < sizeof features / sizeof features[0]; v++) {
        seed = 3;
        struct conv_deflate *deflate = conv_deflate_open(features[v] & conv_cpu_features());
        for (int content = 0; content < CONTENTS; content++) {
            for (size_t i = 0; i <= DEFLATE_SIZES; i++) {
                size_t size = i < DEFLATE_SIZES ? deflate_sizes[i] : CONV_DEFLATE_BLOCK;
                if (CONV_SANITIZED && (i + (size_t)content) % 2)
                    continue;
                // Three blocks, one of them stored.
                struct guarded data = guard_alloc(size);
                struct guarded dst = guard_alloc(conv_deflate_bound(3 * size, size));
                uint8_t *thrice = malloc(3 * size);
                fill_content(data.data, size, content);
                for (size_t k = 0; k < 3; k++)
                    memcpy(thrice + k * size, data.data, size);
                struct conv_bits out = {.at = dst.data};
                conv_deflate_block(deflate, &out, data.data, size,
                                   content >= FLAT ? FLAT_PIXEL : 1 + i % 8, false);
                conv_deflate_store(&out, data.data, size, false);
                conv_deflate_block(deflate, &out, data.data, size,
                                   content >= FLAT ? FLAT_PIXEL : 1 + i % 8, true);
                conv_bits_align(&out);
                check_inflates(dst.data, (size_t)(out.at - dst.data), thrice, 3 * size);
                uLong sum = crc32(0, dst.data, (uInt)(out.at - dst.data));
                assert_true(v == 0 || sum == sums[content][i]);
                sums[content][i] = sum;
                guard_free(&data);
                guard_free(&dst);
                free(thrice);
            }
        }
        conv_deflate_close(deflate);
    }
}

UNIT_TEST(searched_streams_inflate_again)
{
    static const int efforts[][2] = {{1, 5}, {16, 10}};
    seed = 5;
    for (size_t e = 0; e < 2; e++) {
        struct conv_deflate_search *search = conv_deflate_search_open();
        conv_deflate_search_set_effort(search, efforts[e][0], efforts[e][1]);
        for (int content = 0; content < CONTENTS; content++) {
            for (size_t i = 0; i <= DEFLATE_SIZES; i++) {
                size_t size =
                    i < DEFLATE_SIZES ? deflate_sizes[i] : 3 * CONV_DEFLATE_SEARCH_BLOCK + 1;
                if (CONV_SANITIZED && (i + (size_t)content + e) % 2)
                    continue;
                struct guarded data = guard_alloc(size);
                struct guarded dst =
                    guard_alloc(conv_deflate_bound(size, CONV_DEFLATE_SEARCH_BLOCK / 2));
                fill_content(data.data, size, content);
                struct conv_bits out = {.at = dst.data};
                const struct conv_deflate_part part = {data.data, 0, size, true};
                conv_deflate_search_put(search, &out, &part, NULL);
                conv_bits_align(&out);
                check_inflates(dst.data, (size_t)(out.at - dst.data), data.data, size);
                guard_free(&data);
                guard_free(&dst);
            }
        }
        conv_deflate_search_close(search);
    }
}

UNIT_TEST(what_is_flat_stays_tiny_and_noise_does_not_grow)
{
    enum { SIZE = 200000 };
    static const size_t most[CONTENTS] = {[NOISE] = SIZE + SIZE / 1000, [ZEROS] = SIZE / 400};
    uint8_t *data = malloc(SIZE), *dst = malloc(conv_deflate_bound(SIZE, SIZE));
    struct conv_deflate *deflate = conv_deflate_open(conv_cpu_features());
    for (int content = NOISE; content <= ZEROS; content++) {
        fill_content(data, SIZE, content);
        struct conv_bits out = {.at = dst};
        conv_deflate_block(deflate, &out, data, SIZE, 3, true);
        conv_bits_align(&out);
        assert_true((size_t)(out.at - dst) <= most[content]);
    }
    conv_deflate_close(deflate);
    free(data);
    free(dst);
}

UNIT_MAIN(NULL, NULL)
