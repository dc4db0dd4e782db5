// SPDX-License-Identifier: MIT
// Inflates the filtered rows of an image and hands them on while they are in the cache. Only the
// last of them are held in memory. Large images are inflated, and their rows taken, by several
// threads (decode_shared.c).
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
    // Takes row y, or rows y and y + 1 if `both`, which begin with the same byte. They may be
    // overwritten; the rows before them are taken or being taken by other threads, at most
    // row_threads in total. NULL: there is only take(). In one run either all rows go to take() or
    // all to take_row(). After a call has returned false, or if rows are missing, no further ones
    // come.
    bool (*take_row)(void *context, unsigned y, uint8_t *raw, bool both);
    int row_threads;
    void *context;
    // For tests, about the parts that threads decode ahead: the compressed bits of each, 0: chosen
    // automatically; if not NULL, a sum to which their bytes of output are added; and how many must
    // be decoded by other threads before the one that follows the stream begins.
    size_t part_bits;
    size_t *ahead;
    int parts_first;
};

// True if the zlib stream holds these rows exactly and is valid (conv_inflate_zlib), and every row
// was taken. False otherwise, after any number of rows, and without memory. `parallel`: threads
// that may help; NULL: none.
bool conv_decode_stream_run(const struct conv_decode_stream *stream,
                            struct conv_parallel *parallel);

// Threads that may take part where conv_decode_stream_is_shared.
int conv_decode_stream_threads(const struct conv_parallel *parallel);

// True if several threads inflate such rows and may call take_row().
bool conv_decode_stream_is_shared(size_t pitch, size_t rows);

// Bytes of memory for such rows, at most; SIZE_MAX on overflow. `by_row`: there is take_row().
size_t conv_decode_stream_bytes(size_t pitch, size_t rows, bool by_row);

// --- decode_shared.c: with several threads -------------------------------------------------------

// A large stream of rows, inflated by all available threads: one follows the stream from its begin;
// the others decode parts further ahead (inflate_ahead.h), convert them to bytes once the first
// thread has reached them, and take the rows. The result is the same as with one thread.

// Memory for parts, per thread that may take part. It is allocated when a part is begun and freed
// at the end; without it the stream is decoded by the first thread.
#define CONV_DECODE_SHARED_THREAD_BYTES ((size_t)4 << 20)

// As conv_decode_stream_run.
bool conv_decode_shared_run(const struct conv_decode_stream *stream,
                            struct conv_parallel *parallel);

// Bytes of stream->memory. `by_row`: there is take_row().
size_t conv_decode_shared_bytes(size_t pitch, bool by_row);

#endif
