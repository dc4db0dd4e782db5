// SPDX-License-Identifier: MIT
// Writes the seeds that are not text: for fuzz_decode a small image of every kind, and files that
// no encoder would write; for fuzz_encode an image for each level, shapes and instruction sets
// mixed.
#include <stdio.h>
#include <stdlib.h>

#include "png/cpu/encode.h"
#include "support/deflate_random.h"
#include "support/png_make.h"
#include "support/random.h"

static uint64_t seed = 1;

// Half noise, half a ramp: literals and matches both occur.
static uint16_t next_sample(int i)
{
    uint16_t noise = (uint16_t)random_bits(&seed);
    return i % 56 < 28 ? noise : (uint16_t)(i / 4);
}

static bool write_file(const char *path, const void *data, size_t size)
{
    FILE *stream = fopen(path, "wb");
    bool bad = !stream || fwrite(data, 1, size, stream) != size;
    bad |= stream && fclose(stream) != 0;
    if (bad)
        perror(path);
    return !bad;
}

static bool write_decode_seed(const char *folder, int type, int depth, bool transparency)
{
    enum { WIDTH = 9, HEIGHT = 7 };
    static uint16_t samples[WIDTH * HEIGHT * 4];
    for (int i = 0; i < WIDTH * HEIGHT * 4; i++)
        samples[i] = (uint16_t)(next_sample(i) & ((1u << depth) - 1));
    struct png_spec spec = {.width = WIDTH,
                            .height = HEIGHT,
                            .color_type = type,
                            .depth = depth,
                            .transparency = transparency,
                            .palette_size = type == 3 ? 1 << (depth < 4 ? depth : 4) : 0,
                            .samples = samples};
    struct png_file file;
    char path[4096];
    png_make_image(&file, &spec);
    snprintf(path, sizeof path, "%s/decode/type%d-depth%d%s.png", folder, type, depth,
             transparency ? "-trns" : "");
    bool good = write_file(path, file.data, file.size);
    png_make_free(&file);
    return good;
}

// --- files that no encoder would write -----------------------------------------------------------

// An RGB image whose chunks are given by letters: D its zlib stream, H and T the halves of that, 0
// an IDAT of no bytes, x a text, t tRNS, p PLTE, a, c and f the chunks of an animation.
static bool write_odd_seed(const char *folder, const char *name, const char *layout,
                           const struct deflate_make *stream)
{
    struct png_file file = {0};
    char path[4096];
    size_t half = stream->size / 2;
    png_make_head(&file, 5, 4, 8, 2);
    for (; *layout; layout++) {
        if (*layout == 'D')
            png_make_chunk(&file, "IDAT", stream->data, stream->size);
        else if (*layout == 'H')
            png_make_chunk(&file, "IDAT", stream->data, half);
        else if (*layout == 'T')
            png_make_chunk(&file, "IDAT", stream->data + half, stream->size - half);
        else if (*layout == '0')
            png_make_chunk(&file, "IDAT", "", 0);
        else if (*layout == 'x')
            png_make_chunk(&file, "tEXt", "a\0b", 3);
        else if (*layout == 't')
            png_make_chunk(&file, "tRNS", "\0\1\0\2\0\3", 6);
        else if (*layout == 'p')
            png_make_chunk(&file, "PLTE", "abcdef", 6);
        else if (*layout == 'a')
            png_make_chunk(&file, "acTL", "\0\0\0\2\0\0\0\0", 8);
        else if (*layout == 'c')
            png_make_chunk(&file, "fcTL", "\0\0\0\0\0\0\0\5\0\0\0\4\0\0\0\0\0\0\0\0\0\1\0\2\0", 26);
        else
            png_make_chunk(&file, "fdAT", "\0\0\0\2data", 8);
    }
    png_make_chunk(&file, "IEND", "", 0);
    snprintf(path, sizeof path, "%s/decode/odd-%s.png", folder, name);
    bool good = !stream->full && write_file(path, file.data, file.size);
    png_make_free(&file);
    return good;
}

