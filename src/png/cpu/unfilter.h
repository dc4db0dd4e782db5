// SPDX-License-Identifier: MIT
// Reverses PNG row filters and splits rows into planes: one table of implementations.
#ifndef CONV_PNG_CPU_UNFILTER_H
#define CONV_PNG_CPU_UNFILTER_H

#include <stdatomic.h>
#include <stdbool.h>
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

// --- several rows at once ------------------------------------------------------------------------

// Reverses the filters of several rows at once. A row needs the row above it, but only up to its
// own position, so each thread follows the thread of the row above at a distance of some KiB.

#define CONV_UNFILTER_WAVE_ROWS 32 // rows in memory; at most half as many threads

// One row's state, on a cache line of its own.
struct conv_unfilter_progress {
    _Alignas(64) _Atomic uint64_t value; // the row's number << 32 | its bytes that may be read
};

struct conv_unfilter_wave {
    const conv_unfilter_fn *reverse; // of the pixel size, by filter
    size_t size;                     // bytes of a row, without the filter byte; below 1 << 31
    size_t pixel;                    // bytes of a pixel
    size_t stretch;                  // bytes
    uint8_t *rows;                   // memory of the rows and, before them, of a row of zeros
    size_t pitch;                    // bytes between two of them
    atomic_bool failed;              // ends all waiting
    struct conv_unfilter_progress progress[CONV_UNFILTER_WAVE_ROWS];
};

// Bytes of memory for such rows.
size_t conv_unfilter_wave_bytes(size_t size);

// `memory` has conv_unfilter_wave_bytes(size) bytes and belongs to the caller.
void conv_unfilter_wave_start(struct conv_unfilter_wave *wave, const struct conv_unfilter *unfilter,
                              size_t size, int pixel, uint8_t *memory);

// The number of threads that rows of that size keep busy; 1 if they are too short.
int conv_unfilter_wave_threads(size_t size);

// Any thread, if the rows before are begun in their order. Waits for the thread above. `raw` is the
// row with its filter byte; it is overwritten. Returns the row, which may be read until
// conv_unfilter_wave_end is called for it; NULL: its filter does not exist, or
// conv_unfilter_wave_fail was called.
const uint8_t *conv_unfilter_wave_row(struct conv_unfilter_wave *wave, unsigned y, uint8_t *raw);

// The same for rows y and y + 1, which have the same filter: from `raw` on, one after the other.
// `pair` is the function for them. rows[0] and rows[1] are the results; each is to be ended.
bool conv_unfilter_wave_pair(struct conv_unfilter_wave *wave, unsigned y, uint8_t *raw,
                             conv_unfilter_pair_fn pair, const uint8_t *rows[2]);

// Row `y`, which one of these functions returned, is no longer read. Any thread.
void conv_unfilter_wave_end(struct conv_unfilter_wave *wave, unsigned y);

// Lets all calls that wait return NULL. Any thread.
void conv_unfilter_wave_fail(struct conv_unfilter_wave *wave);

#endif
