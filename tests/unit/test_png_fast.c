// SPDX-License-Identifier: MIT
// The fast encoder: its images are read back by libpng and its streams by zlib, each of its parts
// is compared with a plain definition, and its buffers end at pages without access.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/features.h"
#include "png/cpu/deflate_fast.h"
#include "png/cpu/deflate_search.h"
#include "png/cpu/encode.h"
#include "png/cpu/filter_rows.h"
#include "png/cpu/huffman.h"
#include "png/libpng.h"
#include "support/guard.h"
#include "support/parallel.h"
#include "support/random.h"

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

static void huffman_lengths_make_a_code(void **state)
{
    (void)state;
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

static void huffman_is_complete_for_few_symbols(void **state)
{
    (void)state;
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

static void huffman_is_optimal_without_the_limit(void **state)
{
    (void)state;
    // Weights 1 1 2 3 5 8: lengths 5 5 4 3 2 1 by hand.
    static const uint32_t counts[6] = {8, 1, 3, 1, 5, 2};
    static const uint8_t expected[6] = {1, 5, 3, 5, 2, 4};
    uint8_t lengths[6];
    conv_huffman_lengths(lengths, counts, 6, 15);
    assert_memory_equal(lengths, expected, 6);
    conv_huffman_lengths(lengths, counts, 6, 3);
    check_lengths(lengths, counts, 6, 3);
}

// --- rows ---------------------------------------------------------------------------------------

// As in the text of the standard.
static uint8_t predict_plainly(int filter, int a, int b, int c)
{
    int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
    switch (filter) {
    case 1:
        return (uint8_t)a;
    case 2:
        return (uint8_t)b;
    case 3:
        return (uint8_t)((a + b) / 2);
    case 4:
        return (uint8_t)(pa <= pb && pa <= pc ? a : pb <= pc ? b : c);
    default:
        return 0;
    }
}

static void fill(uint8_t *bytes, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(kind == 0   ? random_bits(&seed)
                             : kind == 1 ? (random_bits(&seed) & 1) * 255
                                         : 120 + random_bits(&seed) % 9);
}

static void check_filters(const struct conv_filter_rows *rows, size_t n, int kind)
{
    struct guarded row = guard_alloc(n), above = guard_alloc(n), dst = guard_alloc(n);
    uint64_t cost[CONV_ROW_FILTERS], expected_cost[CONV_ROW_FILTERS] = {0};
    for (int f = 0; f < CONV_ROW_FILTERS; f++)
        cost[f] = (uint64_t)f;
    fill(row.data, n, kind);
    fill(above.data, n, kind);
    for (int f = 0; f < CONV_ROW_FILTERS; f++) {
        memset(dst.data, 0xa5, n);
        rows->filter(dst.data, (enum conv_row_filter)f, row.data, above.data, n);
        for (size_t x = 0; x < n; x++) {
            int a = x ? row.data[x - 1] : 0, c = x ? above.data[x - 1] : 0;
            uint8_t expected = (uint8_t)(row.data[x] - predict_plainly(f, a, above.data[x], c));
            if (dst.data[x] != expected)
                fail_msg("%s, filter %d, %zu bytes: differs at %zu", rows->name, f, n, x);
            expected_cost[f] += expected < 128 ? expected : 256u - expected;
        }
    }
    rows->add_costs(cost, row.data, above.data, n);
    for (int f = 0; f < CONV_ROW_FILTERS; f++)
        assert_int_equal(cost[f], expected_cost[f] + (uint64_t)f);
    guard_free(&row);
    guard_free(&above);
    guard_free(&dst);
}

static void check_joins(const struct conv_filter_rows *rows, size_t n)
{
    for (int planes = 1; planes <= CONV_ROW_MAX_PLANES; planes++) {
        struct guarded plane[CONV_ROW_MAX_PLANES], row = guard_alloc(n * (size_t)planes);
        const uint8_t *of_planes[CONV_ROW_MAX_PLANES];
        for (int p = 0; p < planes; p++) {
            plane[p] = guard_alloc(n);
            fill(plane[p].data, n, 0);
            of_planes[p] = plane[p].data;
        }
        rows->join(row.data, of_planes, planes, n);
        for (size_t i = 0; i < n * (size_t)planes; i++)
            assert_int_equal(row.data[i], of_planes[i % (size_t)planes][i / (size_t)planes]);
        for (int p = 0; p < planes; p++)
            guard_free(&plane[p]);
        guard_free(&row);
    }
}

static void check_halves(const struct conv_filter_rows *rows, size_t n)
{
    struct guarded samples = guard_alloc(2 * n), high = guard_alloc(n), low = guard_alloc(n);
    fill(samples.data, 2 * n, 0);
    rows->halve(high.data, low.data, (const uint16_t *)(const void *)samples.data, n);
    for (size_t x = 0; x < n; x++) {
        uint16_t sample;
        memcpy(&sample, samples.data + 2 * x, 2);
        assert_int_equal(high.data[x] << 8 | low.data[x], sample);
    }
    guard_free(&samples);
    guard_free(&high);
    guard_free(&low);
}

static void rows_as_the_standard_has_them(void **state)
{
    (void)state;
    const struct conv_filter_rows *variants[] = {&conv_filter_rows_plain,
                                                 conv_filter_rows_choose(conv_cpu_features())};
    seed = 11;
    for (size_t v = 0; v < 2; v++) {
        for (size_t n = 1; n <= 140; n++) {
            for (int kind = 0; kind < 3; kind += CONV_SANITIZED ? 2 : 1)
                check_filters(variants[v], n, kind);
            check_joins(variants[v], n);
            check_halves(variants[v], n);
        }
        check_filters(variants[v], 5000, 2);
    }
}

// --- deflate ------------------------------------------------------------------------------------

enum { NOISE, ZEROS, STEEP, MIXED, TEXT, FLAT, CONTENTS };

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

static void fill_content(uint8_t *bytes, size_t n, int content)
{
    if (content == FLAT)
        fill_flat(bytes, n);
    for (size_t i = 0; i < n && content != FLAT; i++) {
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
static void blocks_inflate_again(void **state)
{
    (void)state;
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
                                   content == FLAT ? FLAT_PIXEL : 1 + i % 8, false);
                conv_deflate_store(&out, data.data, size, false);
                conv_deflate_block(deflate, &out, data.data, size,
                                   content == FLAT ? FLAT_PIXEL : 1 + i % 8, true);
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

static void searched_streams_inflate_again(void **state)
{
    (void)state;
    static const int efforts[][2] = {{1, 5}, {16, 10}};
    seed = 5;
    for (size_t e = 0; e < 2; e++) {
        struct conv_deflate_search *search = conv_deflate_search_open(efforts[e][0], efforts[e][1]);
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

static void what_is_flat_stays_tiny_and_noise_does_not_grow(void **state)
{
    (void)state;
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

// --- images -----------------------------------------------------------------------------------

enum { PAINT_NOISE, PAINT_FLAT, PAINT_SMOOTH, PAINT_DRAWING, PAINT_PAGE, PAINTS };

static unsigned paint(int kind, int c, int x, int y)
{
    switch (kind) {
    case PAINT_NOISE:
        return random_bits(&seed);
    case PAINT_FLAT:
        return 0x5a5a;
    case PAINT_SMOOTH: // a photograph's slopes and grain
        return (unsigned)(x * x / 9 + y * 40 + c * 3000) + random_bits(&seed) % 700;
    case PAINT_PAGE: // little ink, and rows that repeat
        return y % 5 && (x + 97 * y) % 701 < 9 ? (unsigned)(x * y) * 0x1111u : 0xffff;
    default:
        return (x / 8 + y / 8) % 5 ? 0xffff : (unsigned)(x ^ y) * 0x1111u;
    }
}

struct planes {
    struct conv_image image;
    struct guarded memory[CONV_IMAGE_MAX_CHANNELS];
};

static void planes_alloc(struct planes *planes, const struct conv_image *shape)
{
    planes->image = *shape;
    for (int c = 0; c < shape->channels; c++) {
        size_t row = (size_t)shape->width * (size_t)(shape->depth / 8);
        planes->memory[c] = guard_alloc(row * (size_t)shape->height);
        planes->image.plane[c] = (struct conv_plane){planes->memory[c].data, (ptrdiff_t)row};
    }
}

static void planes_free(struct planes *planes)
{
    for (int c = 0; c < planes->image.channels; c++)
        guard_free(&planes->memory[c]);
}

static void planes_paint(struct planes *planes, int kind)
{
    const struct conv_image *image = &planes->image;
    for (int c = 0; c < image->channels; c++) {
        for (int y = 0; y < image->height; y++) {
            uint8_t *row = image->plane[c].data + y * image->plane[c].stride;
            for (int x = 0; x < image->width; x++) {
                unsigned sample = paint(kind, c, x, y) & 0xffff;
                if (image->depth == 16)
                    ((uint16_t *)(void *)row)[x] = (uint16_t)sample;
                else
                    row[x] = (uint8_t)(sample >> 8);
            }
        }
    }
}

// libpng refuses a wrong length, CRC or Adler-32, and too little or too much data.
static void check_reads_back(const struct conv_buffer *file, const struct planes *planes)
{
    struct conv_png_header header;
    struct conv_buffer rows = {0};
    struct planes back;
    struct conv_err err = {0};
    const struct conv_image *image = &planes->image;
    if (conv_png_probe(file->data, file->size, &header, &err))
        fail_msg("%s", err.text);
    assert_int_equal(header.shape.channels, image->channels);
    assert_int_equal(header.shape.depth, image->depth);
    planes_alloc(&back, &header.shape);
    if (conv_libpng_decode(&rows, file->data, file->size, &header, &back.image, &err))
        fail_msg("%s", err.text);
    for (int c = 0; c < image->channels; c++) {
        size_t bytes = (size_t)image->plane[c].stride * (size_t)image->height;
        assert_memory_equal(back.image.plane[c].data, image->plane[c].data, bytes);
    }
    conv_buffer_free(&rows);
    planes_free(&back);
}

static void check_level(int level, unsigned features, size_t max_chunk)
{
    static const int sizes[][2] = {{1, 1},   {1, 40},    {40, 1},    {5, 3},    {33, 9},
                                   {67, 35}, {211, 163}, {1500, 11}, {40000, 2}};
    struct conv_encoder *encoder;
    struct conv_buffer file = {0};
    assert_int_equal(conv_encode_open(&encoder, level, features, max_chunk, NULL), CONV_OK);
    for (int shape = 0; shape < 8; shape++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            struct planes planes;
            planes_alloc(&planes, &(struct conv_image){.width = sizes[s][0],
                                                       .height = sizes[s][1],
                                                       .channels = shape % 4 + 1,
                                                       .depth = shape < 4 ? 8 : 16,
                                                       .alpha = shape % 2 == 1});
            // Under a sanitizer each shape and each size with one of the contents.
            for (int kind = 0; kind < PAINTS; kind++) {
                if (CONV_SANITIZED && (shape + (int)s + kind) % PAINTS != 0)
                    continue;
                planes_paint(&planes, kind);
                assert_int_equal(conv_encode_image(encoder, &file, &planes.image, NULL), CONV_OK);
                check_reads_back(&file, &planes);
            }
            planes_free(&planes);
        }
    }
    conv_buffer_free(&file);
    conv_encode_close(encoder);
}

static void images_read_back(void **state)
{
    (void)state;
    static const int levels[] = {0, 1, 2, 6, 9, 12};
    seed = 13;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        check_level(levels[i], conv_cpu_features(), CONV_ENCODE_MAX_CHUNK);
    check_level(1, 0, CONV_ENCODE_MAX_CHUNK);
    check_level(1, conv_cpu_features() & CONV_CPU_AVX2, CONV_ENCODE_MAX_CHUNK);
}

// Encodes with bands of a given size, on one thread and on several: the files are identical.
static void check_bands(struct conv_encoder *encoder, const struct planes *planes, size_t bytes)
{
    struct conv_parallel parallel = {TEST_PARALLEL_MOST, parallel_run, NULL};
    struct conv_buffer alone = {0}, shared = {0};
    conv_encode_set_bands(encoder, 1, bytes);
    conv_encode_share(encoder, NULL);
    assert_int_equal(conv_encode_image(encoder, &alone, &planes->image, NULL), CONV_OK);
    conv_encode_share(encoder, &parallel);
    assert_int_equal(conv_encode_image(encoder, &shared, &planes->image, NULL), CONV_OK);
    check_reads_back(&alone, planes);
    assert_int_equal(alone.size, shared.size);
    assert_memory_equal(alone.data, shared.data, alone.size);
    conv_buffer_free(&alone);
    conv_buffer_free(&shared);
}

static void bands_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const int levels[] = {0, 1, 2, 6, 9, 10, 12},
                     sizes[][2] = {{1, 40}, {67, 35}, {211, 163}};
    static const size_t bands[] = {1, 700, 5000}; // bytes
    seed = 19;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        struct conv_encoder *encoder;
        assert_int_equal(conv_encode_open(&encoder, levels[i], conv_cpu_features(),
                                          i % 2 ? 1000 : CONV_ENCODE_MAX_CHUNK, NULL),
                         CONV_OK);
        for (int shape = (int)i % 3; shape<3 * PAINTS; shape += levels[i]> 6 ? 5 : 2) {
            struct planes planes;
            const int *size = sizes[shape % 3];
            planes_alloc(&planes, &(struct conv_image){.width = size[0],
                                                       .height = size[1],
                                                       .channels = shape % 4 + 1,
                                                       .depth = shape % 5 < 3 ? 8 : 16,
                                                       .alpha = shape % 2 == 1});
            planes_paint(&planes, shape / 3);
            check_bands(encoder, &planes, bands[(i + (size_t)shape) % 3]);
            planes_free(&planes);
        }
        conv_encode_close(encoder);
    }
}

// A photograph-like image that is cut into bands is hardly larger, since matches reach back into
// the band before.
static void bands_cost_little(void **state)
{
    (void)state;
    static const int levels[] = {1, 2, 5, 6};
    struct planes planes;
    struct conv_buffer file = {0};
    seed = 23;
    planes_alloc(&planes,
                 &(struct conv_image){.width = 700, .height = 500, .channels = 1, .depth = 8});
    for (size_t i = 0; i < 4 * (size_t)PAINTS; i += CONV_SANITIZED ? 3 : 1) {
        struct conv_encoder *encoder;
        planes_paint(&planes, (int)(i / 4));
        assert_int_equal(conv_encode_open(&encoder, levels[i % 4], conv_cpu_features(),
                                          CONV_ENCODE_MAX_CHUNK, NULL),
                         CONV_OK);
        assert_int_equal(conv_encode_image(encoder, &file, &planes.image, NULL), CONV_OK);
        size_t whole = file.size;
        conv_encode_set_bands(encoder, 1, (size_t)120 << 10);
        assert_int_equal(conv_encode_image(encoder, &file, &planes.image, NULL), CONV_OK);
        assert_true(file.size != whole); // it was cut
        assert_true(file.size < whole + whole / 300 + 500);
        conv_encode_close(encoder);
    }
    conv_buffer_free(&file);
    planes_free(&planes);
}

static void chunks_are_split(void **state)
{
    (void)state;
    static const int levels[] = {0, 1, 6, 12};
    seed = 17;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        check_level(levels[i], conv_cpu_features(), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(huffman_lengths_make_a_code),
        cmocka_unit_test(huffman_is_complete_for_few_symbols),
        cmocka_unit_test(huffman_is_optimal_without_the_limit),
        cmocka_unit_test(rows_as_the_standard_has_them),
        cmocka_unit_test(blocks_inflate_again),
        cmocka_unit_test(searched_streams_inflate_again),
        cmocka_unit_test(what_is_flat_stays_tiny_and_noise_does_not_grow),
        cmocka_unit_test(images_read_back),
        cmocka_unit_test(bands_do_not_depend_on_threads),
        cmocka_unit_test(bands_cost_little),
        cmocka_unit_test(chunks_are_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
