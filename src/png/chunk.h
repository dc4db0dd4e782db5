// SPDX-License-Identifier: MIT
// Chunks of a PNG file (ISO/IEC 15948, 5.3), the numbers and sums in them, what they say about the
// image, and what of them is carried from input to output.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "image/format.h"

#define CONV_PNG_SIGNATURE_SIZE 8
#define CONV_CHUNK_FRAME 12             // length, type and CRC around a chunk's data
#define CONV_CHUNK_MAX_FIELD 0x7fffffff // the standard's limit for lengths, widths and heights

// Bytes that a byte of DEFLATE decompresses to, at most: a match of 258 bytes takes a length and a
// distance of one bit each (RFC 1951, 3.2.7: a single distance code takes one bit, too).
#define CONV_CHUNK_MAX_EXPANSION (258 * 8 / 2)

#define CONV_CHUNK_TYPE(a, b, c, d)                                                                \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))
#define CONV_CHUNK_IHDR CONV_CHUNK_TYPE('I', 'H', 'D', 'R')
#define CONV_CHUNK_PLTE CONV_CHUNK_TYPE('P', 'L', 'T', 'E')
#define CONV_CHUNK_TRNS CONV_CHUNK_TYPE('t', 'R', 'N', 'S')
#define CONV_CHUNK_IDAT CONV_CHUNK_TYPE('I', 'D', 'A', 'T')
#define CONV_CHUNK_IEND CONV_CHUNK_TYPE('I', 'E', 'N', 'D')

// Colour types of IHDR.
enum {
    CONV_COLOR_GRAY = 0,
    CONV_COLOR_RGB = 2,
    CONV_COLOR_PALETTE = 3,
    CONV_COLOR_GRAY_ALPHA = 4,
    CONV_COLOR_RGB_ALPHA = 6
};

struct conv_chunk {
    uint32_t type;
    uint32_t length;
    const uint8_t *data; // inside the file, after the 8 bytes of length and type
};

static inline uint32_t conv_chunk_read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void conv_chunk_write_u32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> (24 - 8 * i));
}

// Reads the chunk at *at and moves *at after it; false if it is not wholly within the file. Its CRC
// is not checked.
static inline bool conv_chunk_next(struct conv_chunk *chunk, const uint8_t *file, size_t size,
                                   size_t *at)
{
    size_t left = size - *at;
    if (left < CONV_CHUNK_FRAME)
        return false;
    chunk->length = conv_chunk_read_u32(file + *at);
    chunk->type = conv_chunk_read_u32(file + *at + 4);
    chunk->data = file + *at + 8;
    if (chunk->length > CONV_CHUNK_MAX_FIELD || chunk->length > left - CONV_CHUNK_FRAME)
        return false;
    *at += CONV_CHUNK_FRAME + (size_t)chunk->length;
    return true;
}

// codec.c. True if the CRC, which covers type and data, is right.
bool conv_chunk_crc_is_right(const struct conv_chunk *chunk);

// True if all four bytes of a type are letters.
static inline bool conv_chunk_is_named(uint32_t type)
{
    for (int shift = 0; shift < 32; shift += 8) {
        uint32_t letter = (type >> shift & 0xff) | 0x20;
        if (letter < 'a' || letter > 'z')
            return false;
    }
    return true;
}

// A small letter in a type's first, third or fourth place marks a chunk that is ancillary, of a
// reserved kind, or safe to copy by editors that do not recognise it (5.4).
static inline bool conv_chunk_is_ancillary(uint32_t type)
{
    return type & 0x20000000;
}

static inline bool conv_chunk_is_reserved(uint32_t type)
{
    return type & 0x2000;
}

static inline bool conv_chunk_is_safe_to_copy(uint32_t type)
{
    return type & 0x20;
}

// Samples per pixel of a valid colour type, as they are in the file.
static inline int conv_chunk_channels(int color_type)
{
    static const int channels[] = {[CONV_COLOR_GRAY] = 1,
                                   [CONV_COLOR_RGB] = 3,
                                   [CONV_COLOR_PALETTE] = 1,
                                   [CONV_COLOR_GRAY_ALPHA] = 2,
                                   [CONV_COLOR_RGB_ALPHA] = 4};
    return channels[color_type];
}

// --- the sums in chunks and streams --------------------------------------------------------------

