// SPDX-License-Identifier: MIT
// PNG bytes to planes and planes to PNG bytes. The pipeline uses this through conv_png_format only.
//
// Refused: everything libpng refuses, zlib streams with a wrong Adler-32 or other damage after the
// last row (libpng only warns), and files whose first chunk is not IHDR. A wrong CRC in a critical
// chunk, missing rows and a missing IEND are errors, too; nothing is repaired.
// Ignored: bytes after IEND, up to 64 KiB of image data after the last row, and ancillary chunks
// with a wrong CRC, which are dropped. A palette index out of range is opaque black.
#ifndef CONV_PNG_PNG_H
#define CONV_PNG_PNG_H

#include <stdbool.h>
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

// Where decoded rows go instead of planes. `put` gets rows that were expanded, as planes of one row
// at the depth of header->shape; `put_interleaved` gets all others as they are in the file, pixel
// by pixel, the most significant byte first, and aligned for uint16_t. Rows come in their order,
// and again from the first one on if libpng takes over from the fast decoder.
struct conv_png_rows {
    void (*put)(void *context, int y, const struct conv_image *row);
    void (*put_interleaved)(void *context, int y, const uint8_t *row);
    void *context;
};

// As conv_png_format.decode, with a codec of that format.
enum conv_status conv_png_decode_rows(struct conv_codec *codec, const uint8_t *data, size_t size,
                                      const struct conv_image_header *header,
                                      const struct conv_png_rows *rows, struct conv_err *err);

// Where rows to be encoded come from instead of planes: `get` fills in planes of one row. Above
// level 1 some rows are asked for again.
struct conv_png_row_source {
    void (*get)(void *context, int y, const struct conv_image *row);
    void *context;
};

// Bytes that a codec of our own encoder needs to encode an image of that shape into: a little more
// than its samples have. SIZE_MAX if they do not fit.
size_t conv_png_encode_room(const struct conv_codec *codec, const struct conv_image *shape);

// Encodes an image as conv_png_format.encode does, without metadata, into the caller's memory of
// conv_png_encode_room bytes, and sets *size to the bytes of the file. `source` NULL: the planes of
// *src; otherwise only its shape is used. Our own encoder only.
enum conv_status conv_png_encode_into(struct conv_codec *codec, uint8_t *file, size_t *size,
                                      const struct conv_image *src,
                                      const struct conv_png_row_source *source,
                                      struct conv_err *err);

// --- libpng.c: decoding --------------------------------------------------------------------------

// Decoding by libpng, which supports every kind of PNG, as conv_format.decode; or, if `put_rows` is
// not NULL, row by row to its put_interleaved. `rows` is scratch: a row, or the whole image if the
// file is interlaced. CONV_ERR_CANCELLED soon after conv_cancel_is_asked(stop), which may be NULL.
enum conv_status conv_libpng_decode(struct conv_buffer *rows, const uint8_t *data, size_t size,
                                    const struct conv_image_header *header,
                                    const struct conv_image *dst,
                                    const struct conv_png_rows *put_rows, const atomic_int *stop,
                                    struct conv_err *err);

#endif
