// SPDX-License-Identifier: MIT
// The five filters of PNG (ISO/IEC 15948, 9.2), applied to planes of bytes: there the left sample
// is the byte before, whatever the size of a pixel, so one loop per filter serves all shapes. A
// plane of 16 bits counts as two planes of bytes.
#pragma once

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
#define CONV_ROW_JOIN_LEAST 32

// The functions for one instruction set. None reads or writes beyond n elements of an array; arrays
// do not overlap; n > 0.
struct conv_filter_rows {
    const char *name;
    unsigned needs; // CONV_CPU_* bits

    // dst[x] = row[x] - prediction from row[x - 1], above[x], above[x - 1], modulo 256.
    void (*filter)(uint8_t *dst, enum conv_row_filter filter, const uint8_t *row,
                   const uint8_t *above, size_t n);
    // Adds to cost[f], for each filter, the sum of the residuals' magnitudes as signed bytes.
    void (*add_costs)(uint64_t cost[CONV_ROW_FILTERS], const uint8_t *row, const uint8_t *above,
                      size_t n);
    // row[x * planes + p] = plane[p][x], for 1 to CONV_ROW_MAX_PLANES planes.
    void (*join)(uint8_t *row, const uint8_t *const *plane, int planes, size_t n);
    // Filters 3 or 4 planes of at least CONV_ROW_JOIN_LEAST bytes and joins the residuals. `left`:
    // 1 if the planes have a column before these, else 0. NULL: filter() and join() have to do it.
    void (*filter_join)(uint8_t *dst, enum conv_row_filter filter, const uint8_t *const *row,
                        const uint8_t *const *above, int planes, size_t n, size_t left);
    // The high and the low bytes of 16-bit samples.
    void (*halve)(uint8_t *high, uint8_t *low, const uint16_t *samples, size_t n);
};

extern const struct conv_filter_rows conv_filter_rows_plain;
extern const struct conv_filter_rows conv_filter_rows_avx2;   // on x86 only
extern const struct conv_filter_rows conv_filter_rows_avx512; // on x86-64 only

// The fastest for these CONV_CPU_* bits.
const struct conv_filter_rows *conv_filter_rows_choose(unsigned features);

// --- implementations with vectors ----------------------------------------------------------------

// For files that implement struct conv_filter_rows with vectors: calls with a constant type, so
// that loops inlined there have no branch on it.

#define CONV_ROW_DISPATCH(type, CALL)                                                              \
    do {                                                                                           \
        switch (type) {                                                                            \
        case CONV_ROW_SUB:                                                                         \
            CALL(CONV_ROW_SUB);                                                                    \
            break;                                                                                 \
        case CONV_ROW_UP:                                                                          \
            CALL(CONV_ROW_UP);                                                                     \
            break;                                                                                 \
        case CONV_ROW_AVERAGE:                                                                     \
            CALL(CONV_ROW_AVERAGE);                                                                \
            break;                                                                                 \
        case CONV_ROW_PAETH:                                                                       \
            CALL(CONV_ROW_PAETH);                                                                  \
            break;                                                                                 \
        default:                                                                                   \
            CALL(CONV_ROW_NONE);                                                                   \
            break;                                                                                 \
        }                                                                                          \
    } while (0)

// In filter() and filter_join(): filter_as() and filter_join_as() of the same file.
#define CONV_ROW_FILTER_AS(type) filter_as(dst, type, row, above, n)
#define CONV_ROW_FILTER_JOIN_AS(type)                                                              \
    if (planes == 4)                                                                               \
        filter_join_as(dst, type, row, above, 4, n, left);                                         \
    else                                                                                           \
        filter_join_as(dst, type, row, above, 3, n, left)