#define CONV_ADLER_BASE 65521u // the largest prime below 65536

// The Adler-32 of two byte strings one after the other, of which the second has `size` bytes: as
// adler32_combine of zlib.
static inline uint32_t conv_adler_join(uint32_t first, uint32_t second, size_t size)
{
    uint64_t rest = size % CONV_ADLER_BASE, low = first & 0xffff;
    uint64_t a = low + (second & 0xffff) + CONV_ADLER_BASE - 1;
    uint64_t b = (first >> 16) + (second >> 16) + rest * low + CONV_ADLER_BASE - rest;
    return (uint32_t)(b % CONV_ADLER_BASE << 16 | a % CONV_ADLER_BASE);
}

// cpu/checksum.c. Continues `crc`, 0 at the beginning, over `size` bytes. Any thread.
uint32_t conv_png_crc(uint32_t crc, const uint8_t *data, size_t size);

// --- common.c, metadata.c ------------------------------------------------------------------------

// Inflates the chunks of one file, CONV_COMMON_MOST bytes in total: further ones count as damaged.
// Starts as {0}.
struct conv_png_inflater {
    struct libdeflate_decompressor *decompressor;
    size_t used;
    struct conv_buffer scratch;
};

void conv_png_inflater_free(struct conv_png_inflater *inflater);

// Replaces the content of *icc by the profile in an iCCP chunk; empty if it is damaged. False: out
// of memory.
bool conv_png_take_profile(struct conv_buffer *icc, const struct conv_chunk *chunk,
                           struct conv_png_inflater *inflater);

// The metadata of a chunk that other formats have as well.
enum conv_png_content {
    CONV_PNG_OTHER, // a text among them
    CONV_PNG_EXIF,  // also in "Raw profile type ..." of ImageMagick
    CONV_PNG_XMP,
    CONV_PNG_PHOTOSHOP,
    CONV_PNG_COMMENT,
    CONV_PNG_DAMAGED, // not a text, or one that may hold an image
};

// Finds out what a chunk with a right CRC is, and appends its content to that part of *common
// unless the part is there already. False: out of memory.
bool conv_png_take_text(struct conv_common *common, const struct conv_chunk *chunk,
                        struct conv_png_inflater *inflater, enum conv_png_content *content);

// Appends chunks of cleaned metadata. False: out of memory.
bool conv_png_put_texts(struct conv_buffer *buffer, const struct conv_common *common);

// Appends a chunk of `head` and `data`, unless it is too long for one. False: out of memory.
bool conv_png_append_chunk(struct conv_buffer *buffer, uint32_t type, const void *head,
                           size_t head_size, const uint8_t *data, size_t size);

// conv_png_format.orientation: of the first eXIf chunk.
int conv_png_orientation(const uint8_t *data, size_t size);

// conv_png_format.take_common and .put_common: iCCP, eXIf, pHYs, the XMP packet of an iTXt chunk,
// raw profiles of ImageMagick, and texts with the keyword "Comment".
bool conv_png_take_common(const uint8_t *data, size_t size, const struct conv_image_header *header,
                          struct conv_cleaning cleaning, struct conv_common *common);
bool conv_png_put_common(const struct conv_common *common, const struct conv_image *shape,
                         struct conv_metadata *metadata);

// metadata.c. conv_png_format.collect: the chunks that are carried from input to output, complete
// with length, type and CRC, in file order, each on its side of the image data. These are chunks
// that are still true after filtering: the first of each for colour and print (iCCP sRGB gAMA cHRM
// cICP mDCV pHYs), position and scale (oFFs sCAL sTER) and background (bKGD, converted to the
// output's colour type and depth); texts (tEXt zTXt iTXt); Exif, XMP and resources of Photoshop,
// cleaned (image/format.h); and short unknown chunks that are safe to copy by their name. Not
// carried: texts that may hold an image, descriptions of the old samples or file (sBIT tIME hIST
// sPLT pCAL cLLI dSIG), animation (acTL fcTL fdAT), unknown chunks that are long or unsafe to copy,
// and chunks with a wrong CRC or beyond `data`. If `look`, only colour and, in Exif, the
// orientation.
bool conv_png_collect(const uint8_t *data, size_t size, const struct conv_image_header *header,
                      struct conv_cleaning cleaning, struct conv_metadata *metadata);