static bool write_odd_seeds(const char *folder)
{
    static const struct {
        const char *name, *layout;
    } layouts[] = {{"empty-idats", "0000000000H0000000000T0000000000"},
                   {"empty-idats-before-text", "00xD"},
                   {"text-between-idats", "HxT"},
                   {"idats-after-text", "Dx0x"},
                   {"animation", "acDcf"},
                   {"animation-without-first", "aDcf"},
                   {"trns-before-plte", "tpD"},
                   {"trns-around-plte", "tptD"}};
    static const struct {
        const char *name;
        enum deflate_block kind;
        enum deflate_oddity oddity;
        int empty; // blocks before and after the one with the image
    } streams[] = {{"stored", DEFLATE_STORED, DEFLATE_NORMAL, 0},
                   {"empty-stored", DEFLATE_STORED, DEFLATE_NORMAL, 40},
                   {"empty-fixed", DEFLATE_FIXED, DEFLATE_NORMAL, 200},
                   {"empty-dynamic", DEFLATE_DYNAMIC, DEFLATE_NORMAL, 10},
                   {"one-distance", DEFLATE_DYNAMIC, DEFLATE_ONE_DISTANCE, 1},
                   {"no-distance", DEFLATE_DYNAMIC, DEFLATE_NO_DISTANCE, 1},
                   {"incomplete", DEFLATE_DYNAMIC, DEFLATE_INCOMPLETE, 0},
                   {"oversubscribed", DEFLATE_DYNAMIC, DEFLATE_OVERSUBSCRIBED, 0},
                   {"no-end", DEFLATE_DYNAMIC, DEFLATE_NO_END, 0},
                   {"reserved", DEFLATE_DYNAMIC, DEFLATE_RESERVED, 0},
                   {"far", DEFLATE_FIXED, DEFLATE_FAR, 0}};
    static uint8_t rows[4 * 16], data[1 << 14];
    struct deflate_make make = {.data = data, .room = sizeof data};
    bool good = true;
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (uint8_t)(i % 16 == 0 ? i / 16 : i % 5 ? i % 3 : next_sample((int)i));
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        deflate_make_start(&make, 15);
        for (int n = 0; n < streams[i].empty; n++)
            deflate_random_block(&make, &seed, streams[i].kind, DEFLATE_NORMAL, rows, 0, 0, false);
        deflate_random_block(&make, &seed, streams[i].kind, streams[i].oddity, rows, 0, sizeof rows,
                             false);
        for (int n = 0; n <= streams[i].empty; n++)
            deflate_random_block(&make, &seed, streams[i].kind, DEFLATE_NORMAL, rows, sizeof rows,
                                 sizeof rows, n == streams[i].empty);
        deflate_random_end(&make, rows, sizeof rows);
        good &= write_odd_seed(folder, streams[i].name, "D", &make);
    }
    deflate_random_stream(&make, &seed, rows, sizeof rows);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        good &= write_odd_seed(folder, layouts[i].name, layouts[i].layout, &make);
    return good;
}

// --- images to encode ----------------------------------------------------------------------------

// The head is read as fuzz_encode reads it.
static bool write_encode_seed(const char *folder, int level, bool plain)
{
    uint8_t data[4 + 96];
    char path[4096];
    int shape = (level + plain) % 8; // channels and depth
    data[0] = (uint8_t)(level << 4 | (plain ? 8 : 0) | shape);
    data[1] = (uint8_t)(5 + 9 * level); // width
    data[2] = 0;
    data[3] = (uint8_t)(5 * level); // repeats
    for (int i = 0; i < 96; i++)
        data[4 + i] = (uint8_t)next_sample(i);
    snprintf(path, sizeof path, "%s/encode/level%d%s", folder, level, plain ? "-plain" : "");
    return write_file(path, data, sizeof data);
}

int main(int argc, char **argv)
{
    static const int kinds[][2] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                                   {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};
    if (argc != 2) {
        fputs("usage: make_seeds FOLDER (with decode/ and encode/ in it)\n", stderr);
        return 2;
    }
    bool good = true;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        good &= write_decode_seed(argv[1], kinds[k][0], kinds[k][1], false);
        if (!(kinds[k][0] & 4))
            good &= write_decode_seed(argv[1], kinds[k][0], kinds[k][1], true);
    }
    for (int level = 0; level <= CONV_ENCODE_MAX_LEVEL; level++)
        for (int plain = 0; plain < 2; plain++)
            good &= write_encode_seed(argv[1], level, plain);
    good &= write_odd_seeds(argv[1]);
    return good ? 0 : 1;
}
