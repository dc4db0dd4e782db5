// SPDX-License-Identifier: MIT
// PNG bytes to planes and planes to PNG bytes. The pipeline uses this through conv_png_format only.
//
// Refused: everything libpng refuses, zlib streams with a wrong Adler-32 or other damage after the
// last row (libpng only warns), and files whose first chunk is not IHDR. A wrong CRC in a critical
// chunk, missing rows and a missing IEND are errors, too; nothing is repaired.
// Ignored: bytes after IEND, up to 64 KiB of image data after the last row, and ancillary chunks
// with a wrong CRC, which are dropped. A palette index out of range is opaque black.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "image/format.h"

extern const struct conv_format conv_png_format;

// An encoder of another library, in conv_codec_config.encoder; NULL there is our own, "fast", with
// levels 0 to 12. Only programs name these rows: libconv is linked without the libraries.
struct conv_png_encoder {
    const char *name;
    int standard_level, most_level;
    // Called before any `encode` at that level; may be NULL.
    void (*prepare)(int level);
    // As conv_format.encode_bytes.
    size_t (*bytes)(const struct conv_image *shape);
    // Replaces the content of *file by a PNG of IHDR, IDATs and IEND. `pixels` is scratch.
    // CONV_ERR_MEMORY; CONV_ERR_UNSUPPORTED if the library cannot write the image;
    // CONV_ERR_CANCELLED if it can be interrupted.
    enum conv_status (*encode)(struct conv_buffer *pixels, struct conv_buffer *file,
                               const struct conv_image *src, int level, const atomic_int *stop,
                               struct conv_err *err);
};

extern const struct conv_png_encoder conv_png_libpng; // libpng.c. Levels 0 to 9, by zlib
extern const struct conv_png_encoder
    conv_png_stb; // other_encoders.c. 8 bits per sample; levels are its effort

// other_encoders.c. Sets *encoder to that of "fast", "libpng" or "stb"; CONV_ERR_USAGE for other
// names.
enum conv_status conv_png_parse_encoder(const struct conv_png_encoder **encoder, const char *name,
                                        struct conv_err *err);

// CONV_ERR_USAGE if the encoder has no such level.
enum conv_status conv_png_check_level(const struct conv_codec_config *config, struct conv_err *err);

// --- libpng.c: decoding --------------------------------------------------------------------------

// Decoding by libpng, which supports every kind of PNG, as conv_format.decode; or, if `put_rows` is
// not NULL, row by row to its put_interleaved. `rows` is scratch: a row, or the whole image if the
// file is interlaced. CONV_ERR_CANCELLED soon after conv_cancel_is_asked(stop), which may be NULL.
enum conv_status conv_libpng_decode(struct conv_buffer *rows, const uint8_t *data, size_t size,
                                    const struct conv_image_header *header,
                                    const struct conv_image *dst, const struct conv_rows *put_rows,
                                    const atomic_int *stop, struct conv_err *err);
