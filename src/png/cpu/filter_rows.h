// SPDX-License-Identifier: MIT
// The five filters of PNG (ISO/IEC 15948, 9.2), taken where an image still lies in planes: there
// the byte to the left is the one before, whatever the pixel's size, so that one loop a filter
// serves all shapes. A plane of 16 bits counts as two planes of bytes.
#ifndef CONV_PNG_CPU_FILTER_ROWS_H
#define CONV_PNG_CPU_FILTER_ROWS_H

#include <stddef.h>
#include <stdint.h>

enum conv_row_filter { // the numbers of the standard
    CONV_ROW_NONE,
    CONV_ROW_SUB,
    CONV_ROW_UP,
    CONV_ROW_AVERAGE,
    CONV_ROW_PAETH,
    CONV_ROW_FILTERS
};

#define CONV_ROW_MAX_PLANES 8 // of bytes: four channels of 16 bits

// One instruction set. No function reads or writes beyond n bytes (samples, pixels) of a pointer;
// nothing overlaps; n > 0.
struct conv_filter_rows {
    const char *name;
    unsigned needs; // features of conv_cpu_features()

    // dst[x] = row[x] - prediction from row[x - 1], above[x], above[x - 1], modulo 256.
    void (*filter)(uint8_t *dst, enum conv_row_filter filter, const uint8_t *row,
                   const uint8_t *above, size_t n);
    // Adds to cost[f] the sum over dst as signed bytes of their absolute values, for each filter.
    void (*add_costs)(uint64_t cost[CONV_ROW_FILTERS], const uint8_t *row, const uint8_t *above,
                      size_t n);
    // row[x * planes + p] = plane[p][x]; 1 to CONV_ROW_MAX_PLANES of them.
    void (*join)(uint8_t *row, const uint8_t *const *plane, int planes, size_t n);
    // The bytes of 16-bit samples.
    void (*halve)(uint8_t *high, uint8_t *low, const uint16_t *samples, size_t n);
};

extern const struct conv_filter_rows conv_filter_rows_plain;
extern const struct conv_filter_rows conv_filter_rows_avx2; // on x86 only

// The best for these features.
const struct conv_filter_rows *conv_filter_rows_choose(unsigned features);

#endif
