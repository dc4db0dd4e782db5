// SPDX-License-Identifier: MIT
// Streams that several threads inflate, against one thread: the same rows and the same verdict, for
// every kind of stream that zlib writes, damaged ones, and such that hold false begins of blocks.

#include <zlib.h>

#include "png/cpu/decode_internal.h"
#include "png/cpu/unfilter.h"
#include "png/png.h"
#include "support/deflate_random.h"
#include "support/parallel.h"
#include "support/png_make.h"
#include "support/random.h"
#include "support/rows.h"
#include "support/test_image.h"
#include "support/unit.h"

#define MOST ((size_t)400000)         // bytes of rows
#define STEP (CONV_SANITIZED ? 8 : 1) // of the kinds of data: sanitizers take long

static uint64_t seed;

// --- one run -------------------------------------------------------------------------------------

struct run {
    uint8_t *rows;
    size_t pitch;
    int row_threads;
    bool good, ended_early;
    size_t ahead;    // bytes that were decoded ahead
    int parts_first; // as in struct conv_decode_stream
};

static bool take(void *context, unsigned y, uint8_t *raw, size_t count)
{
    const struct run *run = context;
    const uint8_t *own = memcpy(run->rows + y * run->pitch, raw, count * run->pitch);
    if (run->row_threads > 1)
        memset(raw, 0xee, count * run->pitch); // they are ours
    if (run->row_threads > 1 && (count > 2 || (count == 2 && own[0] != own[run->pitch])))
        return false;
    for (; count > 0; count--, own += run->pitch)
        if (*own >= CONV_UNFILTER_COUNT)
            return false;
    return true;
}

enum { ALONE, BY_CHUNK, BY_ROW, WAYS };

static void run_way(struct run *run, int way, const struct png_file *zlib, size_t rows,
                    size_t part_bits)
{
    static struct conv_inflate inflate;
    struct conv_parallel parallel = {.most = TEST_PARALLEL_MOST, .run = parallel_run};
    struct conv_buffer memory = {0};
    run->row_threads = way == BY_ROW ? 3 : 1;
    // Of the exact size, so that a sanitizer detects reads beyond the end.
    uint8_t *data = malloc(zlib->size);
    assert_non_null(data);
    memcpy(data, zlib->data, zlib->size);
    const struct conv_decode_stream stream = {.inflate = &inflate,
                                              .memory = &memory,
                                              .data = data,
                                              .size = zlib->size,
                                              .pitch = run->pitch,
                                              .rows = rows,
                                              .take = take,
                                              .row_threads = run->row_threads,
                                              .context = run,
                                              .part_bits = part_bits,
                                              .ahead = &run->ahead,
                                              .parts_first = run->parts_first};
    run->good = way == ALONE ? conv_decode_stream_run(&stream, NULL)
                             : conv_decode_shared_run(&stream, &parallel);
    run->ended_early = inflate.ended_early;
    conv_buffer_free(&memory);
    free(data);
}

struct bench {
    uint8_t *data;
    struct run runs[WAYS];
    int good, bad;
};

static struct bench make_bench(size_t size)
{
    struct bench bench = {.data = malloc(size)};
    assert_non_null(bench.data);
    for (int way = 0; way < WAYS; way++)
        assert_non_null(bench.runs[way].rows = malloc(size));
    return bench;
}

static void free_bench(struct bench *bench)
{
    free(bench->data);
    for (int way = 0; way < WAYS; way++)
        free(bench->runs[way].rows);
}

static void check(struct bench *bench, const struct png_file *zlib, size_t pitch, size_t rows,
                  size_t part_bits)
{
    for (int way = 0; way < WAYS; way++) {
        struct run *run = &bench->runs[way], *alone = &bench->runs[ALONE];
        run->pitch = pitch;
        run_way(run, way, zlib, rows, part_bits);
        assert_int_equal(run->good, alone->good);
        assert_int_equal(run->ended_early, alone->ended_early);
        if (run->good)
            assert_memory_equal(run->rows, alone->rows, pitch * rows);
    }
    bench->runs[ALONE].good ? bench->good++ : bench->bad++;
}

static void check_damaged(struct bench *bench, struct png_file *zlib, size_t pitch, size_t rows)
{
    for (int i = 0; i < 3; i += CONV_SANITIZED ? 2 : 1) {
        size_t size = zlib->size, at = 2 + random_below(&seed, (unsigned)size - 2);
        uint8_t old = zlib->data[at];
        if (i == 0)
            zlib->size = at;
        else
            zlib->data[at] ^= (uint8_t)(1u << random_below(&seed, 8));
        check(bench, zlib, pitch, rows, (size_t)8 << (9 + random_below(&seed, 6)));
        zlib->data[at] = old;
        zlib->size = size;
    }
    // Fewer and more rows than the stream holds.
    check(bench, zlib, pitch, rows - 1, 8 * 5000);
    if ((rows + 1) * pitch <= MOST)
        check(bench, zlib, pitch, rows + 1, 8 * 5000);
}

