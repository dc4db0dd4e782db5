// SPDX-License-Identifier: MIT
// The parts that are the same in every implementation of conv_unfilter, as macros: the reversals
// for each pixel size and the split for each shape of image, made from a few inline functions of
// the including file.
#pragma once

#include <string.h>

#include "image/interleave.h"
#include "png/cpu/unfilter.h"

#define CONV_UNFILTER_INLINE static inline __attribute__((always_inline))

// --- filters -------------------------------------------------------------------------------------

// For pixels of `bpp` bytes, from sub(dst, src, size, bpp) and average and paeth(dst, src, above,
// size, bpp), which are inline, so that each size gets a loop of its own.
#define CONV_UNFILTER_PIXELS(bpp)                                                                  \
    static void sub_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)     \
    {                                                                                              \
        (void)above;                                                                               \
        sub(dst, src, size, bpp);                                                                  \
    }                                                                                              \
    static void average_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size) \
    {                                                                                              \
        average(dst, src, above, size, bpp);                                                       \
    }                                                                                              \
    static void paeth_##bpp(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)   \
    {                                                                                              \
        paeth(dst, src, above, size, bpp);                                                         \
    }

// All functions that CONV_UNFILTER_ALL names, but up(dst, src, above, size).
#define CONV_UNFILTER_FUNCTIONS                                                                    \
    static void none(uint8_t *dst, const uint8_t *src, const uint8_t *above, size_t size)          \
    {                                                                                              \
        (void)above;                                                                               \
        memcpy(dst, src, size);                                                                    \
    }                                                                                              \
    CONV_UNFILTER_PIXELS(1)                                                                        \
    CONV_UNFILTER_PIXELS(2)                                                                        \
    CONV_UNFILTER_PIXELS(3)                                                                        \
    CONV_UNFILTER_PIXELS(4)                                                                        \
    CONV_UNFILTER_PIXELS(6)                                                                        \
    CONV_UNFILTER_PIXELS(8)

#define CONV_UNFILTER_SIZE(bpp)                                                                    \
    {                                                                                              \
        none, sub_##bpp, up, average_##bpp, paeth_##bpp                                            \
    }
// The initialiser of conv_unfilter.reverse.
#define CONV_UNFILTER_ALL                                                                          \
    {                                                                                              \
        CONV_UNFILTER_SIZE(1), CONV_UNFILTER_SIZE(2), CONV_UNFILTER_SIZE(3),                       \
            CONV_UNFILTER_SIZE(4), CONV_UNFILTER_SIZE(6), CONV_UNFILTER_SIZE(8)                    \
    }

// --- split ---------------------------------------------------------------------------------------

// Splits a vector of samples per channel, from `row` to out[channel] + at.
typedef void (*conv_unfilter_vector_fn)(uint8_t *const *out, size_t at, const uint8_t *row);

// By vectors of `step` bytes, for rows of at least as many per channel. The last vector overlaps
// the one before, so that nothing is written beyond the row.
CONV_UNFILTER_INLINE void conv_unfilter_split_row(const struct conv_image *dst, int y,
                                                  const uint8_t *row, size_t channels,
                                                  size_t sample, size_t step,
                                                  conv_unfilter_vector_fn vector)
{
    uint8_t *out[CONV_IMAGE_MAX_CHANNELS];
    for (size_t c = 0; c < channels; c++)
        out[c] = dst->plane[c].data + y * dst->plane[c].stride;
    size_t bytes = (size_t)dst->width * sample, at = 0;
    for (; at + step < bytes; at += step)
        vector(out, at, row + at * channels);
    vector(out, bytes - step, row + (bytes - step) * channels);
}

// Defines conv_unfilter.split from the inline functions vector16_1 and vectorBITS_CHANNELS for 8
// and 16 bits and 2 to 4 channels. Shorter rows are left to plain code.
#define CONV_UNFILTER_SPLIT(name)                                                                  \
    static void name(const struct conv_image *dst, int y, const uint8_t *row)                      \
    {                                                                                              \
        bool wide = dst->depth == 16;                                                              \
        if ((size_t)dst->width << wide < 16)                                                       \
            conv_interleave_split(dst, y, row);                                                    \
        else if (dst->channels == 1 && !wide)                                                      \
            memcpy(dst->plane[0].data + y * dst->plane[0].stride, row, (size_t)dst->width);        \
        else if (dst->channels == 1)                                                               \
            conv_unfilter_split_row(dst, y, row, 1, 2, 16, vector16_1);                            \
        else if (dst->channels == 2 && !wide)                                                      \
            conv_unfilter_split_row(dst, y, row, 2, 1, 16, vector8_2);                             \
        else if (dst->channels == 2)                                                               \
            conv_unfilter_split_row(dst, y, row, 2, 2, 16, vector16_2);                            \
        else if (dst->channels == 3 && !wide)                                                      \
            conv_unfilter_split_row(dst, y, row, 3, 1, 16, vector8_3);                             \
        else if (dst->channels == 3)                                                               \
            conv_unfilter_split_row(dst, y, row, 3, 2, 16, vector16_3);                            \
        else if (!wide)                                                                            \
            conv_unfilter_split_row(dst, y, row, 4, 1, 16, vector8_4);                             \
        else                                                                                       \
            conv_unfilter_split_row(dst, y, row, 4, 2, 16, vector16_4);                            \
    }
