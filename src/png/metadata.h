// SPDX-License-Identifier: MIT
// Metadata of a PNG: what is in its compressed and its text chunks, and what of them is carried
// over.
#ifndef CONV_PNG_METADATA_H
#define CONV_PNG_METADATA_H

#include "base/buffer.h"
#include "image/format.h"
#include "png/chunk.h"

// --- common.c ------------------------------------------------------------------------------------

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

// Appends chunks of cleaned metadata. False: out of memory.
bool conv_png_put_texts(struct conv_buffer *buffer, const struct conv_common *common);

// conv_png_format.take_common and .put_common: iCCP, eXIf, pHYs, the XMP packet of an iTXt chunk,
// raw profiles of ImageMagick, and texts with the keyword "Comment".
enum conv_status conv_png_take_common(const uint8_t *data, size_t size,
                                      const struct conv_image_header *header, bool look,
                                      struct conv_common *common, struct conv_err *err);
enum conv_status conv_png_put_common(const struct conv_common *common,
                                     const struct conv_image *shape, struct conv_metadata *metadata,
                                     struct conv_err *err);

// metadata.c. conv_png_format.collect: the chunks that are carried from input to output, complete
// with length, type and CRC, in file order, each on its side of the image data. These are chunks
// that are still true after filtering: the first of each for colour and print (iCCP sRGB gAMA cHRM
// cICP mDCV pHYs), position and scale (oFFs sCAL sTER) and background (bKGD, converted to the
// output's colour type and depth); texts (tEXt zTXt iTXt); Exif, XMP and resources of Photoshop,
// cleaned (image/common.h); and short unknown chunks that are safe to copy by their name. Not
// carried: texts that may hold an image, descriptions of the old samples or file (sBIT tIME hIST
// sPLT pCAL cLLI dSIG), animation (acTL fcTL fdAT), unknown chunks that are long or unsafe to copy,
// and chunks with a wrong CRC or beyond `data`. If `look`, only colour and, in Exif, the
// orientation.
enum conv_status conv_png_collect(const uint8_t *data, size_t size,
                                  const struct conv_image_header *header, bool look,
                                  struct conv_metadata *metadata, struct conv_err *err);

#endif
