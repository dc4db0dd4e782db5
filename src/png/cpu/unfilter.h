// SPDX-License-Identifier: MIT
// The way back from PNG's filters, one row at a time, and the table of who can do it how fast.
#ifndef CONV_PNG_CPU_UNFILTER_H
#define CONV_PNG_CPU_UNFILTER_H

#include <stddef.h>
#include <stdint.h>

#include "image/image.h"

// Bytes behind a row that may be read (src, up) or overwritten (dst).
#define CONV_UNFILTER_SLACK 32

enum {
    CONV_UNFILTER_NONE,
    CONV_UNFILTER_SUB,
    CONV_UNFILTER_UP,
    CONV_UNFILTER_AVERAGE,
    CONV_UNFILTER_PAETH,
    CONV_UNFILTER_COUNT
};

// Index of a pixel size in the tables: 1, 2, 3, 4, 6 or 8 bytes.
enum { CONV_UNFILTER_SIZES = 6 };
static inline int conv_unfilter_index(int pixel_bytes)
{
    return pixel_bytes <= 4 ? pixel_bytes - 1 : pixel_bytes / 2 + 1;
}

// Makes dst, `size` bytes of plain samples, from the filtered bytes src and the plain row above
// (zeros for the first). The three do not overlap.
typedef void (*conv_unfilter_fn)(uint8_t *dst, const uint8_t *src, const uint8_t *up, size_t size);

struct conv_unfilter {
    const char *name;
    unsigned needs; // CONV_CPU_* bits
    conv_unfilter_fn reverse[CONV_UNFILTER_SIZES][CONV_UNFILTER_COUNT];
    // As conv_interleave_split, but `row` has the slack above behind it.
    void (*split)(const struct conv_image *dst, int y, const uint8_t *row);
};

extern const struct conv_unfilter conv_unfilter_plain; // needs nothing
#ifdef __x86_64__
extern const struct conv_unfilter conv_unfilter_sse41, conv_unfilter_avx2;
#elif defined(__aarch64__)
extern const struct conv_unfilter conv_unfilter_neon;
#endif

// All that this program has, best first, plain last.
const struct conv_unfilter *const *conv_unfilter_variants(int *count);

// The best for these CONV_CPU_* bits.
const struct conv_unfilter *conv_unfilter_choose(unsigned features);

#endif
