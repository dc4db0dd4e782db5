// SPDX-License-Identifier: MIT
// PNG files for tests: good ones of every kind by libpng, and, chunk by chunk, files that no
// encoder would write.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A file in memory, allocated to the byte so that a sanitizer sees every read beyond it.
struct png_file {
    uint8_t *data;
    size_t size;
};

void png_make_free(struct png_file *file);
// Reads a file's bytes without looking at them. False if it cannot be read.
bool png_make_read(struct png_file *file, const char *path);

// --- by libpng -----------------------------------------------------------------------------------

struct png_spec {
    int width, height;
    int color_type, depth;
    bool interlaced;
    int palette_size;        // of entries made by png_make_palette
    bool transparency;       // tRNS: the palette's first half, or the colour of the first pixel
    const uint16_t *samples; // interleaved, as they are in the file
};

int png_make_channels(int color_type);
// The colour and alpha of palette entry i, in R, G, B, A order.
void png_make_palette(int i, uint8_t rgba[4]);
void png_make_image(struct png_file *file, const struct png_spec *spec);

// --- by hand -------------------------------------------------------------------------------------

// Append bytes unchanged; a chunk with the right CRC; signature and IHDR.
void png_make_bytes(struct png_file *file, const void *data, size_t size);
void png_make_chunk(struct png_file *file, const char *type, const void *data, size_t size);
void png_make_head(struct png_file *file, int width, int height, int depth, int color_type);

// Makes a zlib stream of the bytes, as compress() does, or with the parameters of deflateInit2().
struct png_file png_make_zlib(const void *data, size_t size);
struct png_file png_make_zlib_as(const void *data, size_t size, int level, int strategy,
                                 int memory);

// Offset of the n-th whole chunk of that type (at its length), or `size` if there is none.
size_t png_make_find(const struct png_file *file, const char *type, int n);
// Inserts other bytes before `offset`.
void png_make_insert(struct png_file *file, size_t offset, const struct png_file *other);
// Corrects the CRC of the chunk at `offset`.
void png_make_crc(struct png_file *file, size_t offset);
