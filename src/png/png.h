// SPDX-License-Identifier: MIT
// PNG bytes to planes and planes to PNG bytes. The pipeline knows this header only, so that another
// coder can take the place of libpng without anybody noticing.
//
// What is refused: everything libpng refuses, zlib streams whose Adler-32 is wrong or that are
// damaged in another way after the last row (libpng only warns), and files whose first chunk is not
// IHDR. A wrong CRC in a critical chunk, missing rows, a missing IEND: refused, not repaired.
// Ignored: bytes after IEND, up to 64 KiB of image data after the last row, ancillary chunks with
// a wrong CRC (they are dropped). A palette index out of range is opaque black.
#ifndef CONV_PNG_PNG_H
#define CONV_PNG_PNG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/image.h"

// --- container.c: the chunk walk -----------------------------------------------------------------

struct conv_png_header {
    int width, height;
    int bit_depth;  // 1, 2, 4, 8, 16 as in the file
    int color_type; // 0 gray, 2 RGB, 3 palette, 4 gray+alpha, 6 RGBA
    bool interlaced;
    bool transparency;       // a tRNS chunk makes an alpha channel
    struct conv_image shape; // what decoding gives (no planes yet): palette is RGB(A), 1/2/4 bits
                             // are 8, tRNS is alpha
};

// The first bytes of a file tell what is no PNG at all, before the rest of it is read. Fewer than
// CONV_PNG_SIGNATURE_SIZE bytes are a whole file. CONV_ERR_FORMAT.
#define CONV_PNG_SIGNATURE_SIZE 8
enum conv_status conv_png_check_signature(const uint8_t *data, size_t size, struct conv_err *err);

// Reads the header and the chunks before the first IDAT. `data` is the whole file.
// CONV_ERR_FORMAT with the cause ("not a PNG (bad signature)", ...).
enum conv_status conv_png_probe(const uint8_t *data, size_t size, struct conv_png_header *header,
                                struct conv_err *err);

// CONV_ERR_FORMAT if the file holds too little image data for what its header promises, however
// well that were compressed, or far too much. To be asked before memory is taken for the image,
// since a header costs its writer nothing; `header` is conv_png_probe's.
enum conv_status conv_png_check_promise(const uint8_t *data, size_t size,
                                        const struct conv_png_header *header, struct conv_err *err);

// Chunks that are carried from input to output, complete with length, type and CRC, in file order
// and on the side of the image data where they were: what stays true after filtering. That is, the
// first of each, colour and print (iCCP sRGB gAMA cHRM cICP mDCV pHYs eXIf), place and scale (oFFs
// sCAL sTER) and the background (bKGD, converted to the output's colour type); texts (tEXt zTXt
// iTXt); and unknown chunks whose name says that they are safe to copy. Not carried: what
// describes the old samples or file (sBIT tIME hIST sPLT pCAL cLLI dSIG), animation (acTL fcTL
// fdAT), unknown chunks that are unsafe to copy, and chunks with a wrong CRC or beyond `data`.
struct conv_png_meta {
    uint8_t *data; // malloc'ed, grows, reused from image to image
    size_t size, capacity;
    size_t front; // bytes of `size` that come before the image data
};

// Replaces the content of *meta. `header` is conv_png_probe's. CONV_ERR_MEMORY only.
enum conv_status conv_png_meta_collect(const uint8_t *data, size_t size,
                                       const struct conv_png_header *header,
                                       struct conv_png_meta *meta, struct conv_err *err);
void conv_png_meta_free(struct conv_png_meta *meta);

// True if the file is an animation (APNG), of which decoding gives one image: a chunk of one (acTL,
// fcTL, fdAT) lies anywhere before IEND, right or wrong, since with damage repaired it may be one.
bool conv_png_is_animated(const uint8_t *data, size_t size);

// --- codec.c: one coder a worker -----------------------------------------------------------------

enum conv_png_encoder { CONV_PNG_FAST, CONV_PNG_LIBPNG, CONV_PNG_STB };

