// SPDX-License-Identifier: MIT
// The fast decoder and libpng agree about every file: good ones of every kind, and each way to
// damage one byte of them or to cut them off.
#include <dirent.h>
#include <stdio.h>

#include <zlib.h>

#include "support/oracle.h"
#include "support/png_make.h"
#include "support/png_mutate.h"
#include "support/random.h"
#include "support/unit.h"

#define NO_LIMIT ((size_t)1 << 24)
#define STEP (CONV_SANITIZED ? 3 : 1) // of the bits of a byte

static uint64_t seed;

// --- good files ----------------------------------------------------------------------------------

static void check_good(const struct png_spec *spec)
{
    struct png_file file;
    png_make_image(&file, spec);
    enum oracle_verdict verdict = oracle_file(file.data, file.size, NO_LIMIT);
    if (verdict != (spec->interlaced ? ORACLE_LEFT : ORACLE_FAST))
        fail_msg("type %d depth %d tRNS %d interlaced %d %dx%d: verdict %d", spec->color_type,
                 spec->depth, spec->transparency, spec->interlaced, spec->width, spec->height,
                 verdict);
    png_make_free(&file);
}

UNIT_TEST(good_files_of_every_kind)
{
    static const int kinds[][2] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                                   {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};
    static uint16_t samples[300 * 40 * 4];
    seed = 4;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int i = 0; i < (CONV_SANITIZED ? 60 : 140); i++) {
            struct png_spec spec = {
                .width = i < 40 ? i + 1 : 1 + (int)random_below(&seed, 300),
                .height = 1 + (int)random_below(&seed, i < 40 ? 7 : 40),
                .color_type = kinds[k][0],
                .depth = kinds[k][1],
                .interlaced = i % 10 == 9,
                .transparency = i & 1 && !(kinds[k][0] & 4),
                .samples = samples,
            };
            if (spec.color_type == 3)
                spec.palette_size = 1 + (int)random_below(&seed, 1u << spec.depth);
            // From noise to images of few colours, which are matches for the most part.
            unsigned colors = 1 + random_below(&seed, i % 3 ? 1u << spec.depth : 3);
            size_t n = (size_t)(spec.width * spec.height * png_make_channels(spec.color_type));
            for (size_t s = 0; s < n; s++)
                samples[s] = (uint16_t)(random_below(&seed, colors) & ((1u << spec.depth) - 1));
            check_good(&spec);
        }
    }
}

// A gray image whose rows and compression are given.
static struct png_file make_gray(int width, int height, const uint8_t *rows, int level,
                                 int strategy, int pieces)
{
    struct png_file stream =
        png_make_zlib_as(rows, (size_t)((width + 1) * height), level, strategy, 8);
    struct png_file file = {0};
    png_make_head(&file, width, height, 8, 0);
    for (int i = 0; i < pieces; i++) {
        size_t from = stream.size * (size_t)i / (size_t)pieces;
        size_t to = stream.size * (size_t)(i + 1) / (size_t)pieces;
        png_make_chunk(&file, "IDAT", stream.data + from, to - from);
    }
    png_make_free(&stream);
    png_make_chunk(&file, "IEND", "", 0);
    return file;
}

UNIT_TEST(every_kind_of_block_and_filter)
{
    static const int strategies[] = {Z_DEFAULT_STRATEGY, Z_FIXED, Z_HUFFMAN_ONLY, Z_RLE};
    enum { WIDTH = 90, HEIGHT = 60 };
    static uint8_t rows[(WIDTH + 1) * HEIGHT];
    seed = 11;
    for (int round = 0; round < (CONV_SANITIZED ? 80 : 200); round++) {
        unsigned colors = 1 + random_below(&seed, round % 4 ? 256 : 4);
        int width = 1 + (int)random_below(&seed, WIDTH),
            height = 1 + (int)random_below(&seed, HEIGHT);
        for (int i = 0; i < (width + 1) * height; i++)
            rows[i] = (uint8_t)random_below(&seed, i % (width + 1) == 0 ? 5 : colors);
        struct png_file file =
            make_gray(width, height, rows, round % 10, strategies[round % 4], 1 + round % 3 * 2);
        assert_int_equal(oracle_file(file.data, file.size, NO_LIMIT), ORACLE_FAST);
        png_make_free(&file);
    }
}

// libpng refuses more than 1,000,000 columns or rows unless told otherwise.
UNIT_TEST(very_wide_and_very_high)
{
    enum { LONG = 1000003 };
    uint8_t *rows = calloc(LONG, 2);
    assert_non_null(rows);
    rows[2 * LONG - 1] = 200;
    for (int high = 0; high < 2; high++) {
        struct png_file file =
            make_gray(high ? 1 : LONG, high ? LONG : 1, rows, 1, Z_DEFAULT_STRATEGY, 1);
        assert_int_equal(oracle_file(file.data, file.size, NO_LIMIT), ORACLE_FAST);
        png_make_free(&file);
    }
    free(rows);
}

