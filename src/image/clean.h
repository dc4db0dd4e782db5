// SPDX-License-Identifier: MIT
// Metadata are carried over as far as they are understood. What shows the image before it was
// filtered, describes other parts of its file, or cannot be read is dropped; what remains is
// written anew, so that no bytes stay unread. Each function replaces the content of a buffer, which
// becomes empty if nothing remains. False: out of memory.
#ifndef CONV_IMAGE_CLEAN_H
#define CONV_IMAGE_CLEAN_H

#include "base/buffer.h"

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

#endif
