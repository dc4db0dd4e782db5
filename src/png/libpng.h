// SPDX-License-Identifier: MIT
// Decoding by libpng, which supports every kind of PNG. Its encoder is conv_png_libpng in png.h.
#ifndef CONV_PNG_LIBPNG_H
#define CONV_PNG_LIBPNG_H

#include "base/buffer.h"
#include "png/png.h"

// As conv_format.decode. `rows` is scratch: a row, or the whole image if the file is interlaced.
// CONV_ERR_CANCELLED soon after conv_cancel_is_asked(stop), which may be NULL.
enum conv_status conv_libpng_decode(struct conv_buffer *rows, const uint8_t *data, size_t size,
                                    const struct conv_image_header *header,
                                    const struct conv_image *dst, const atomic_int *stop,
                                    struct conv_err *err);

// The same, row by row to `put_interleaved`.
enum conv_status conv_libpng_decode_rows(struct conv_buffer *scratch, const uint8_t *data,
                                         size_t size, const struct conv_image_header *header,
                                         const struct conv_png_rows *rows, const atomic_int *stop,
                                         struct conv_err *err);

#endif
