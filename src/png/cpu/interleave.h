// SPDX-License-Identifier: MIT
// Between rows of a PNG, whose samples are stored pixel by pixel with the most significant byte
// first, and planes.
#ifndef CONV_PNG_CPU_INTERLEAVE_H
#define CONV_PNG_CPU_INTERLEAVE_H

#include <stdint.h>

#include "image/image.h"
#include "png/png.h"

// Bytes of a row with the samples of all channels.
static inline size_t conv_interleave_bytes(const struct conv_image *image)
{
    return (size_t)image->width * (size_t)image->channels * (size_t)(image->depth / 8);
}

// Distributes a row of conv_interleave_bytes() bytes to row y of the planes. With 16 bits, `row` is
// aligned for uint16_t. Row and planes do not overlap.
void conv_interleave_split(const struct conv_image *dst, int y, const uint8_t *row);

// The inverse: collects row y of the planes in `row`.
void conv_interleave_join(uint8_t *row, const struct conv_image *src, int y);

// --- rows that need more than a split: packed bits, palettes, transparent colours ----------------

struct conv_expand {
    uint8_t palette[CONV_IMAGE_MAX_CHANNELS][256]; // R, G, B, alpha; opaque black beyond its end
    uint16_t key[3];                               // the transparent gray or R, G, B
};

// Prepares for an image with this data of PLTE and tRNS, whose sizes are valid; NULL if absent.
void conv_expand_prepare(struct conv_expand *expand, const struct conv_image_header *header,
                         const uint8_t *plte, size_t plte_size, const uint8_t *trns,
                         size_t trns_size);

// True if rows of such an image need conv_expand_row.
bool conv_expand_needed(const struct conv_image_header *header);

// Fills row y of the planes from an unfiltered row of the file. `split` is conv_unfilter.split, and
// `row` has its slack.
void conv_expand_row(const struct conv_expand *expand, const struct conv_image_header *header,
                     const struct conv_image *dst, int y, const uint8_t *row,
                     void (*split)(const struct conv_image *dst, int y, const uint8_t *row));

#endif
