// SPDX-License-Identifier: MIT
// JPEG on the CPU: a decoder for baseline files, and what it shares with libjpeg-turbo's, the
// arithmetic between the coefficients of a JPEG and R'G'B'.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "image/format.h"

// --- decode.c ------------------------------------------------------------------------------------

// Bytes of scratch memory for such a file of `size` bytes.
size_t conv_jpeg_decode_bytes(const struct conv_image_header *header, size_t size);

// As conv_libjpeg_decode, with the same pixels, for files with a stream. False, after any rows:
// that one decides.
bool conv_jpeg_decode(struct conv_buffer *scratch, const uint8_t *data, size_t size,
                      const struct conv_image_header *header, const struct conv_image *dst,
                      const struct conv_rows *rows, const atomic_int *stop);

// --- rows.c --------------------------------------------------------------------------------------

// The arithmetic of libjpeg-turbo to the last bit, on blocks, and on rows of one component each:
// inverse DCT, conversion of colours, enlargement and reduction of chroma.

// Bytes that may be read before and after the samples of a source, and that may be overwritten
// after those of a destination, in the functions that say so.
#define CONV_JPEG_ROW_SLACK 64

// The limit of coefficients, dequantised, and of results of the first pass in `idct`, below which
// no implementation of the DCT exceeds its 16 or 32 bits.
#define CONV_JPEG_ROW_MOST 8191

// The functions for one instruction set. Arrays do not overlap; n > 0.
struct conv_jpeg_rows {
    unsigned needs; // CONV_CPU_* bits

    // The inverse DCT of two blocks, row by row, to 8 rows of 16 samples. Coefficients are
    // multiplied by `steps`, and then at most CONV_JPEG_ROW_MOST. False, and any samples, if a
    // result of the first pass is larger, or a sample less than -512 or more than 511 before 128 is
    // added: there implementations differ.
    bool (*idct)(uint8_t *dst, ptrdiff_t stride, const int16_t *blocks, const int16_t *steps);

    // Y, Cb, Cr to R, G, B and back: n samples each (ITU-T T.871, 16 fractional bits, rounded).
    void (*to_rgb)(uint8_t *const rgb[3], const uint8_t *const ycc[3], size_t n);
    void (*to_ycc)(uint8_t *const ycc[3], const uint8_t *const rgb[3], size_t n);

    // These four need slack.
    // n samples to 2 n, each 3/4 of the nearer sample and 1/4 of the next one. src[-1] and src[n]
    // repeat the first and the last sample.
    void (*widen)(uint8_t *dst, const uint8_t *src, size_t n);
    // The same of the column 3/4 `near`, 1/4 `far`, rounded once.
    void (*widen_between)(uint8_t *dst, const uint8_t *near, const uint8_t *far, size_t n);
    // The means of pairs, and of squares from two rows, rounded down and up in turn; n results.
    void (*halve)(uint8_t *dst, const uint8_t *src, size_t n);
    void (*halve_both)(uint8_t *dst, const uint8_t *upper, const uint8_t *lower, size_t n);
};

extern const struct conv_jpeg_rows conv_jpeg_rows_plain;
extern const struct conv_jpeg_rows conv_jpeg_rows_avx2; // on x86-64 only

// The fastest for these CONV_CPU_* bits.
const struct conv_jpeg_rows *conv_jpeg_rows_choose(unsigned features);

// --- planes.c ------------------------------------------------------------------------------------

// Between the planes of an image and the samples of a JPEG's components, which are produced and
// taken in rows of MCUs. A row of MCUs has 8 * v rows of a component with the vertical sampling
// factor v. Chroma is enlarged and reduced as libjpeg-turbo does by default.

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

// Those that a file with a stream is decoded to.
struct conv_jpeg_planes conv_jpeg_planes_of(const struct conv_image_header *header);

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
