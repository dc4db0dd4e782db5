// SPDX-License-Identifier: MIT
// Other PNG decoders, measured for comparison and used nowhere else.
#pragma once

#include "base/buffer.h"
#include "png/png.h"

struct conv_competitor {
    const char *name;
    bool (*inflate)(uint8_t *dst, size_t room, const uint8_t *src, size_t size); // all of `room`
};

extern const struct conv_competitor conv_competitors[]; // ends with a name of NULL

// Decodes a PNG file into rows of conv_interleave_bytes(&header->shape) bytes; there is no split
// into planes. CONV_ERR_UNSUPPORTED for some kinds of images.
enum conv_status conv_competitor_decode(const struct conv_competitor *competitor,
                                        struct conv_buffer *pixels, const uint8_t *data,
                                        size_t size, const struct conv_image_header *header,
                                        struct conv_err *err);