struct conv_png_config {
    enum conv_png_encoder encoder;
    int level;   // 0 to 12 for fast, 0 to 9 for libpng; for stb its own search effort, see README;
                 // -1 = the default
    size_t keep; // bytes that conv_png_codec_trim leaves a buffer; 0: any number
    const atomic_int *stop; // conv_cancel_is_asked: the work is given up; may be NULL
};

// CONV_ERR_USAGE if the encoder has no such level.
enum conv_status conv_png_check_level(const struct conv_png_config *config, struct conv_err *err);

// Scratch memory of one worker. One thread at a time.
struct conv_png_codec;

enum conv_status conv_png_codec_open(struct conv_png_codec **codec,
                                     const struct conv_png_config *config, struct conv_err *err);
void conv_png_codec_close(struct conv_png_codec *codec); // NULL is fine

// Upper bounds, but for some KiB, of the scratch memory that decoding a file of `size` bytes and
// encoding an image of that shape take, the encoded file included. SIZE_MAX where the number has no
// room. For encoding the level counts: from level 2 on the filtered rows are held as a whole.
size_t conv_png_decode_bytes(const struct conv_png_header *header, size_t size);
size_t conv_png_encode_bytes(const struct conv_png_config *config, const struct conv_image *shape);

// Gives back buffers that a large image has left beyond config.keep, the bytes of the last
// conv_png_encode among them: what every worker has used once must not add up.
void conv_png_codec_trim(struct conv_png_codec *codec);

// Decodes a whole file into dst->plane[], whose sizes must be header->shape's. On failure the
// planes hold anything. Takes at most about twice as long as libpng, whatever the file contains.
// CONV_ERR_CANCELLED soon after config->stop is set.
enum conv_status conv_png_decode(struct conv_png_codec *codec, const uint8_t *data, size_t size,
                                 const struct conv_png_header *header, const struct conv_image *dst,
                                 struct conv_err *err);

// A PNG as pieces to be written one after the other. They belong to the codec (and to the meta)
// and live until its next call.
#define CONV_PNG_PARTS 5
struct conv_png_bytes {
    struct {
        const uint8_t *data;
        size_t size;
    } part[CONV_PNG_PARTS]; // signature and IHDR, carried chunks, image data, carried chunks, IEND
    size_t size;            // of all parts
};

// Encodes an image; meta may be NULL. CONV_ERR_UNSUPPORTED if the encoder cannot (stb: 16 bits).
// CONV_ERR_CANCELLED soon after config->stop is set, but by stb and at levels above 9 only at the
// end.
enum conv_status conv_png_encode(struct conv_png_codec *codec, const struct conv_image *src,
                                 const struct conv_png_meta *meta, struct conv_png_bytes *bytes,
                                 struct conv_err *err);

// For who codes image data elsewhere: the zlib stream of a file's image data, in one piece, is
// copied to `stream`, which has room for `size` bytes. False: the image is not of the plain kind
// (8 or 16 bits a sample, neither interlaced nor with a palette or tRNS), or something in the file
// is odd, and conv_png_decode has to judge it; `stream` then holds anything.
bool conv_png_copy_stream(uint8_t *stream, size_t *stream_size, const uint8_t *data, size_t size,
                          const struct conv_png_header *header);

// True if that may be so: what the header alone tells.
bool conv_png_is_plain(const struct conv_png_header *header);

// The same of a file of which nothing but its first bytes is known; whether they are right, and
// whether a tRNS chunk comes behind them, is not looked at.
#define CONV_PNG_HEAD_SIZE 29
bool conv_png_looks_plain(const uint8_t head[CONV_PNG_HEAD_SIZE]);

// The PNG around complete IDAT chunks of an image of that shape; as conv_png_encode.
void conv_png_frame(struct conv_png_codec *codec, const struct conv_image *shape,
                    const struct conv_png_meta *meta, const uint8_t *idat, size_t idat_size,
                    struct conv_png_bytes *bytes);

// "fast", "libpng", "stb"; CONV_ERR_USAGE otherwise, with the nearest right one.
enum conv_status conv_png_parse_encoder(enum conv_png_encoder *encoder, const char *name,
                                        struct conv_err *err);

#endif
