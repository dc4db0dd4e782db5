// SPDX-License-Identifier: MIT
// Reverses PNG row filters and splits rows into planes: one table of implementations.
#ifndef CONV_PNG_CPU_UNFILTER_H
#define CONV_PNG_CPU_UNFILTER_H

#include <stddef.h>
#include <stdint.h>

#include "image/image.h"

// Bytes after the end of a row that may be read (src, above) or overwritten (dst).
#define CONV_UNFILTER_SLACK 32

enum { // the numbers of the standard
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

// Computes dst, `size` bytes of unfiltered samples, from the filtered bytes src and the unfiltered
// row above (zeros for the first row). The three do not overlap.
typedef void (*conv_unfilter_fn)(uint8_t *dst, const uint8_t *src, const uint8_t *above,
                                 size_t size);

// The same for two rows of the same filter, dst[0] and the row below it, dst[1], at once. `size` is
// at least CONV_UNFILTER_PAIR_LEAST.
typedef void (*conv_unfilter_pair_fn)(uint8_t *const dst[2], const uint8_t *const src[2],
                                      const uint8_t *above, size_t size);

#define CONV_UNFILTER_PAIR_LEAST 64

struct conv_unfilter {
    const char *name;
    unsigned needs; // CONV_CPU_* bits
    conv_unfilter_fn reverse[CONV_UNFILTER_SIZES][CONV_UNFILTER_COUNT];
    conv_unfilter_pair_fn pair[CONV_UNFILTER_SIZES][CONV_UNFILTER_COUNT]; // NULL: there is none
    // As conv_interleave_split, but CONV_UNFILTER_SLACK bytes after `row` may be read.
    void (*split)(const struct conv_image *dst, int y, const uint8_t *row);
};

extern const struct conv_unfilter conv_unfilter_plain; // for any processor
#ifdef __x86_64__
extern const struct conv_unfilter conv_unfilter_sse41, conv_unfilter_avx2;
#elif defined(__aarch64__)
extern const struct conv_unfilter conv_unfilter_neon;
#endif

// All implementations of this build, fastest first, plain last.
const struct conv_unfilter *const *conv_unfilter_variants(int *count);

// The function for two rows with these filter bytes and then `size` filtered bytes; NULL if they
// are reversed as fast or faster one after the other.
conv_unfilter_pair_fn conv_unfilter_find_pair(const struct conv_unfilter *unfilter, int pixel,
                                              const uint8_t *first, const uint8_t *second,
                                              size_t size);

// The fastest for these CONV_CPU_* bits.
const struct conv_unfilter *conv_unfilter_choose(unsigned features);

#endif
