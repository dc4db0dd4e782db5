// SPDX-License-Identifier: MIT
// Reverses PNG row filters and splits rows into planes: one table of implementations.
#pragma once

#include <stdatomic.h>
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

// The fastest for these CONV_CPU_* bits.
const struct conv_unfilter *conv_unfilter_choose(unsigned features);

// --- rows that follow each other -----------------------------------------------------------------

// Reverses the filters of rows that one or several threads take in turn. A row needs the row above
// it, but only up to its own position, so each thread follows the thread of the row above at a
// distance of some KiB.

#define CONV_UNFILTER_WAVE_ROWS 32 // in memory for several threads, at most half as many

// One row's state, on a cache line of its own.
struct conv_unfilter_progress {
    _Alignas(64) _Atomic uint64_t value; // the row's number << 32 | its bytes that may be read
};

struct conv_unfilter_wave {
    const struct conv_unfilter *unfilter;
    size_t size;            // bytes of a row, without the filter byte
    int pixel;              // bytes of a pixel
    size_t stretch;         // bytes
    uint8_t *rows;          // memory; row y is in place y % (last + 1)
    unsigned last;          // place: one less than a power of two
    size_t pitch;           // bytes between two of them
    atomic_bool failed;     // ends all waiting
    atomic_bool bad_filter; // a row has one that does not exist
    struct conv_unfilter_progress progress[CONV_UNFILTER_WAVE_ROWS];
};

// Bytes of memory for such rows.
size_t conv_unfilter_wave_bytes(size_t size, int threads);

// `memory` has conv_unfilter_wave_bytes() bytes and belongs to the caller.
void conv_unfilter_wave_start(struct conv_unfilter_wave *wave, const struct conv_unfilter *unfilter,
                              size_t size, int pixel, int threads, uint8_t *memory);

// The number of threads that rows of that size keep busy; 1 if they are too short.
int conv_unfilter_wave_threads(size_t size);

// Unfilters the next row of `count` in `raw`, each with its filter byte, or two if that is faster.
// Returns how many; 0: a filter does not exist, or conv_unfilter_wave_fail was called. Any thread,
// if the rows before are begun in their order; waits for the thread above. Of several threads, it
// overwrites the rows in `raw`.
unsigned conv_unfilter_wave_next(struct conv_unfilter_wave *wave, unsigned y, uint8_t *raw,
                                 size_t count);

// Row `y`, which may be read until conv_unfilter_wave_end.
uint8_t *conv_unfilter_wave_row(const struct conv_unfilter_wave *wave, unsigned y);
void conv_unfilter_wave_end(struct conv_unfilter_wave *wave, unsigned y);

// Lets all calls that wait return 0. Any thread.
void conv_unfilter_wave_fail(struct conv_unfilter_wave *wave);
