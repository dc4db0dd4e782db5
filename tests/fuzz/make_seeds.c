// SPDX-License-Identifier: MIT
// Writes the seeds that are no text: for fuzz_decode a small picture of every kind, for fuzz_encode
// a picture for each level, shapes and instruction sets mixed.
#include <stdio.h>
#include <stdlib.h>

#include "png/encode.h"
#include "support/png_make.h"

static uint32_t seed = 1;

// Half noise, half a ramp: literals and matches both occur.
static uint16_t next_sample(int i)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint16_t)(i % 56 < 28 ? seed >> 16 : (unsigned)i / 4);
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
    png_make_picture(&file, &spec);
    snprintf(path, sizeof path, "%s/decode/type%d-depth%d%s.png", folder, type, depth,
             transparency ? "-trns" : "");
    bool good = write_file(path, file.data, file.size);
    png_make_free(&file);
    return good;
}

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
    return good ? 0 : 1;
}
