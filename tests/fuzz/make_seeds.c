// SPDX-License-Identifier: MIT
// Writes the seeds of fuzz_decode into a folder: a small picture of every kind.
#include <stdio.h>
#include <stdlib.h>

#include "support/png_make.h"

int main(int argc, char **argv)
{
    static const int kinds[][2] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                                   {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};
    enum { WIDTH = 9, HEIGHT = 7 };
    static uint16_t samples[WIDTH * HEIGHT * 4];
    uint32_t seed = 1;
    if (argc != 2) {
        fputs("usage: make_seeds FOLDER\n", stderr);
        return 2;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int transparency = 0; transparency < 2; transparency++) {
            int type = kinds[k][0], depth = kinds[k][1];
            if (transparency && type & 4)
                continue;
            // Half noise, half a ramp: literals and matches both occur.
            for (int i = 0; i < WIDTH * HEIGHT * 4; i++) {
                seed = seed * 1664525u + 1013904223u;
                samples[i] =
                    (uint16_t)((i % 56 < 28 ? seed >> 16 : (unsigned)i / 4) & ((1u << depth) - 1));
            }
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
            snprintf(path, sizeof path, "%s/type%d-depth%d%s.png", argv[1], type, depth,
                     transparency ? "-trns" : "");
            FILE *stream = fopen(path, "wb");
            bool bad = !stream || fwrite(file.data, 1, file.size, stream) != file.size;
            bad |= stream && fclose(stream) != 0;
            png_make_free(&file);
            if (bad) {
                perror(path);
                return 1;
            }
        }
    }
    return 0;
}
