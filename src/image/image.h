// SPDX-License-Identifier: MIT
// Planar images: one plane per channel, 8, 16 or 32 bits per sample, native byte order. Nothing
// here owns memory; an image is a view of memory that its caller owns.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONV_IMAGE_MAX_CHANNELS 4
#define CONV_IMAGE_MOST_SPARE (2 * CONV_IMAGE_MAX_CHANNELS)

// Rows start on multiples of this many bytes (which the GPU's bulk copies require), planes on
// multiples of CONV_IMAGE_PLANE_ALIGN (a cache line pair, a DRAM burst). Long rows, where it costs
// little, start on whole cache lines and sectors of a GPU's memory: with rows of 6000 bytes, large
// Gaussians take 15 % less time on an H200.
#define CONV_IMAGE_ROW_ALIGN 16
#define CONV_IMAGE_LONG_ROW 1024
#define CONV_IMAGE_LONG_ROW_ALIGN 64
#define CONV_IMAGE_PLANE_ALIGN 128
// The same sample of several planes is used together. Addresses that are multiples of 4096 apart
// share a set of the nearest cache. Planes from SPREAD_FROM bytes on therefore take SPREAD bytes
// more than a multiple of PAGE, so that samples of four planes are at least 640 bytes apart modulo
// PAGE.
#define CONV_IMAGE_PAGE 4096
#define CONV_IMAGE_SPREAD (9 * CONV_IMAGE_PLANE_ALIGN)
#define CONV_IMAGE_SPREAD_FROM ((size_t)1 << 20)

struct conv_plane {
    uint8_t *data;    // first sample of the first row
    ptrdiff_t stride; // bytes from a row to the next
};

// Channel order: gray | gray, alpha | R, G, B | R, G, B, alpha.
struct conv_image {
    int width, height; // pixels
    int channels;      // 1 to 4
    int depth;         // bits per sample: 8, 16 (uint16_t in native byte order) or 32 (float)
    int result_depth;  // of the filtered image; 0: as depth
    bool alpha;        // the last channel is alpha
    int spare;         // further planes of this size in host memory, for the host's own use
    struct conv_plane plane[CONV_IMAGE_MAX_CHANNELS];
};

static inline size_t conv_image_align(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static inline uint8_t *conv_image_row(const struct conv_image *image, int channel, int y)
{
    return image->plane[channel].data + y * image->plane[channel].stride;
}

// A sample of 8 or 16 bits.
static inline unsigned conv_image_get(const uint8_t *row, int depth, int x)
{
    return depth == 16 ? ((const uint16_t *)(const void *)row)[x] : row[x];
}

// Bytes from a row to the next in staging and device memory.
static inline size_t conv_image_stride(int width, int depth)
{
    size_t bytes = (size_t)width * (size_t)(depth / 8);
    return conv_image_align(bytes, bytes < CONV_IMAGE_LONG_ROW ? CONV_IMAGE_ROW_ALIGN
                                                               : CONV_IMAGE_LONG_ROW_ALIGN);
}

// Bytes that one plane takes in staging and device memory.
static inline size_t conv_image_plane_bytes(int width, int height, int depth)
{
    size_t bytes = conv_image_stride(width, depth) * (size_t)height;
    if (bytes >= CONV_IMAGE_SPREAD_FROM)
        return conv_image_align(bytes - CONV_IMAGE_SPREAD, CONV_IMAGE_PAGE) + CONV_IMAGE_SPREAD;
    return conv_image_align(bytes, CONV_IMAGE_PLANE_ALIGN);
}

// The larger of an image's depths: its planes have room for the results.
static inline int conv_image_room_depth(const struct conv_image *shape)
{
    return shape->result_depth > shape->depth ? shape->result_depth : shape->depth;
}

// Bytes of an image's planes one after another, as conv_image_lay_out places them.
static inline size_t conv_image_bytes(const struct conv_image *shape)
{
    return conv_image_plane_bytes(shape->width, shape->height, shape->depth) *
           (size_t)shape->channels;
}

// Makes *image an image of that shape whose planes lie one after another in `memory` of
// conv_image_bytes bytes, which should begin at a multiple of CONV_IMAGE_PLANE_ALIGN.
void conv_image_lay_out(struct conv_image *image, const struct conv_image *shape, uint8_t *memory);

// Copies all samples between two images of one shape.
void conv_image_copy(const struct conv_image *dst, const struct conv_image *src);

// Turns an image upright that is stored in one of the orientations of Exif, 1 to 8.
// From 5 on, the width of `dst` is the height of `src`. They do not overlap.
void conv_image_turn(const struct conv_image *dst, const struct conv_image *src, int orientation);

// Converts samples of 8 or 16 bits in place, whose rows have room for both, to `to` bits:
// multiplied by 257, or divided by 257 to the nearest integer. Colours, not alpha, are replaced by
// their entries of a table, unless that is NULL, while they have 16 bits.
void conv_image_convert(struct conv_image *image, int to, const uint16_t table[65536]);

// Rounded half to even. The divisor is even, and its half and the sum are below 2^32 together.
static inline unsigned conv_image_divide_half_even(unsigned sum, unsigned divisor)
{
    unsigned more = sum + divisor / 2, up = more / divisor;
    return up - (up & (up * divisor == more));
}

// Adds a share of another image of the same shape, in CONV_IMAGE_WHOLE-ths: (share * other + the
// rest * image) / CONV_IMAGE_WHOLE, rounded half to even.
#define CONV_IMAGE_WHOLE 10000
void conv_image_mix(const struct conv_image *image, const struct conv_image *other, unsigned share);

// Sets the first plane of *gray to the luma of BT.601 of R, G and B: (299 R + 587 G + 114 B) /
// 1000, rounded half to even. It may be one of their planes.
void conv_image_weigh(const struct conv_image *gray, const struct conv_image *colours);

// Replaces the luma of colours: adds to R, G and B the difference of the first plane of *luma and
// their luma by conv_image_weigh, and clamps. So Cb and Cr stay, but where clamped.
void conv_image_replace_luma(const struct conv_image *colours, const struct conv_image *luma);

struct conv_image_difference {
    int channel, x, y;
    unsigned a, b; // the samples there
};

// True if two images of one shape differ; *first is the first sample that does, by channel and row.
bool conv_image_differ(const struct conv_image *a, const struct conv_image *b,
                       struct conv_image_difference *first);

// --- linear light --------------------------------------------------------------------------------
// Between samples as they are stored and linear light, both of 16 bits, by tables. A table has the
// same entries on every machine: its arithmetic is +, -, *, / of doubles in one order, without
// libm.

// The exponents 1 / gamma that a file may state.
#define CONV_CURVE_LEAST_GAMMA 10000
#define CONV_CURVE_MOST_GAMMA 1000000

struct conv_curve {
    uint32_t gamma;         // of conv_image_header
    uint16_t linear[65536]; // round(65535 f(v / 65535)) of each sample v
    uint16_t stored[65536]; // the same of the inverse function
};

// f is the function of sRGB (IEC 61966-2-1) for gamma 0, else a power with the exponent 100000 /
// gamma.
void conv_curve_make(struct conv_curve *curve, uint32_t gamma);