// --- tests ---------------------------------------------------------------------------------------

UNIT_TEST(threads_change_nothing)
{
    static const struct {
        int level, strategy, memory;
    } ways[] = {{0, Z_DEFAULT_STRATEGY, 8},
                {1, Z_DEFAULT_STRATEGY, 8},
                {6, Z_DEFAULT_STRATEGY, 8},
                {6, Z_FILTERED, 1},
                {9, Z_DEFAULT_STRATEGY, 9},
                {6, Z_HUFFMAN_ONLY, 5},
                {6, Z_RLE, 8},
                {6, Z_FIXED, 8}};
    static const size_t pitches[] = {61, 1000, 26001, 90000};
    struct bench bench = make_bench(MOST);
    seed = 1;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        for (int kind = (int)w % STEP; kind < ROWS_KINDS; kind += STEP) {
            size_t pitch = pitches[(w + (size_t)kind) % 4], rows = MOST / pitch - 1;
            rows_fill(&seed, bench.data, pitch * rows, pitch, kind);
            struct png_file zlib = png_make_zlib_as(bench.data, pitch * rows, ways[w].level,
                                                    ways[w].strategy, ways[w].memory);
            for (int i = 0; i < 2; i++)
                check(&bench, &zlib, pitch, rows, (size_t)8 << (10 + random_below(&seed, 6)));
            assert_true(bench.runs[ALONE].good);
            assert_memory_equal(bench.runs[BY_ROW].rows, bench.data, pitch * rows);
            check_damaged(&bench, &zlib, pitch, rows);
            png_make_free(&zlib);
        }
    }
    assert_true(bench.bad > 50 / STEP);
    free_bench(&bench);
}

// The thread that follows the stream begins when others have decoded FIRST parts ahead, and then
// has to use them. The test counted bytes while rows were taken slowly, and failed on busy
// machines.
#define FIRST 4
#define PART ((size_t)32 << 10) // compressed

UNIT_TEST(threads_help)
{
    const size_t pitch = 1000, size = 4 * MOST, rows = size / pitch;
    struct bench bench = make_bench(size);
    seed = 6;
    rows_fill(&seed, bench.data, size, pitch, ROWS_DELTAS);
    struct png_file zlib = png_make_zlib_as(bench.data, size, 1, Z_DEFAULT_STRATEGY, 8);
    assert_true(zlib.size > 2 * FIRST * PART);
    for (int way = BY_CHUNK; way < WAYS; way++)
        bench.runs[way].parts_first = FIRST;
    check(&bench, &zlib, pitch, rows, 8 * PART); // waits for ever without help
    assert_int_equal(bench.bad, 0);
    assert_true(bench.runs[BY_CHUNK].ahead > FIRST * PART);
    assert_true(bench.runs[BY_ROW].ahead > FIRST * PART);
    png_make_free(&zlib);
    free_bench(&bench);
}

// Blocks of all kinds, with every oddity, in random order.
UNIT_TEST(random_blocks)
{
    struct bench bench = make_bench(MOST);
    seed = 2;
    for (int i = 0; i < 12; i++) {
        struct deflate_make make = {.grows = true};
        size_t pitch = 997, rows = 200;
        rows_fill(&seed, bench.data, pitch * rows, pitch, i % ROWS_KINDS);
        deflate_random_stream(&make, &seed, bench.data, pitch * rows);
        struct png_file zlib = {make.data, make.size};
        check(&bench, &zlib, pitch, rows, 8 * 600);
        deflate_make_free(&make);
    }
    assert_true(bench.good > 5);
    free_bench(&bench);
}

// Stored blocks that hold whole dynamic blocks: to a part that begins among them they look real.
UNIT_TEST(false_begins_change_nothing)
{
    struct bench bench = make_bench(MOST);
    size_t pitch = 1000, rows = MOST / pitch, at = 0, found = 0;
    seed = 3;
    rows_fill(&seed, bench.data, MOST, pitch, ROWS_DELTAS);
    struct png_file inner = png_make_zlib_as(bench.data, MOST, 6, Z_DEFAULT_STRATEGY, 1);
    struct deflate_make make = {.grows = true};
    assert_true(inner.size > 50000);
    for (at = 0; at < MOST; at += 50000) // its blocks begin after zlib's header
        memcpy(bench.data + at, inner.data + 2, 50000);
    for (size_t y = 0; y < rows; y++)
        bench.data[y * pitch] %= CONV_UNFILTER_COUNT;
    deflate_make_start(&make, 15);
    for (at = 0; at < MOST; at += 50000)
        deflate_make_stored(&make, bench.data + at, 50000, at + 50000 == MOST);
    deflate_random_end(&make, bench.data, MOST);
    struct png_file zlib = {make.data, make.size};
    atomic_bool stop = false;
    struct conv_inflate_ahead *ahead = calloc(1, sizeof *ahead);
    assert_non_null(ahead);
    ahead->data = zlib.data;
    ahead->size = zlib.size - 4;
    ahead->to = ahead->until = 8 * ahead->size;
    ahead->stop = &stop;
    for (size_t from = 0; conv_inflate_ahead_find(ahead, from); from = ahead->first + 1)
        found++; // each is wrong: there is no dynamic block
    assert_true(found > 5);
    for (size_t bits = 8 * 400; bits < 8 * 60000; bits = bits * 3 / 2)
        check(&bench, &zlib, pitch, rows, bits);
    assert_int_equal(bench.bad, 0);
    assert_memory_equal(bench.runs[BY_ROW].rows, bench.data, MOST);
    free(ahead);
    deflate_make_free(&make);
    png_make_free(&inner);
    free_bench(&bench);
}

