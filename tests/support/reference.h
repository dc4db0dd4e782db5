// SPDX-License-Identifier: MIT
// libpng as any other program would call it: default limits, metadata read, warnings ignored. It
// shares no code with conv's own use of libpng.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reference_verdict {
    REFERENCE_REFUSES,
    REFERENCE_WARNS, // accepted with a warning that the zlib stream is damaged after the last row
    REFERENCE_TAKES,
    REFERENCE_TOO_LARGE, // more pixels than `limit`: not read
};

struct reference_image {
    int width, height, channels, depth;
    uint8_t *rows; // interleaved samples, 16 bits big-endian; malloc'ed; NULL unless it was taken
    size_t row_size;
};

// Reads a whole file. Palettes become RGB, tRNS alpha, 1, 2 and 4 bits 8.
enum reference_verdict reference_read(struct reference_image *image, const uint8_t *data,
                                      size_t size, size_t limit);

// The same without chunks that do not affect pixels, which is the cheapest way; false if it is
// refused.
bool reference_read_pixels(struct reference_image *image, const uint8_t *data, size_t size);
