// SPDX-License-Identifier: MIT
// Decoding and encoding by libpng, which supports every kind of PNG.
#ifndef CONV_PNG_LIBPNG_H
#define CONV_PNG_LIBPNG_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "png/png.h"

#define CONV_LIBPNG_MAX_LEVEL 9
#define CONV_LIBPNG_DEFAULT_LEVEL 1

// As conv_format.decode. `rows` is scratch: a row, or the whole image if the file is interlaced.
enum conv_status conv_libpng_decode(struct conv_buffer *rows, const uint8_t *data, size_t size,
                                    const struct conv_image_header *header,
                                    const struct conv_image *dst, struct conv_err *err);

// The same; CONV_ERR_CANCELLED soon after conv_cancel_is_asked(stop).
enum conv_status conv_libpng_decode_until(struct conv_buffer *rows, const uint8_t *data,
                                          size_t size, const struct conv_image_header *header,
                                          const struct conv_image *dst, const atomic_int *stop,
                                          struct conv_err *err);

// The same, row by row to `put_interleaved`.
enum conv_status conv_libpng_decode_rows(struct conv_buffer *scratch, const uint8_t *data,
                                         size_t size, const struct conv_image_header *header,
                                         const struct conv_png_rows *rows, const atomic_int *stop,
                                         struct conv_err *err);

// Replaces the content of *file by a PNG of IHDR, IDATs and IEND. `row` is scratch.
// CONV_ERR_MEMORY, CONV_ERR_UNSUPPORTED if libpng refuses the image, CONV_ERR_CANCELLED as above.
enum conv_status conv_libpng_encode(struct conv_buffer *row, struct conv_buffer *file,
                                    const struct conv_image *src, int level, struct conv_err *err);
enum conv_status conv_libpng_encode_until(struct conv_buffer *row, struct conv_buffer *file,
                                          const struct conv_image *src, int level,
                                          const atomic_int *stop, struct conv_err *err);

#endif