// Every begin of a dynamic block, as zlib knows them, is found.
UNIT_TEST(begins_are_found)
{
    uint8_t *data = malloc(MOST), *plain = malloc(MOST);
    int checked = 0;
    assert_true(data && plain);
    seed = 4;
    for (int i = 0; i < (CONV_SANITIZED ? 4 : 12); i++) { // every kind of rows, and level
        rows_fill(&seed, data, MOST, 1000, i % ROWS_KINDS);
        struct png_file zlib =
            png_make_zlib_as(data, MOST, 1 + i % 9, i % 3 ? Z_DEFAULT_STRATEGY : Z_FILTERED, 2);
        z_stream z = {.next_in = zlib.data, .avail_in = (uInt)zlib.size};
        z.next_out = plain;
        z.avail_out = MOST;
        assert_int_equal(inflateInit(&z), Z_OK);
        while (inflate(&z, Z_BLOCK) == Z_OK) {
            size_t bit = 8 * z.total_in - (z.data_type & 7);
            if (!(z.data_type & 128) || z.data_type & 64 || bit / 8 + 32 >= zlib.size)
                continue;
            unsigned head = zlib.data[bit / 8] | zlib.data[bit / 8 + 1] << 8;
            if ((head >> bit % 8 & 7) != 4)
                continue;
            assert_int_equal(conv_inflate_find(zlib.data, zlib.size - 4, bit, bit + 1), bit);
            checked++;
        }
        inflateEnd(&z);
        png_make_free(&zlib);
    }
    assert_true(checked > (CONV_SANITIZED ? 100 : 300));
    free(data);
    free(plain);
}

// --- whole files ---------------------------------------------------------------------------------

// A file of more than 4 MiB (SHARED_FROM) with small IDAT chunks, whose CRCs several threads check.
UNIT_TEST(files_are_the_same)
{
    enum { WIDTH = 3000, HEIGHT = CONV_SANITIZED ? 480 : 700, CHANNELS = 3 };
    struct conv_parallel threads = {.most = TEST_PARALLEL_MOST, .run = parallel_run};
    size_t pitch = 1 + WIDTH * CHANNELS, size = pitch * HEIGHT, good = 0;
    uint8_t *rows = malloc(size);
    struct png_file file = {0};
    assert_non_null(rows);
    seed = 5;
    rows_fill(&seed, rows, size, pitch, ROWS_NOISE);
    struct png_file zlib = png_make_zlib_as(rows, size, 1, Z_DEFAULT_STRATEGY, 8);
    png_make_head(&file, WIDTH, HEIGHT, 8, 2);
    for (size_t at = 0; at < zlib.size; at += 200000)
        png_make_chunk(&file, "IDAT", zlib.data + at,
                       zlib.size - at < 200000 ? zlib.size - at : 200000);
    png_make_chunk(&file, "IEND", NULL, 0);
    struct conv_image want = {0}, got = {0};
    struct conv_err errors[2];
    for (int i = 0; i < (CONV_SANITIZED ? 4 : 6); i++) {
        size_t at = 60 + random_below(&seed, (unsigned)file.size - 100);
        file.data[at] ^= i > 1; // twice as it is
        for (int shared = 0; shared < 2; shared++) {
            struct conv_codec_config config = {.level = -1, .parallel = shared ? &threads : NULL};
            struct conv_codec *codec;
            struct conv_image_header header;
            struct conv_image *planes = shared ? &got : &want;
            errors[shared] = (struct conv_err){0};
            assert_ok(conv_png_format.probe(file.data, file.size, &header, NULL));
            assert_ok(conv_codec_open(&codec, &conv_png_format, &config, NULL));
            *planes = header.shape;
            image_alloc(planes, 0);
            conv_png_format.decode(codec, file.data, file.size, &header, planes, NULL,
                                   &errors[shared]);
            conv_codec_close(codec);
        }
        file.data[at] ^= i > 1;
        assert_int_equal(errors[0].status, errors[1].status);
        assert_string_equal(errors[0].text, errors[1].text);
        if (!errors[0].status) {
            assert_true(image_equal(&got, &want));
            good++;
        }
        image_free(&want);
        image_free(&got);
    }
    assert_int_equal(good, 2);
    png_make_free(&zlib);
    png_make_free(&file);
    free(rows);
}

UNIT_MAIN(NULL, NULL)
