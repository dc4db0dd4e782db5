// SPDX-License-Identifier: MIT
// Decoding and encoding by libjpeg-turbo.
#ifndef CONV_JPEG_LIBJPEG_H
#define CONV_JPEG_LIBJPEG_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "jpeg/jpeg.h"

#define CONV_LIBJPEG_MOST_SIDE 65500 // the library's limit, a little less than the format's

// A progressive file has about ten scans, or sixty from a thorough encoder. Each scan passes over
// all coefficients, however few bytes it has, so more are refused, as in libvips.
#define CONV_LIBJPEG_MOST_SCANS 100

// Decodes a whole file into dst->plane[]. `row` is scratch. CONV_ERR_FORMAT: damaged, or not the
// image that `header` describes; CONV_ERR_MEMORY; CONV_ERR_CANCELLED soon after
// conv_cancel_is_asked(stop).
enum conv_status conv_libjpeg_decode(struct conv_buffer *row, const uint8_t *data, size_t size,
                                     const struct conv_image_header *header,
                                     const struct conv_image *dst, const atomic_int *stop,
                                     struct conv_err *err);

struct conv_libjpeg_settings {
    int quality;      // 1 to 100
    bool full_chroma; // 4:4:4; else 4:2:0
    size_t most;      // bytes that the file's buffer is expected to take at most
};

// Replaces the content of *file by a JPEG without a JFIF header. `row` is scratch. Of the channels
// of *src the first or the first three count. CONV_ERR_MEMORY, CONV_ERR_UNSUPPORTED if
// libjpeg-turbo refuses the image, CONV_ERR_CANCELLED as above.
enum conv_status conv_libjpeg_encode(struct conv_buffer *row, struct conv_buffer *file,
                                     const struct conv_image *src,
                                     const struct conv_libjpeg_settings *settings,
                                     const atomic_int *stop, struct conv_err *err);

#endif
