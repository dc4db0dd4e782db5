// SPDX-License-Identifier: MIT
// Filtered rows of PNGs that compress in different ways.
#ifndef CONV_TESTS_ROWS_H
#define CONV_TESTS_ROWS_H

#include <stddef.h>
#include <stdint.h>

enum rows_kind {
    ROWS_NOISE,
    ROWS_DELTAS, // as filtered photographs
    ROWS_RUNS,
    ROWS_TILES, // matches that reach far, and so from one part of the stream into another
    ROWS_KINDS
};

// Fills `size` bytes; each row of `pitch` bytes begins with a filter that exists.
void rows_fill(uint64_t *seed, uint8_t *data, size_t size, size_t pitch, int kind);

#endif
