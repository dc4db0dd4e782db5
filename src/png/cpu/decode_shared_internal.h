// SPDX-License-Identifier: MIT
// What the files decode_shared*.c share: chunks of bytes are posted in the order of the stream,
// finished by any thread (symbols become bytes, sums are computed) and taken in order.
#ifndef CONV_PNG_CPU_DECODE_SHARED_INTERNAL_H
#define CONV_PNG_CPU_DECODE_SHARED_INTERNAL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "png/cpu/decode_stream.h"
#include "png/cpu/inflate_ahead.h"

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
    int rows_out; // calls of take_row() with its rows
};

// Rows that lie in two chunks are joined here. With take() all members belong to the thread that is
// in it; with take_row(), the lock guards them.
struct conv_shared_rows {
    uint8_t *joined[JOINED_ROWS]; // only the first one with take()
    bool busy[JOINED_ROWS];       // it is in take_row()
    int current;                  // the row that is being joined
    size_t size;                  // its bytes so far
    uint8_t *ready;               // the one before it, complete and not yet in take_row()
    uint32_t adler;               // of the chunks so far
    // With take_row().
    unsigned opened; // chunks whose rows are handed out; the last one is at
    uint8_t *at;     // its next row
    size_t left;     // and how many there are
    unsigned y;      // its number
    int out;         // threads in take_row()
};

struct conv_shared_flow {
    const struct conv_decode_stream *stream;
    size_t all; // bytes of output
    // Of the thread that follows the stream.
    uint8_t *buffer[BUFFERS];
    unsigned free_from[BUFFERS];  // the buffer is free once this number of chunks is taken
    int current;                  // buffer
    uint8_t *from;                // the first byte that was not posted
    size_t produced;              // bytes that were posted
    uint8_t *window;              // of the parts that are being appended
    bool good;                    // the result
    struct conv_shared_rows rows; // its declaration says which thread uses it
    atomic_flag follows;          // a thread does
    struct conv_lock lock;        // guards all below
    pthread_cond_t tasks;         // a task is available, or the run is over
    pthread_cond_t followed;      // something for which the thread that follows the stream may wait
    struct conv_shared_chunk chunks[MOST_CHUNKS]; // by number modulo MOST_CHUNKS
    unsigned posted, taken;
    bool taking; // a thread is in take()
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

// decode_shared_parts.c

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
size_t conv_decode_rows_bytes(size_t pitch, bool by_row);
void conv_decode_rows_start(struct conv_shared_flow *flow, uint8_t *memory);

// Takes rows that are available now. False: none are.
bool conv_decode_rows_take(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock);

// True if all rows that were posted are taken.
bool conv_decode_rows_are_taken(const struct conv_shared_flow *flow) CONV_NEEDS(flow->lock);

#endif
