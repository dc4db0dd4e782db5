// SPDX-License-Identifier: MIT
// The fast decoder, for PNGs that are not interlaced and have no irregularities.
#ifndef CONV_PNG_CPU_DECODE_H
#define CONV_PNG_CPU_DECODE_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/parallel.h"
#include "png/cpu/inflate.h"
#include "png/cpu/unfilter.h"
#include "png/png.h"

// Scratch memory of one worker: at most the compressed bytes of the largest file, some rows and
// less than 4 MiB. Starts as {0}.
struct conv_decoder {
    struct conv_inflate inflate;
    struct conv_buffer idat;              // concatenated IDAT chunks, if there are several
    struct conv_buffer raw;               // the filtered rows, or some of them
    struct conv_buffer rows;              // some plain rows and an expanded one
    const struct conv_png_rows *put_rows; // where rows go instead of planes; NULL: to planes
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

void conv_decoder_trim(struct conv_decoder *decoder, size_t keep); // as conv_buffer_trim, each
void conv_decoder_free(struct conv_decoder *decoder);              // its buffers, not *decoder

#endif
