// SPDX-License-Identifier: MIT
// Images for the C interface in layouts that a caller may have, with guard bytes around and between
// their samples.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "conv.h"

enum api_layout {
    API_PLANAR,      // without gaps
    API_INTERLEAVED, // without gaps
    API_PADDED,      // planar rows with gaps, which begin at odd places
    API_CROPPED,     // interleaved with gaps between pixels and rows
    API_COLUMNS,     // columns of interleaved pixels: transposed
    API_LAYOUTS
};

struct api_image {
    conv_image view;
    uint8_t *memory;
    size_t size;
};

// Memory of a view of that shape, all bytes `fill`.
void api_image_make(struct api_image *image, enum api_layout layout, int width, int height,
                    int channels, conv_sample sample, int fill);
void api_image_free(struct api_image *image);

// A sample as an integer, or the bits of a float.
uint32_t api_image_get(const conv_image *view, int c, int x, int y);
void api_image_set(const conv_image *view, int c, int x, int y, uint32_t sample);

// True if every byte that belongs to no sample still is `fill`.
bool api_image_gaps_are(const struct api_image *image, int fill);

// True if the samples are equal; prints the first that is not.
bool api_image_equal(const conv_image *a, const conv_image *b);

// Fills in random samples, with occasional runs of equal ones; floats between
// -512 and 512.
void api_image_fill(const conv_image *view, uint64_t *random);
