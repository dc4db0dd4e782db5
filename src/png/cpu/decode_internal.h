// SPDX-License-Identifier: MIT
// Shared by the files of the fast decoder, decode*.c.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "base/lock.h"
#include "base/parallel.h"
#include "png/cpu/inflate_internal.h"
#include "png/png.h"

// --- decode_content.c: the chunks of a file ------------------------------------------------------

struct conv_decode_span {
    const uint8_t *data;
    size_t size;
};

// The data of the chunks that the fast decoder needs, in the file; several IDAT chunks are joined.
struct conv_decode_content {
    struct conv_decode_span plte, trns, idat;
    bool in_pieces; // idat.data is that of the first of several IDAT chunks, idat.size of all
};

// Finds the chunks and checks their CRCs; those of a large file's IDAT chunks, which `joined` gets
// if there are several, on the threads of `parallel`. `joined` NULL: they stay in pieces. False for
// files that are left to libpng: with damage, an unusual order of chunks, chunks that are not what
// the header says or no image data; or if memory is lacking.
bool conv_decode_content_find(struct conv_decode_content *content, struct conv_buffer *joined,
                              const struct conv_image_header *header, const uint8_t *data,
                              size_t size, struct conv_parallel *parallel);

// The same on this thread, without palette and tRNS: the content of the IDAT chunks is copied to
// `room`, which is large enough, past the caches for a device to read. False for others.
bool conv_decode_content_copy(struct conv_buffer *room, const struct conv_image_header *header,
                              const uint8_t *data, size_t size);

// --- decode_stream.c: the rows in their stream ---------------------------------------------------

// Inflates the filtered rows of an image and hands them on while they are in the cache. Only the
// last of them are held in memory. Large images are inflated, and their rows taken, by several
// threads (below).

struct conv_decode_stream {
    struct conv_inflate *inflate;
    struct conv_buffer *memory; // for the rows
    const uint8_t *data;        // the zlib stream
    size_t size;
    struct conv_buffer *pieces; // for a stream of several chunks; NULL: it is in one
    size_t pitch;               // bytes of a row with its filter byte
    size_t rows;                // of the image
    // Takes `count` rows from row y on, which may be overwritten if there are several threads. Any
    // thread, while the rows before are taken by others, at most row_threads in total. If that is
    // more than 1, `count` is at most 2, of rows that begin with the same byte. After a call has
    // returned false, which ends decompression, or if rows are missing, no further ones come.
    bool (*take)(void *context, unsigned y, uint8_t *raw, size_t count);
    int row_threads;
    void *context;
    // For tests, about the parts that threads decode ahead: the compressed bits of each, 0: chosen
    // automatically; if not NULL, a sum to which their bytes of output are added; and how many must
    // be decoded by other threads before the one that follows the stream begins.
    size_t part_bits;
    size_t *ahead;
    int parts_first;
};

#define CONV_DECODE_PIECE ((size_t)512 << 10) // of a stream in several chunks

// True if the zlib stream holds these rows exactly and is valid (conv_inflate_zlib), and every row
// was taken. False otherwise, after any number of rows, and without memory. `parallel`: threads
// that may help; NULL: none.
bool conv_decode_stream_run(const struct conv_decode_stream *stream,
                            struct conv_parallel *parallel);

// Threads that may take part where conv_decode_stream_is_shared.
int conv_decode_stream_threads(const struct conv_parallel *parallel);

// True if several threads inflate such rows.
bool conv_decode_stream_is_shared(size_t pitch, size_t rows);

// Bytes of memory for such rows, at most; SIZE_MAX on overflow.
size_t conv_decode_stream_bytes(size_t pitch, size_t rows, int row_threads);

// --- decode_stream.c, decode_parts.c: with several threads ---------------------------------------

// A large stream of rows, inflated by all available threads: one follows the stream from its begin;
// the others decode parts further ahead (inflate_internal.h), convert them to bytes once the first
// thread has reached them, and take the rows. The result is the same as with one thread.

// Memory for parts, per thread that may take part. It is allocated when a part is begun and freed
// at the end; without it the stream is decoded by the first thread.
#define CONV_DECODE_SHARED_THREAD_BYTES ((size_t)4 << 20)

// As conv_decode_stream_run.
bool conv_decode_shared_run(const struct conv_decode_stream *stream,
                            struct conv_parallel *parallel);

