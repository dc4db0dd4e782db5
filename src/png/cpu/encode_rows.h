// SPDX-License-Identifier: MIT
// The filtered rows of an image, made row by row from its planes.
#ifndef CONV_PNG_CPU_ENCODE_ROWS_H
#define CONV_PNG_CPU_ENCODE_ROWS_H

#include <stdbool.h>

#include "image/image.h"
#include "png/cpu/filter_rows.h"
#include "png/png.h"

// The position in an image and its planes of bytes: its own planes at 8 bits, otherwise the high
// and the low halves of their samples.
struct conv_encode_rows {
    const struct conv_filter_rows *functions;
    const struct conv_image *src;
    const struct conv_png_row_source *source; // NULL: the planes of src
    uint8_t *fetched[2]; // from `source`: the planes of the rows y with y % 2 == i
    int planes;
    int next; // the row after the current one
    size_t width;
    const uint8_t *row[CONV_ROW_MAX_PLANES];   // the current row
    const uint8_t *above[CONV_ROW_MAX_PLANES]; // and the one before
    uint8_t *halves[2];                        // of the rows y with y % 2 == i
    uint8_t *residual;                         // `planes` filtered rows
    const uint8_t *zero;                       // a row of zeros: above the first
    bool flat;                                 // conv_encode_rows_choose found small residuals
};

// Scratch bytes for such images, whose rows may come from a source; SIZE_MAX on overflow.
size_t conv_encode_rows_scratch(const struct conv_image *src, bool has_source);

// Prepares for rows 0, 1, 2, ... of src, or of `source` (NULL: none). `scratch`, src and source
// have to live as long as *rows.
void conv_encode_rows_start(struct conv_encode_rows *rows, const struct conv_filter_rows *functions,
                            const struct conv_image *src, const struct conv_png_row_source *source,
                            uint8_t *scratch);

// Moves to row y. If it does not follow the last one, only CONV_ROW_NONE is right for it.
void conv_encode_rows_next(struct conv_encode_rows *rows, int y);

// The filter whose residuals have the smallest sum as signed numbers: the standard's advice (12.8).
enum conv_row_filter conv_encode_rows_choose(struct conv_encode_rows *rows);

// Writes the filter byte and the filtered row to dst; returns the end.
uint8_t *conv_encode_rows_put(const struct conv_encode_rows *rows, uint8_t *dst,
                              enum conv_row_filter filter);

// True if the row equals the one above.
bool conv_encode_rows_is_repeated(const struct conv_encode_rows *rows);

// As conv_encode_rows_put with CONV_ROW_UP, for such a row.
uint8_t *conv_encode_rows_put_repeated(const struct conv_encode_rows *rows, uint8_t *dst);

#endif
