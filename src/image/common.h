// SPDX-License-Identifier: MIT
// Metadata that image formats have in common, and how it is cleaned of what is no longer true.
#ifndef CONV_IMAGE_COMMON_H
#define CONV_IMAGE_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

// A longer profile or packet is not carried over, since a small file may hold a compressed one that
// expands far, and a JPEG has room for 255 segments only.
#define CONV_COMMON_MOST ((size_t)16 << 20)

// Starts as {0}. What a file does not have is of size 0.
struct conv_common {
    struct conv_buffer icc;       // an ICC profile
    struct conv_buffer exif;      // a TIFF structure
    struct conv_buffer xmp;       // an XMP packet
    struct conv_buffer photoshop; // image resources, captions (IPTC) among them
    struct conv_buffer comments;  // each ended by NUL
    // Pixels per metre of both axes or, unless `metres`, their ratio; 0: unknown.
    uint32_t density_x, density_y;
    bool metres;
};

void conv_common_free(struct conv_common *common); // also resets it to {0}

// Cleans what a file has. If `look`, only what changes how the image looks remains: the profile,
// and in Exif orientation and colour space. False: out of memory.
bool conv_common_clean(struct conv_common *common, bool look);

// Appends a text up to its first NUL, and a NUL. False: out of memory.
bool conv_common_add_comment(struct conv_common *common, const uint8_t *text, size_t size);

// The comment at *at, which is moved after it; NULL after the last one. *at starts as 0.
const char *conv_common_next_comment(const struct conv_common *common, size_t *at);

// True if the profile is for images of `colors` colour channels.
bool conv_common_icc_fits(const struct conv_buffer *icc, int colors);

// --- cleaning ------------------------------------------------------------------------------------

// Metadata are carried over as far as they are understood. What shows the image before it was
// filtered, describes other parts of its file, or cannot be read is dropped; what remains is
// written anew, so that no bytes stay unread. Each function replaces the content of a buffer, which
// becomes empty if nothing remains. False: out of memory.

// exif.c: a TIFF structure, with or without the prefix that it has in JPEG files. Standard tags of
// IFD0, Exif, GPS and Interoperability remain, in their byte order and at most CONV_CLEAN_EXIF_MOST
// bytes, a segment of JPEG. If `look`, only what changes how the image looks: orientation and
// colour space.
#define CONV_CLEAN_EXIF_MOST (65535 - 2 - 6)
bool conv_clean_exif(struct conv_buffer *exif, bool look);

// xmp.c: an XMP packet. Images, digests, and what describes further images or parts of the file
// are taken out. A packet that is not well-formed is dropped.
bool conv_clean_xmp(struct conv_buffer *xmp);

// photoshop.c: image resources of Photoshop, among them the captions of IPTC.
bool conv_clean_photoshop(struct conv_buffer *photoshop);

// Moves *at from the start of a resource to its end. The resources have been cleaned.
void conv_clean_photoshop_next(const struct conv_buffer *photoshop, size_t *at);

// --- embedded.c ----------------------------------------------------------------------------------

// Whether bytes or text of metadata may hold an image. What may do so is not carried over, since it
// would show the image before it was filtered.

// True if an image file of a common format begins anywhere in the bytes, as it is or written in
// base64 or hexadecimal digits, in lines of 16 digits or more, or in numbers (FF D8, 255,216), or
// if there are 256 such digits without a space, which may be compressed data.
bool conv_embedded_image(const uint8_t *data, size_t size);

// The same for bytes that are mostly numbers, as those of a colour profile: more of the file must
// be there, and only as it is.
bool conv_embedded_in_tables(const uint8_t *data, size_t size);

// True if there are no control characters other than white space and ESC before NULs at the end.
bool conv_embedded_is_text(const uint8_t *data, size_t size);

// The same for UTF-16, which must also have no surrogate without its other half.
bool conv_embedded_is_utf16(const uint8_t *data, size_t size, bool little);

bool conv_embedded_is_utf8(const uint8_t *data, size_t size);

#endif
