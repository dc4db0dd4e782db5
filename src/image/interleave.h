// SPDX-License-Identifier: MIT
// Between planes and rows as files have them: samples pixel by pixel, those of 16 bits with the
// most significant byte first.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "image/image.h"

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
