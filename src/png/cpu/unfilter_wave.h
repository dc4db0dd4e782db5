// SPDX-License-Identifier: MIT
// Reverses the filters of several rows at once. A row needs the row above it, but only up to its
// own position, so each thread follows the thread of the row above at a distance of some KiB.
#ifndef CONV_PNG_CPU_UNFILTER_WAVE_H
#define CONV_PNG_CPU_UNFILTER_WAVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "png/cpu/unfilter.h"

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
