// SPDX-License-Identifier: MIT
// A large stream of rows, inflated by all available threads: one follows the stream from its begin;
// the others decode parts further ahead (inflate_ahead.h), convert them to bytes once the first
// thread has reached them, and take the rows. The result is the same as with one thread.
#ifndef CONV_PNG_CPU_DECODE_SHARED_H
#define CONV_PNG_CPU_DECODE_SHARED_H

#include "png/cpu/decode_stream.h"

// Memory for parts, per thread that may take part. It is allocated when a part is begun and freed
// at the end; without it the stream is decoded by the first thread.
#define CONV_DECODE_SHARED_THREAD_BYTES ((size_t)4 << 20)

// As conv_decode_stream_run.
bool conv_decode_shared_run(const struct conv_decode_stream *stream,
                            struct conv_parallel *parallel);

// Bytes of stream->memory. `by_row`: there is take_row().
size_t conv_decode_shared_bytes(size_t pitch, bool by_row);

#endif
