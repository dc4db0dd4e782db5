// SPDX-License-Identifier: MIT
// JPEG files of every kind that libjpeg-turbo can write, and its plain way of decoding them.
#pragma once

#include "image/image.h"
#include "support/png_make.h"

enum jpeg_colors { JPEG_YCC, JPEG_RGB, JPEG_CMYK };

enum jpeg_content {
    JPEG_PATTERN, // smooth colours and some noise
    JPEG_FLAT,    // one colour
    JPEG_NOISE,
    JPEG_CONTENTS
};

struct jpeg_spec {
    int width, height;
    int channels; // 1, 3, or 4 for JPEG_CMYK
    enum jpeg_colors colors;
    int quality;                // 0: 85
    int sampling_h, sampling_v; // of the first component; 0: 1
    int chroma_h, chroma_v;     // of the others; 0: 1
    int restart;                // rows of blocks between restart markers; 0: none
    int restart_mcus;           // the same in MCUs, instead of that
    enum jpeg_content content;
    bool progressive, arithmetic, optimized;
    bool separate; // sequential, with a scan for each component
    int scans;     // more than 0: progressive, with a scan per coefficient, that many
    const struct conv_image *pixels; // NULL: a pattern
    const unsigned (*quant)[64];     // two tables, row by row, instead of those of `quality`
};

// Sets the sampling factors of luma and chroma to the combination `i` of these. In the last five
// luma has fewer samples than chroma in a direction.
#define JPEG_FACTORS 12
void jpeg_set_factors(struct jpeg_spec *spec, size_t i);

// Replaces *file by a JPEG of spec->pixels or of a pattern that depends on `seed`. Freed by
// png_make_free.
void jpeg_make(struct png_file *file, const struct jpeg_spec *spec, uint64_t seed);

// Decodes with libjpeg's defaults, to gray if `channels` is 1, to interleaved rows, which the
// caller frees. NULL if the file has other sizes.
uint8_t *jpeg_decode_plain(const struct png_file *file, int width, int height, int channels);

// Where the first or last marker of that code is.
size_t jpeg_find(const struct png_file *file, int code);
size_t jpeg_find_last(const struct png_file *file, int code);

// Inserts a segment of that code before the byte `at`.
void jpeg_insert(struct png_file *file, size_t at, int code, const void *data, size_t size);

// Inserts Exif with that orientation.
void jpeg_orient(struct png_file *file, int orientation);

// Flips bits, and removes, repeats or replaces bytes, mostly in the scan.
void jpeg_mutate(struct png_file *file, uint64_t *state);

// A random baseline file.
struct jpeg_spec jpeg_draw(uint64_t *state);
