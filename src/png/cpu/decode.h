// SPDX-License-Identifier: MIT
// The fast way into planes: every PNG that is not interlaced and in which nothing is odd.
#ifndef CONV_PNG_CPU_DECODE_H
#define CONV_PNG_CPU_DECODE_H

#include <stdatomic.h>

#include "png/buffer.h"
#include "png/cpu/inflate.h"
#include "png/cpu/unfilter.h"
#include "png/png.h"

// What a worker keeps from image to image: at most the compressed bytes and the filtered rows
// of the largest one, and three rows. Starts as {0}.
struct conv_decoder {
    struct conv_inflate inflate;
    struct conv_buffer idat;              // IDAT chunks joined, where there are several
    struct conv_buffer raw;               // the filtered rows
    struct conv_buffer rows;              // two plain rows and the zeros above the first one
    const struct conv_unfilter *unfilter; // NULL: the best for this machine
    const atomic_int *stop;               // conv_cancel_is_asked; may be NULL
};

// As conv_png_decode, but it knows no reasons: false means that the file is damaged, unusual or too
// large for the memory there is, and that libpng is to be asked, which alone decides what is
// refused. True is only said where libpng would give the same pixels. So that the attempt is never
// dear, it takes no longer than libpng would, and ends where libpng would find the first error.
// False after decoder->stop was set.
bool conv_decode_fast(struct conv_decoder *decoder, const uint8_t *data, size_t size,
                      const struct conv_png_header *header, const struct conv_image *dst);

// The zlib stream of an image without palette and tRNS, under the same conditions; `stream` has
// room for `size` bytes.
bool conv_decode_copy_stream(uint8_t *stream, size_t *stream_size, const uint8_t *data, size_t size,
                             const struct conv_png_header *header);

// Bytes that a decoder takes for a file of `size` bytes, libpng's included. SIZE_MAX where the
// number has no room.
size_t conv_decode_bytes(const struct conv_png_header *header, size_t size);

void conv_decoder_trim(struct conv_decoder *decoder, size_t keep); // as conv_buffer_trim, each
void conv_decoder_free(struct conv_decoder *decoder);              // what it holds, not itself

#endif
