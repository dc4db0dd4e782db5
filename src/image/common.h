// SPDX-License-Identifier: MIT
// Metadata that image formats have in common, cleaned of what is no longer true (clean.h).
#ifndef CONV_IMAGE_COMMON_H
#define CONV_IMAGE_COMMON_H

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

// True if the profile is for images of `colors` colour channels.
bool conv_common_icc_fits(const struct conv_buffer *icc, int colors);

#endif
