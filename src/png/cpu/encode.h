// SPDX-License-Identifier: MIT
// This program's own PNG encoder. Level 1 filters and compresses stripe by stripe while the bytes
// are in the cache; from level 2 on the filter is chosen row by row and the compressor sees the
// whole image: our own up to level 9, libdeflate's near-optimal parsing above.
#ifndef CONV_PNG_CPU_ENCODE_H
#define CONV_PNG_CPU_ENCODE_H

#include <stdatomic.h>

#include "png/buffer.h"
#include "png/png.h"

#define CONV_ENCODE_MAX_LEVEL 12
#define CONV_ENCODE_DEFAULT_LEVEL 1

// Longest IDAT. The standard allows 2^31 - 1; less, so that a stripe more does no harm.
#define CONV_ENCODE_MAX_CHUNK ((size_t)1 << 30)

// A file begins with its signature and IHDR, and ends with IEND, whoever has encoded it.
#define CONV_ENCODE_HEAD 33
#define CONV_ENCODE_TAIL 12
extern const uint8_t conv_encode_tail[CONV_ENCODE_TAIL];

// Writes CONV_ENCODE_HEAD bytes; the end of them.
uint8_t *conv_encode_put_head(uint8_t *at, const struct conv_image *shape);

// Scratch memory of one worker, from image to image.
struct conv_encoder;

// CONV_ERR_MEMORY only; level is 0 to CONV_ENCODE_MAX_LEVEL. `features` are those of
// conv_cpu_features() that may be used; `max_chunk` is CONV_ENCODE_MAX_CHUNK but in tests.
enum conv_status conv_encode_open(struct conv_encoder **encoder, int level, unsigned features,
                                  size_t max_chunk, struct conv_err *err);
// conv_encode_image gives up with CONV_ERR_CANCELLED soon after conv_cancel_is_asked(stop), but
// not while libdeflate compresses (levels 10 to 12).
void conv_encode_set_stop(struct conv_encoder *encoder, const atomic_int *stop);
void conv_encode_close(struct conv_encoder *encoder);             // NULL is fine
void conv_encode_trim(struct conv_encoder *encoder, size_t keep); // as conv_buffer_trim, each

// Replaces the content of *file by a PNG of IHDR, IDATs and IEND. CONV_ERR_MEMORY, or
// CONV_ERR_CANCELLED as above.
enum conv_status conv_encode_image(struct conv_encoder *encoder, struct conv_buffer *file,
                                   const struct conv_image *src, struct conv_err *err);

#endif