// Chunks of bytes are posted in the order of the stream,
// finished by any thread (symbols become bytes, sums are computed) and taken in order.

#define BUFFERS 3 // of the thread that follows the stream
#define MOST_PARTS 128
#define MOST_CHUNKS (MOST_PARTS + BUFFERS + 1) // posted and not taken
#define JOINED_ROWS 8
#define WAIT_NS 1000000000

enum part_state { PART_FREE, PART_BUSY, PART_READY, PART_POSTED };

struct conv_shared_part {
    struct conv_inflate_ahead ahead;
    enum part_state state;
    bool found;       // BUSY: ahead.first is set
    atomic_bool stop; // its result is unusable
    uint8_t before[CONV_INFLATE_WINDOW];
};

enum chunk_state { CHUNK_RAW, CHUNK_BUSY, CHUNK_FINISHED };

struct conv_shared_chunk {
    uint8_t *data;
    size_t size;
    uint32_t adler;
    struct conv_shared_part *part; // NULL: bytes of the first thread
    enum chunk_state state;
    int rows_out; // calls of take() with its rows
};

// Rows that lie in two chunks are joined here. Guarded by the lock.
struct conv_shared_rows {
    uint8_t *joined[JOINED_ROWS];
    bool busy[JOINED_ROWS]; // it is in take()
    int current;            // the row that is being joined
    size_t size;            // its bytes so far
    uint8_t *ready;         // the one before it, complete and not yet in take()
    uint32_t adler;         // of the chunks so far
    unsigned opened;        // chunks whose rows are handed out; the last one is at
    uint8_t *at;            // its next row
    size_t left;            // and how many there are
    unsigned y;             // its number
    int out;                // threads in take()
};

struct conv_shared_flow {
    const struct conv_decode_stream *stream;
    size_t all; // bytes of output
    // Of the thread that follows the stream.
    uint8_t *buffer[BUFFERS];
    unsigned free_from[BUFFERS]; // the buffer is free once this number of chunks is taken
    int current;                 // buffer
    uint8_t *from;               // the first byte that was not posted
    size_t produced;             // bytes that were posted
    uint8_t *window;             // of the parts that are being appended
    bool good;                   // the result
    atomic_flag follows;         // a thread does
    struct conv_lock lock;       // guards all below
    pthread_cond_t tasks;        // a task is available, or the run is over
    pthread_cond_t followed;     // something for which the thread that follows the stream may wait
    struct conv_shared_chunk chunks[MOST_CHUNKS]; // by number modulo MOST_CHUNKS
    unsigned posted, taken;
    struct conv_shared_rows rows;
    bool failed, over;
    struct conv_shared_part *parts;
    int part_count;
    size_t front;       // bit: a part that begins before it is unusable
    size_t next_cut;    // bit: where the next part is searched
    size_t part_bits;   // of the next part
    int searching;      // parts that have no begin yet
    bool proven;        // a part was useful since the last pause
    int misses, pauses; // parts unused in a row; pauses that followed from them
};

// decode_parts.c

// Allocates the parts of a run, or none without memory; nothing is decoded yet.
void conv_decode_parts_start(struct conv_shared_flow *flow, int threads);
void conv_decode_parts_free(struct conv_shared_flow *flow);

// Waits until other threads have decoded `count` parts.
void conv_decode_parts_await(struct conv_shared_flow *flow, int count) CONV_TAKES(flow->lock);

// Decodes a part that lies ahead. False: no such part, or out of memory.
bool conv_decode_parts_run(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock);

// The part that begins at this bit, BUSY or READY; NULL: there is none. Parts that begin before it
// are given up.
struct conv_shared_part *conv_decode_parts_at(struct conv_shared_flow *flow, size_t bit)
    CONV_NEEDS(flow->lock);

// This part was useful: later ones get the length that it suggests.
void conv_decode_parts_learn(struct conv_shared_flow *flow, const struct conv_shared_part *part)
    CONV_NEEDS(flow->lock);

// Rows.

// Bytes of memory for joined rows, and where they are.
size_t conv_decode_rows_bytes(size_t pitch, int row_threads);
void conv_decode_rows_start(struct conv_shared_flow *flow, uint8_t *memory);

// Takes rows that are available now. False: none are.
bool conv_decode_rows_take(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock);

// True if all rows that were posted are taken.
bool conv_decode_rows_are_taken(const struct conv_shared_flow *flow) CONV_NEEDS(flow->lock);
