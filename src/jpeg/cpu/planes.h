// SPDX-License-Identifier: MIT
// Between the planes of an image and the samples of a JPEG's components, which libjpeg produces and
// takes in rows of MCUs. A row of MCUs has 8 * v rows of a component with the vertical sampling
// factor v. Chroma is enlarged and reduced as libjpeg-turbo does by default.
#ifndef CONV_JPEG_CPU_PLANES_H
#define CONV_JPEG_CPU_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/format.h"
#include "jpeg/cpu/rows.h"

#define CONV_JPEG_PLANES_MOST_ROWS 32 // of a component in a row of MCUs: 8 * 4

struct conv_jpeg_planes {
    // Set by the caller.
    int width, height;
    int components;                    // 1 or 3
    bool ycc;                          // three components are Y, Cb, Cr and not R, G, B
    uint8_t h[3], v[3];                // sampling factors, 1 to 4
    bool luma;                         // only gray is made of three components
    const struct conv_rows *put;       // where decoded rows go instead of planes; NULL: to planes
    const struct conv_row_source *get; // where rows come from instead of planes; NULL: from planes

    // Set by conv_jpeg_planes_place.
    const struct conv_jpeg_rows *rows;
    int most_h, most_v;
    int done;     // rows of the image that have been finished
    uint8_t *row; // of the image, of up to four channels
    struct conv_jpeg_component {
        int width, height; // samples that the image determines
        size_t padded;     // samples of a row of whole blocks
        ptrdiff_t pitch;
        uint8_t *ring; // 2 rows of MCUs
        uint8_t *full; // rows of the image's width: one to be decoded, most_v to be encoded
        ptrdiff_t full_pitch;
    } component[3];
};

// True if all rows and columns of samples are whole multiples of each other; others libjpeg
// refuses.
bool conv_jpeg_planes_fit(const struct conv_jpeg_planes *planes);

// Bytes of scratch memory, whatever the number of rows of the image.
size_t conv_jpeg_planes_bytes(const struct conv_jpeg_planes *planes);

void conv_jpeg_planes_place(struct conv_jpeg_planes *planes, uint8_t *memory);

// Where the rows of component c in a row of MCUs are: 8 * v pointers, each to whole blocks.
void conv_jpeg_planes_rows(const struct conv_jpeg_planes *planes, int c, int mcu_row,
                           uint8_t *rows[CONV_JPEG_PLANES_MOST_ROWS]);

// The rows of that row of MCUs have been decoded, and all before it: writes the rows of the image
// that they determine to dst->plane[].
void conv_jpeg_planes_put(struct conv_jpeg_planes *planes, int mcu_row,
                          const struct conv_image *dst);

// Fills the rows of a row of MCUs from src->plane[]; samples beyond the image repeat its last ones.
void conv_jpeg_planes_get(struct conv_jpeg_planes *planes, int mcu_row,
                          const struct conv_image *src);

#endif
