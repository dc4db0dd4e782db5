// SPDX-License-Identifier: MIT
// Filtered rows of PNGs that compress in different ways.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum rows_kind {
    ROWS_NOISE,
    ROWS_DELTAS, // as filtered photographs: short codewords, matches of three to five
    ROWS_RUNS,   // distances below 16, which overlap
    ROWS_TILES,  // matches that reach far, and so from one part of the stream into another
    ROWS_KINDS,
    ROWS_PIECES = ROWS_KINDS, // from anywhere before, of any length
    ROWS_RARE,                // codewords of all lengths up to the longest
    ROWS_ALL_KINDS
};

// Fills `size` bytes; each row of `pitch` bytes begins with a filter that exists.
void rows_fill(uint64_t *seed, uint8_t *data, size_t size, size_t pitch, int kind);
