// SPDX-License-Identifier: MIT
// What is in the compressed and the text chunks of a PNG.
#ifndef CONV_PNG_CONTENT_H
#define CONV_PNG_CONTENT_H

#include "base/buffer.h"
#include "image/common.h"
#include "png/chunk.h"

// Inflates the chunks of one file, CONV_COMMON_MOST bytes in total: further ones count as damaged.
// Starts as {0}.
struct conv_png_inflater {
    struct libdeflate_decompressor *decompressor;
    size_t used;
    struct conv_buffer scratch;
};

void conv_png_inflater_free(struct conv_png_inflater *inflater);

// Replaces the content of *out by that of a zlib stream, which must take all `size` bytes; empty if
// it is damaged. False: out of memory.
bool conv_png_inflate(struct conv_png_inflater *inflater, struct conv_buffer *out,
                      const uint8_t *data, size_t size);

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

// common.c. Appends chunks of cleaned metadata. False: out of memory.
bool conv_png_put_texts(struct conv_buffer *buffer, const struct conv_common *common);

#endif
