// SPDX-License-Identifier: MIT
// The PNG coders of the CPU.
#pragma once

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/parallel.h"
#include "png/cpu/inflate.h"
#include "png/cpu/unfilter.h"
#include "png/png.h"

// --- the fast decoder, for PNGs that are not interlaced and have no irregularities ---------------

// Scratch memory of one worker: at most the compressed bytes of the largest file, some rows and
// less than 4 MiB. Starts as {0}.
struct conv_decoder {
    struct conv_inflate inflate;
    struct conv_buffer idat;              // concatenated IDAT chunks, if there are several
    struct conv_buffer raw;               // the filtered rows, or some of them
    struct conv_buffer rows;              // some plain rows and an expanded one
    const struct conv_rows *put_rows;     // where rows go instead of planes; NULL: to planes
    struct conv_parallel *parallel;       // threads that may help; NULL: none
    const struct conv_unfilter *unfilter; // NULL: the fastest for this machine
    const atomic_int *stop;               // conv_cancel_is_asked; may be NULL
    bool bad_filter; // by conv_decode_fast: all is valid up to a row whose filter does not exist
};

// As conv_format.decode, without a reason for failure: false means that the file is damaged,
// irregular or too large for the memory, or that decoder->stop was set; libpng then has to decode
// or refuse it. True only if libpng would decode identical pixels. It takes no longer than libpng
// would, and ends where libpng would find the first error. `dst` is not used if decoder->put_rows
// is set.
bool conv_decode_fast(struct conv_decoder *decoder, const uint8_t *data, size_t size,
                      const struct conv_image_header *header, const struct conv_image *dst);

// Copies the zlib stream of an image without palette and tRNS to `stream`, which has room for
// `size` bytes. False under the same conditions; `stream` then holds anything.
bool conv_decode_copy_stream(uint8_t *stream, size_t *stream_size, const uint8_t *data, size_t size,
                             const struct conv_image_header *header);

// Scratch bytes for a file of `size` bytes, also if libpng has to decode it; SIZE_MAX on overflow.
size_t conv_decode_bytes(const struct conv_image_header *header, size_t size);

// The same for decoding to decoder->put_rows, whose rows count, but not the file's.
size_t conv_decode_rows_most(const struct conv_image_header *header);

void conv_decoder_trim(struct conv_decoder *decoder, size_t keep); // as conv_buffer_trim, each
void conv_decoder_free(struct conv_decoder *decoder);              // its buffers, not *decoder

// --- the encoder ---------------------------------------------------------------------------------

// Levels 0 and 1 filter and compress stripe by stripe in the cache. From level 2 on the filter is
// chosen for each row and the whole image is compressed at once: by deflate_search.c up to level 9,
// by libdeflate's near-optimal parsing above.

#define CONV_ENCODE_MAX_LEVEL 12
#define CONV_ENCODE_DEFAULT_LEVEL 1

// An IDAT ends with the stripe in which it reaches this size. The standard allows 2^31 - 1.
#define CONV_ENCODE_MAX_CHUNK ((size_t)1 << 30)

// Bytes of signature and IHDR, and of IEND, in the files of every encoder.
#define CONV_ENCODE_HEAD 33
#define CONV_ENCODE_TAIL 12
extern const uint8_t conv_encode_tail[CONV_ENCODE_TAIL];

// Writes signature and IHDR for an image of that shape; returns their end.
uint8_t *conv_encode_put_head(uint8_t *at, const struct conv_image *shape);

// Scratch memory of one worker, reused from image to image.
struct conv_encoder;

// `level`: 0 to CONV_ENCODE_MAX_LEVEL. `features`: bits of conv_cpu_features() that may be used.
// `max_chunk`: CONV_ENCODE_MAX_CHUNK, less in tests. CONV_ERR_MEMORY; *encoder is then NULL.
enum conv_status conv_encode_open(struct conv_encoder **encoder, int level, unsigned features,
                                  size_t max_chunk, struct conv_err *err);
// conv_encode_image fails with CONV_ERR_CANCELLED soon after conv_cancel_is_asked(stop), but not
// while libdeflate compresses (levels 10 to 12). `stop` may be NULL.
void conv_encode_set_stop(struct conv_encoder *encoder, const atomic_int *stop);
// Threads that may help with large images, which are encoded in bands; the file does not depend on
// them. Kept; NULL: none.
void conv_encode_share(struct conv_encoder *encoder, struct conv_parallel *parallel);
// Sets from how many filtered bytes on images are encoded in bands, and the bytes of a band. Only
// tests use other values than the defaults.
void conv_encode_set_bands(struct conv_encoder *encoder, size_t from, size_t bytes);
#define CONV_ENCODE_BANDS_FROM ((size_t)8 << 20)
#define CONV_ENCODE_BAND ((size_t)2 << 20)
void conv_encode_close(struct conv_encoder *encoder);             // NULL is fine
void conv_encode_trim(struct conv_encoder *encoder, size_t keep); // as conv_buffer_trim, each

// The capacity of *file that conv_encode_image needs for an image of that shape; SIZE_MAX if it
// does not fit. It does not grow a buffer that has it.
size_t conv_encode_room(const struct conv_encoder *encoder, const struct conv_image *shape);

// Bytes of memory for encoding an image of that shape on one thread, at most, the file included;
// SIZE_MAX if it does not fit.
size_t conv_encode_bytes(int level, const struct conv_image *shape);

// Replaces the content of *file by a PNG of IHDR, IDATs and IEND. CONV_ERR_MEMORY,
// CONV_ERR_CANCELLED as above; *file then holds anything. `source` NULL: the rows are those of
// *src; otherwise only its shape is used.
enum conv_status conv_encode_image(struct conv_encoder *encoder, struct conv_buffer *file,
                                   const struct conv_image *src,
                                   const struct conv_row_source *source, struct conv_err *err);

// Some rows of a large image at a time, in their order. Levels 0 and 1 make the file that
// conv_encode_image makes; above, the choice that it makes by samples of the whole image, and of
// flat images only, is not made.

// Each call but the last takes a multiple of this number of rows; 0: the image has no bands.
int conv_encode_some_rows(const struct conv_encoder *encoder, const struct conv_image *shape);

// Bytes of memory for up to `rows` rows at a time on one thread, at most.
size_t conv_encode_some_bytes(const struct conv_encoder *encoder, const struct conv_image *shape,
                              int rows);

// Replaces the content of *file by the IDATs of the rows from `from` to `to`, errors as above.
// Row y is at y times the stride, as in a whole image; no other rows are read than these and the
// one before them.
enum conv_status conv_encode_some(struct conv_encoder *encoder, struct conv_buffer *file,
                                  const struct conv_image *src, int from, int to,
                                  struct conv_err *err);
