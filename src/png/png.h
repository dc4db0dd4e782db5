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

#include "base/err.h"
#include "image/format.h"

// --- format.c: PNG behind the interface that all formats share -----------------------------------

extern const struct conv_format conv_png_format;

// --- container.c: the chunk walk -----------------------------------------------------------------

struct conv_png_header {
    int width, height;
    int bit_depth;  // 1, 2, 4, 8, 16 as in the file
    int color_type; // 0 gray, 2 RGB, 3 palette, 4 gray+alpha, 6 RGBA
    bool interlaced;
    bool transparency;       // a tRNS chunk makes an alpha channel
    struct conv_image shape; // of the decoded image, without planes: a palette becomes RGB(A), 1, 2
                             // and 4 bits become 8, tRNS becomes alpha
};

// CONV_ERR_FORMAT if a file that begins with these bytes is not a PNG. Fewer than
// CONV_PNG_SIGNATURE_SIZE bytes are a whole file.
#define CONV_PNG_SIGNATURE_SIZE 8
enum conv_status conv_png_check_signature(const uint8_t *data, size_t size, struct conv_err *err);

// Reads the header and the chunks before the first IDAT of a whole file. CONV_ERR_FORMAT with the
// cause ("not a PNG (bad signature)", ...).
enum conv_status conv_png_probe(const uint8_t *data, size_t size, struct conv_png_header *header,
                                struct conv_err *err);

// CONV_ERR_FORMAT if the file holds less image data than its header needs at the best possible
// compression, or far too much. Called before memory is taken for the image, since a header may
// declare any size. `header` is conv_png_probe's.
enum conv_status conv_png_check_size(const uint8_t *data, size_t size,
                                     const struct conv_png_header *header, struct conv_err *err);

// --- metadata.c ----------------------------------------------------------------------------------

// Collects the chunks that are carried from input to output, complete with length, type and CRC, in
// file order, each on its side of the image data. These are chunks that are still true after
// filtering: the first of each for colour and print (iCCP sRGB gAMA cHRM cICP mDCV pHYs), position
// and scale (oFFs sCAL sTER) and background (bKGD, converted to the output's colour type and
// depth); texts (tEXt zTXt iTXt); Exif, XMP and resources of Photoshop, cleaned (image/clean.h);
// and short unknown chunks that are safe to copy by their name. Not carried: texts that may hold an
// image, descriptions of the old samples or file (sBIT tIME hIST sPLT pCAL cLLI dSIG), animation
// (acTL fcTL fdAT), unknown chunks that are long or unsafe to copy, and chunks with a wrong CRC or
// beyond `data`. If `look`, only colour and, in Exif, the orientation. Replaces the content of
// *meta. `header` is conv_png_probe's, with the depth of the output. CONV_ERR_MEMORY.
enum conv_status conv_png_meta_collect(const uint8_t *data, size_t size,
                                       const struct conv_png_header *header, bool look,
                                       struct conv_metadata *meta, struct conv_err *err);

// True if a valid acTL chunk before the image data announces more than one frame (APNG).
bool conv_png_is_animated(const uint8_t *data, size_t size);

// conv_format.end: the end of IEND.
size_t conv_png_end(const uint8_t *data, size_t size);

// --- common.c ------------------------------------------------------------------------------------

// conv_format.take_common and .put_common: iCCP, eXIf, pHYs, the XMP packet of an iTXt chunk, raw
// profiles of ImageMagick, and texts with the keyword "Comment".
enum conv_status conv_png_take_common(const uint8_t *data, size_t size, bool look,
                                      struct conv_common *common, struct conv_err *err);
enum conv_status conv_png_put_common(const struct conv_common *common,
                                     const struct conv_image *shape, struct conv_metadata *meta,
                                     struct conv_err *err);

// --- codec.c: one codec per worker ---------------------------------------------------------------

// conv_codec_config.encoder. Levels: 0 to 12 for fast, 0 to 9 for libpng and for stb, where they
// are stb's own search effort.
enum conv_png_encoder { CONV_PNG_FAST, CONV_PNG_LIBPNG, CONV_PNG_STB };

// Sets *encoder to that of "fast", "libpng" or "stb"; CONV_ERR_USAGE for other names.
enum conv_status conv_png_parse_encoder(int *encoder, const char *name, struct conv_err *err);

// CONV_ERR_USAGE if the encoder has no such level.
enum conv_status conv_png_check_level(const struct conv_codec_config *config, struct conv_err *err);

// Scratch memory of one worker.
struct conv_png_codec;

// CONV_ERR_USAGE as conv_png_check_level, CONV_ERR_MEMORY; *codec is then NULL. A codec for stb
// sets stb's level for the whole process: see stb.h.
enum conv_status conv_png_codec_open(struct conv_png_codec **codec,
                                     const struct conv_codec_config *config, struct conv_err *err);
void conv_png_codec_close(struct conv_png_codec *codec); // NULL is fine

