// SPDX-License-Identifier: MIT
// Inflates the filtered rows of an image and hands them on while they are in the cache. Only the
// last of them are held in memory. In large images a second thread takes the rows.
#ifndef CONV_PNG_CPU_DECODE_STREAM_H
#define CONV_PNG_CPU_DECODE_STREAM_H

#include "base/buffer.h"
#include "base/parallel.h"
#include "png/cpu/inflate.h"

struct conv_decode_stream {
    struct conv_inflate *inflate;
    struct conv_buffer *memory; // for the rows
    const uint8_t *data;        // the zlib stream
    size_t size;
    size_t pitch; // bytes of a row with its filter byte
    size_t rows;  // of the image
    // Takes the next `count` rows. One call at a time, in the order of the rows, but on any thread.
    // False ends decompression.
    bool (*take)(void *context, const uint8_t *raw, size_t count);
    void *context;
};

// True if the zlib stream holds these rows exactly and is valid (conv_inflate_zlib), and every row
// was taken. False otherwise, after any number of rows, and without memory. `parallel`: threads
// that may help; NULL: none.
bool conv_decode_stream_run(const struct conv_decode_stream *stream,
                            struct conv_parallel *parallel);

// Bytes of memory for such rows, at most; SIZE_MAX on overflow.
size_t conv_decode_stream_bytes(size_t pitch, size_t rows);

#endif
