// SPDX-License-Identifier: MIT
// Private to check_codec: the interface of its parts, and the images that they share.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/image.h"
#include "support/random.h"

// --- random numbers ------------------------------------------------------------------------------

// From `low` to `high`; *state as in support/random.h.
int check_draw_int(uint64_t *state, int low, int high);

// --- images ------------------------------------------------------------------------------------

enum check_kind {
    CHECK_NOISE,    // cannot be compressed
    CHECK_FLAT,     // one colour
    CHECK_GRADIENT, // each channel has a slope of its own
    CHECK_PHOTO,    // a rough surface: small residuals
    CHECK_DRAWING,  // rectangles of few colours
    CHECK_SPARSE,   // noise of which most samples are 0
    CHECK_SKEWED,   // sample s as often as 2^-s: a code as deep as can be
    CHECK_EVEN,     // codewords of 7 bits: a decoder at a wrong start does not synchronise
    CHECK_KINDS,
};

// Fills an image's shape: any, mostly small; 1 x 1, one row and one column among them.
void check_draw_shape(struct conv_image *image, uint64_t *state);
// Allocates the planes, with strides of multiples of 16 bytes, and draws samples. Bytes after rows
// are noise. image_free frees them.
void check_draw_image(struct conv_image *image, enum check_kind kind, uint64_t *state);
const char *check_kind_name(enum check_kind kind);

// --- the parts -----------------------------------------------------------------------------------

struct check_options {
    uint64_t seed;
    int rounds;
    const char *corpus; // folder of PNG or JPEG files to decode; NULL: none
    bool special;       // streams made by hand, and one cut before every byte
    int mutations;      // damaged copies of each JPEG file
};

// On failure prints the difference and returns false; a seed with one round repeats a case.
bool check_codec_encode(const struct check_options *options);
bool check_codec_decode(const struct check_options *options);
bool check_jpeg_encode(const struct check_options *options);
bool check_jpeg_decode(const struct check_options *options);