// Files of other encoders: PngSuite, in the folder that CONV_PNGSUITE names. The names of broken
// ones start with x.
UNIT_TEST(png_suite)
{
    const char *folder = getenv("CONV_PNGSUITE");
    DIR *entries = folder && folder[0] ? opendir(folder) : NULL;
    int valid = 0, broken = 0;
    if (!entries) {
        print_message("CONV_PNGSUITE does not name the folder of PngSuite\n");
        skip();
    }
    for (const struct dirent *entry; (entry = readdir(entries));) {
        char path[4096];
        struct png_file file = {0};
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".png") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_true(png_make_read(&file, path));
        bool refused = oracle_file(file.data, file.size, NO_LIMIT) == ORACLE_REFUSED;
        if (refused != (entry->d_name[0] == 'x'))
            fail_msg("%s is %s", entry->d_name, refused ? "refused" : "taken");
        *(refused ? &broken : &valid) += 1;
        png_make_free(&file);
    }
    closedir(entries);
    assert_true(valid >= 100 && broken >= 10);
}

// --- damage --------------------------------------------------------------------------------------

static uint8_t inflated[1 << 16];

static enum oracle_verdict oracle_copy(const uint8_t *data, size_t size, bool repair)
{
    uint8_t *copy = malloc(size + (size == 0)); // a sanitizer sees a read beyond it
    assert_non_null(copy);
    memcpy(copy, data, size);
    if (repair)
        oracle_repair(copy, size, inflated, sizeof inflated);
    enum oracle_verdict verdict = oracle_file(copy, size, 1 << 14);
    free(copy);
    return verdict;
}

static void damage(struct png_file *file, int counts[3])
{
    for (size_t i = 0; i < file->size; i++) {
        uint8_t kept = file->data[i];
        for (int bit = (int)(i % STEP); bit < 9; bit += STEP) {
            file->data[i] = (uint8_t)(kept ^ (bit < 8 ? 1 << bit : 0xff));
            counts[oracle_copy(file->data, file->size, false)]++;
            counts[oracle_copy(file->data, file->size, true)]++;
        }
        file->data[i] = kept;
        counts[oracle_copy(file->data, i, false)]++;
    }
}

UNIT_TEST(every_byte_damaged)
{
    int counts[3] = {0};
    uint16_t samples[8 * 5 * 4];
    static const int kinds[][2] = {{0, 2}, {0, 16}, {2, 8}, {3, 4}, {4, 8}, {6, 16}};
    seed = 5;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        samples[i] = (uint16_t)(i % 3 ? random_below(&seed, 4) : i);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        uint16_t masked[8 * 5 * 4];
        for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
            masked[i] = samples[i] & (uint16_t)((1u << kinds[k][1]) - 1);
        struct png_spec spec = {.width = 8,
                                .height = 5,
                                .color_type = kinds[k][0],
                                .depth = kinds[k][1],
                                .transparency = !(kinds[k][0] & 4),
                                .palette_size = kinds[k][0] == 3 ? 9 : 0,
                                .samples = masked};
        struct png_file file;
        png_make_image(&file, &spec);
        damage(&file, counts);
        png_make_free(&file);
    }
    // Dynamic codes, damaged bit by bit: their headers are where decoders differ most.
    uint8_t rows[31 * 30];
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (uint8_t)(i % 31 == 0 ? random_below(&seed, 5)
                                        : random_below(&seed, 2) * random_below(&seed, 40));
    struct png_file file = make_gray(30, 30, rows, 9, Z_DEFAULT_STRATEGY, 1);
    damage(&file, counts);
    png_make_free(&file);
    print_message("%d refused, %d left to libpng, %d fast\n", counts[ORACLE_REFUSED],
                  counts[ORACLE_LEFT], counts[ORACLE_FAST]);
    // Many flips with repaired checksums result in another valid image, so both outcomes are
    // frequent.
    assert_true(counts[ORACLE_REFUSED] > 1000 && counts[ORACLE_FAST] > 1000);
}

// --- odd orders of chunks ------------------------------------------------------------------------

// A gray, RGB or palette image of one pixel from a list of chunks: D the zlib stream, 0 an IDAT of
// no bytes, 1 one of a single byte, x a text, y one whose type has the reserved bit, t tRNS of 2 or
// 6 bytes, u of 3, v of none, p PLTE of two colours, q of a wrong length, r of none, a acTL, E an
// IEND of one byte.
static struct png_file make_order(int color_type, const char *order)
{
    static const uint8_t rows[] = {0, 1, 2, 3};
    struct png_file file = {0}, stream = png_make_zlib(rows, color_type == 2 ? sizeof rows : 2);
    png_make_head(&file, 1, 1, 8, color_type);
    for (; *order; order++) {
        switch (*order) {
        case 'D':
            png_make_chunk(&file, "IDAT", stream.data, stream.size);
            break;
        case '0':
            png_make_chunk(&file, "IDAT", "", 0);
            break;
        case '1':
            png_make_chunk(&file, "IDAT", "x", 1);
            break;
        case 'x':
            png_make_chunk(&file, "tEXt", "a\0b", 3);
            break;
        case 't':
            png_make_chunk(&file, "tRNS", "\0\1\0\2\0\3", color_type == 2 ? 6 : 2);
            break;
        case 'u':
            png_make_chunk(&file, "tRNS", "\0\1\0", 3);
            break;
        case 'v':
            png_make_chunk(&file, "tRNS", "", 0);
            break;
        case 'y':
            png_make_chunk(&file, "tExt", "a\0b", 3);
            break;
        case 'E':
            png_make_chunk(&file, "IEND", "x", 1);
            break;
        case 'p':
            png_make_chunk(&file, "PLTE", "123456", 6);
            break;
        case 'q':
            png_make_chunk(&file, "PLTE", "12345", 5);
            break;
        case 'r':
            png_make_chunk(&file, "PLTE", "", 0);
            break;
        default:
            png_make_chunk(&file, "acTL", "\0\0\0\1\0\0\0\0", 8);
        }
    }
    png_make_chunk(&file, "IEND", "", 0);
    png_make_free(&stream);
    return file;
}