// Upper bounds, except for some KiB, of the scratch memory for decoding a file of `size` bytes and
// for encoding an image of that shape, the encoded file included; SIZE_MAX if they do not fit. The
// level matters for encoding: from level 2 on all filtered rows are held at once.
size_t conv_png_decode_bytes(const struct conv_png_header *header, size_t size);
size_t conv_png_encode_bytes(const struct conv_codec_config *config,
                             const struct conv_image *shape);

// Frees buffers larger than config.keep, the bytes of the last conv_png_encode among them, so that
// one large image per worker does not occupy memory for the rest of a run.
void conv_png_codec_trim(struct conv_png_codec *codec);

// Decodes a whole file into dst->plane[], whose sizes must be header->shape's. Takes at most about
// twice as long as libpng, whatever the file contains. CONV_ERR_FORMAT: damaged or truncated;
// CONV_ERR_MEMORY; CONV_ERR_CANCELLED soon after config.stop is set. The planes then hold anything.
enum conv_status conv_png_decode(struct conv_png_codec *codec, const uint8_t *data, size_t size,
                                 const struct conv_png_header *header, const struct conv_image *dst,
                                 struct conv_err *err);

// Where decoded rows go instead of planes. `put` gets rows that were expanded, as planes of one row
// at the depth of header->shape; `put_interleaved` gets all others as they are in the file, pixel
// by pixel, the most significant byte first, and aligned for uint16_t. Rows come in their order,
// and again from the first one on if libpng takes over from the fast decoder.
struct conv_png_rows {
    void (*put)(void *context, int y, const struct conv_image *row);
    void (*put_interleaved)(void *context, int y, const uint8_t *row);
    void *context;
};

// As conv_png_decode.
enum conv_status conv_png_decode_rows(struct conv_png_codec *codec, const uint8_t *data,
                                      size_t size, const struct conv_png_header *header,
                                      const struct conv_png_rows *rows, struct conv_err *err);

// Where rows to be encoded come from instead of planes: `get` fills in planes of one row. Above
// level 1 some rows are asked for again.
struct conv_png_row_source {
    void (*get)(void *context, int y, const struct conv_image *row);
    void *context;
};

// Bytes that a codec of CONV_PNG_FAST needs to encode an image of that shape into: a little more
// than its samples have. SIZE_MAX if they do not fit.
size_t conv_png_encode_room(const struct conv_png_codec *codec, const struct conv_image *shape);

// Encodes an image as conv_png_encode does, without metadata, into the caller's memory of
// conv_png_encode_room bytes, and sets *size to the bytes of the file. `source` NULL: the planes of
// *src; otherwise only its shape is used. CONV_PNG_FAST only.
enum conv_status conv_png_encode_into(struct conv_png_codec *codec, uint8_t *file, size_t *size,
                                      const struct conv_image *src,
                                      const struct conv_png_row_source *source,
                                      struct conv_err *err);

// Encodes an image; meta may be NULL. The parts of *file are: signature and IHDR, carried chunks,
// image data, carried chunks, IEND. They belong to the codec and to `meta` and are valid until the
// codec's next call. CONV_ERR_UNSUPPORTED if the encoder cannot write the image (stb: 16 bits);
// CONV_ERR_MEMORY; CONV_ERR_CANCELLED soon after config.stop is set, but with stb and at levels
// above 9 only at the end of the image.
enum conv_status conv_png_encode(struct conv_png_codec *codec, const struct conv_image *src,
                                 const struct conv_metadata *meta, struct conv_encoded *file,
                                 struct conv_err *err);

// --- codec.c: for decoding and encoding on a device ----------------------------------------------

// True if a device may decode the file: 8 or 16 bits per sample, not interlaced, no palette, no
// tRNS.
bool conv_png_is_plain(const struct conv_png_header *header);

// As conv_png_is_plain, from the first CONV_PNG_HEAD_SIZE bytes of a file; they are not validated,
// and a tRNS chunk after them is not seen.
#define CONV_PNG_HEAD_SIZE 29
bool conv_png_looks_plain(const uint8_t head[CONV_PNG_HEAD_SIZE]);

// Bytes of the decoded samples: palettes count as RGB, less than 8 bits as 8. 0 if it is not the
// head of a PNG.
uint64_t conv_png_head_samples(const uint8_t head[CONV_PNG_HEAD_SIZE]);

// Copies the concatenated IDAT data (one zlib stream) to `stream`, which has room for `size` bytes,
// and sets *stream_size. False if the file is not plain or its chunks are irregular:
// conv_png_decode then has to decode or refuse it, and `stream` holds anything.
bool conv_png_copy_stream(uint8_t *stream, size_t *stream_size, const uint8_t *data, size_t size,
                          const struct conv_png_header *header);

// The PNG around complete IDAT chunks of an image of that shape; parts and lifetime as of
// conv_png_encode, and `idat` has to live as long.
void conv_png_frame(struct conv_png_codec *codec, const struct conv_image *shape,
                    const struct conv_metadata *meta, const uint8_t *idat, size_t idat_size,
                    struct conv_encoded *file);

#endif