UNIT_TEST(odd_orders_of_chunks)
{
    static const struct {
        int color_type;
        const char *chunks;
        enum oracle_verdict verdict;
        int channels; // where it is good
    } orders[] = {
        {0, "D", ORACLE_FAST, 1},
        {0, "00D00", ORACLE_FAST, 1},
        // Taken or refused, depending on whether the decoder had joined chunks before.
        {0, "00xD", ORACLE_REFUSED, 0},
        {0, "0xD", ORACLE_REFUSED, 0},
        {0, "000x", ORACLE_REFUSED, 0},
        {0, "00", ORACLE_REFUSED, 0},
        // "..Too many IDATs found": libpng warns only.
        {0, "Dx0", ORACLE_LEFT, 1},
        {0, "D0x01x0", ORACLE_LEFT, 1},
        {0, "DaD", ORACLE_LEFT, 1},
        {0, "D1", ORACLE_LEFT, 1},
        {2, "tD", ORACLE_FAST, 4},
        {2, "ptD", ORACLE_FAST, 4},
        {2, "pttD", ORACLE_LEFT, 4},
        // PLTE cancels a tRNS before it, and the one after it is a second one.
        {2, "tpD", ORACLE_LEFT, 3},
        {2, "tptD", ORACLE_LEFT, 3},
        {2, "uptD", ORACLE_LEFT, 4},
        {2, "tqD", ORACLE_LEFT, 4},
        {2, "tppD", ORACLE_REFUSED, 0},
        {0, "tpD", ORACLE_LEFT, 2},
        {0, "xatD", ORACLE_FAST, 2},
        {2, "qD", ORACLE_LEFT, 3},
        {2, "rD", ORACLE_REFUSED, 0},
        {2, "ppD", ORACLE_REFUSED, 0},
        {0, "Dt", ORACLE_LEFT, 1},
        {0, "yD", ORACLE_LEFT, 1},
        {0, "DE", ORACLE_LEFT, 1},
        {3, "pD", ORACLE_FAST, 3},
        {3, "ptD", ORACLE_FAST, 4},
        {3, "puD", ORACLE_LEFT, 3},
        {3, "pvD", ORACLE_LEFT, 3},
    };
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        struct png_file file = make_order(orders[i].color_type, orders[i].chunks);
        struct conv_image_header header = {0};
        assert_ok(conv_png_format.probe(file.data, file.size, &header, NULL));
        enum oracle_verdict verdict = oracle_file(file.data, file.size, NO_LIMIT);
        if (verdict != orders[i].verdict)
            fail_msg("%s: verdict %d", orders[i].chunks, verdict);
        if (verdict != ORACLE_REFUSED && header.shape.channels != orders[i].channels)
            fail_msg("%s: %d channels", orders[i].chunks, header.shape.channels);
        png_make_free(&file);
    }
}

// --- attacks -------------------------------------------------------------------------------------

// Images changed as an attacker would, again and again as long as they are good ones, among them
// every kind of block and code. The same files in every run.
UNIT_TEST(mutated_files)
{
    enum { FILES = CONV_SANITIZED ? 4000 : 12000, CHAIN = 60, ROOM = 1 << 13 };
    static uint8_t data[ROOM], good[ROOM];
    int counts[3] = {0};
    size_t size = 0, good_size = 0;
    for (uint32_t i = 0; i < FILES; i++) {
        good_size = i % CHAIN == 0 ? 0 : good_size; // 0: start with a small image
        memcpy(data, good, good_size);
        size = png_mutate(data, good_size, sizeof data, i + 1, NULL);
        uint8_t *copy = malloc(size); // a sanitizer sees a read beyond it
        assert_non_null(copy);
        memcpy(copy, data, size);
        enum oracle_verdict verdict = oracle_file(copy, size, 1 << 14);
        free(copy);
        counts[verdict]++;
        if (verdict != ORACLE_REFUSED) {
            memcpy(good, data, size);
            good_size = size;
        }
    }
    print_message("%d refused, %d left to libpng, %d fast\n", counts[ORACLE_REFUSED],
                  counts[ORACLE_LEFT], counts[ORACLE_FAST]);
    for (int i = 0; i < 3; i++)
        assert_true(counts[i] > FILES / 20);
}

UNIT_MAIN(NULL, NULL)
