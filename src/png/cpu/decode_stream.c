// SPDX-License-Identifier: MIT
// The inflater writes to a buffer that begins with the window of bytes that matches may refer to.
// When it is full, the window is copied to the start of the next buffer: the same one, or with two
// threads one of BUFFERS.
#include "png/cpu/decode_stream.h"

#include <stdatomic.h>
#include <string.h>

#include "base/lock.h"
#include "png/cpu/unfilter.h"

// New bytes per buffer, besides window, room and a row: the copies then take 4 % of the bytes.
#define FILL ((size_t)512 << 10)
#define BUFFERS 3
// A second thread is woken for at least this many bytes of rows.
#define SHARED_FROM ((size_t)4 << 20)
#define WAIT_NS 1000000000

struct chunk {
    const uint8_t *raw;
    size_t rows;
};

struct flow {
    const struct conv_decode_stream *stream;
    uint8_t *buffer[BUFFERS];
    int count;       // of buffers
    size_t capacity; // bytes of each
    // Of the thread that inflates.
    uint8_t *from; // the first row that was not handed on
    size_t left;   // rows that were not handed on
    bool good;     // the result
    // With two threads.
    atomic_flag inflates, takes; // a thread does
    struct conv_lock lock;       // guards all below
    pthread_cond_t changed;
    struct chunk chunks[BUFFERS]; // by number modulo BUFFERS, as the buffers
    unsigned posted, taken;       // chunks
    bool taking;                  // a thread is in take()
    bool failed, over;
};

static size_t buffer_bytes(size_t pitch)
{
    return CONV_INFLATE_WINDOW + pitch + FILL + CONV_INFLATE_ROOM;
}

// True if the rows get a buffer for all of them.
static bool is_small(size_t pitch, size_t rows)
{
    return pitch * rows + CONV_INFLATE_SLACK <= buffer_bytes(pitch);
}

size_t conv_decode_stream_bytes(size_t pitch, size_t rows)
{
    size_t raw;
    if (__builtin_mul_overflow(pitch, rows, &raw) || pitch > SIZE_MAX / 8)
        return SIZE_MAX;
    if (is_small(pitch, rows))
        return raw + CONV_INFLATE_SLACK;
    return (raw < SHARED_FROM ? 1 : BUFFERS) * buffer_bytes(pitch);
}

// Continues in another buffer, or in the same: copies the window, and the part of a row that was
// not handed on. Returns the new address of `at`.
static uint8_t *move_to(struct flow *flow, uint8_t *buffer, const uint8_t *at)
{
    size_t part = (size_t)(at - flow->from);
    size_t keep = part > CONV_INFLATE_WINDOW ? part : CONV_INFLATE_WINDOW;
    memmove(buffer, at - keep, keep);
    flow->from = buffer + keep - part;
    return buffer + keep;
}

static bool has_room(const struct flow *flow, const uint8_t *buffer, const uint8_t *at)
{
    return flow->capacity - (size_t)(at - buffer) >= CONV_INFLATE_ROOM;
}

static bool take_rows(struct flow *flow, struct chunk chunk)
{
    return chunk.rows == 0 || flow->stream->take(flow->stream->context, chunk.raw, chunk.rows);
}

// The whole rows up to `at`, which are handed on now.
static struct chunk cut_chunk(struct flow *flow, const uint8_t *at)
{
    struct chunk chunk = {flow->from, (size_t)(at - flow->from) / flow->stream->pitch};
    flow->from += chunk.rows * flow->stream->pitch;
    flow->left -= chunk.rows;
    return chunk;
}

// False if the row that is begun has a filter that does not exist. Others are found by take(); but
// the first row of a hostile file may be long.
static bool is_good(const struct flow *flow, const uint8_t *at)
{
    return at == flow->from || *flow->from < CONV_UNFILTER_COUNT;
}

// --- one thread ----------------------------------------------------------------------------------

static uint8_t *next_alone(void *context, uint8_t *at)
{
    struct flow *flow = context;
    if (!take_rows(flow, cut_chunk(flow, at)) || !is_good(flow, at))
        return NULL;
    if (is_small(flow->stream->pitch, flow->stream->rows) || has_room(flow, flow->buffer[0], at))
        return at;
    return move_to(flow, flow->buffer[0], at);
}

static bool inflate(struct flow *flow, uint8_t *(*next)(void *context, uint8_t *at))
{
    const struct conv_decode_stream *stream = flow->stream;
    stream->inflate->next = next;
    stream->inflate->context = flow;
    bool good = conv_inflate_zlib(stream->inflate, flow->buffer[0], stream->pitch * stream->rows,
                                  stream->data, stream->size);
    stream->inflate->next = NULL;
    stream->inflate->context = NULL;
    return good;
}

// --- two threads ---------------------------------------------------------------------------------

static void take_next(struct flow *flow) CONV_NEEDS(flow->lock)
{
    struct chunk chunk = flow->chunks[flow->taken % BUFFERS];
    flow->taking = true;
    conv_lock_release(&flow->lock);
    bool good = take_rows(flow, chunk);
    conv_lock_acquire(&flow->lock);
    flow->taking = false;
    flow->failed |= !good;
    flow->taken++;
    pthread_cond_broadcast(&flow->changed);
}

// Waits until at most `most` chunks are not taken; takes them itself if no other thread does.
static void await_taken(struct flow *flow, unsigned most) CONV_NEEDS(flow->lock)
{
    while (!flow->failed && flow->posted - flow->taken > most) {
        if (flow->taking)
            conv_lock_wait(&flow->lock, &flow->changed, WAIT_NS);
        else
            take_next(flow);
    }
    while (flow->taking && flow->failed)
        conv_lock_wait(&flow->lock, &flow->changed, WAIT_NS);
}

static uint8_t *next_shared(void *context, uint8_t *at)
{
    struct flow *flow = context;
    if (!is_good(flow, at))
        return NULL;
    if (has_room(flow, flow->buffer[flow->posted % BUFFERS], at))
        return at;
    struct chunk chunk = cut_chunk(flow, at);
    conv_lock_acquire(&flow->lock);
    flow->chunks[flow->posted++ % BUFFERS] = chunk;
    pthread_cond_broadcast(&flow->changed);
    await_taken(flow, BUFFERS - 1); // the next buffer is free
    bool failed = flow->failed;
    conv_lock_release(&flow->lock);
    return failed ? NULL : move_to(flow, flow->buffer[flow->posted % BUFFERS], at);
}

static void inflate_shared(struct flow *flow)
{
    bool good = inflate(flow, next_shared);
    conv_lock_acquire(&flow->lock);
    flow->failed |= !good;
    await_taken(flow, 0);
    flow->good = !flow->failed;
    flow->over = true;
    pthread_cond_broadcast(&flow->changed);
    conv_lock_release(&flow->lock);
}

static void take_shared(struct flow *flow)
{
    conv_lock_acquire(&flow->lock);
    while (!flow->over && !flow->failed) {
        if (flow->taken < flow->posted && !flow->taking)
            take_next(flow);
        else
            conv_lock_wait(&flow->lock, &flow->changed, WAIT_NS);
    }
    conv_lock_release(&flow->lock);
}

static void work_on(void *context)
{
    struct flow *flow = context;
    if (!atomic_flag_test_and_set(&flow->inflates))
        inflate_shared(flow);
    else if (!atomic_flag_test_and_set(&flow->takes))
        take_shared(flow);
}

static bool run_shared(struct flow *flow, struct conv_parallel *parallel)
{
    if (conv_lock_init(&flow->lock) || conv_lock_init_condition(&flow->changed))
        return false; // never on Linux: neither takes memory
    conv_parallel_run(parallel, work_on, flow);
    conv_lock_destroy(&flow->lock);
    pthread_cond_destroy(&flow->changed);
    return flow->good;
}

bool conv_decode_stream_run(const struct conv_decode_stream *stream, struct conv_parallel *parallel)
{
    size_t pitch = stream->pitch, rows = stream->rows;
    bool shared =
        conv_parallel_most(parallel) > 1 && !is_small(pitch, rows) && pitch * rows >= SHARED_FROM;
    struct flow flow = {.stream = stream,
                        .count = shared ? BUFFERS : 1,
                        .capacity = is_small(pitch, rows) ? pitch * rows + CONV_INFLATE_SLACK
                                                          : buffer_bytes(pitch),
                        .left = rows,
                        .inflates = ATOMIC_FLAG_INIT,
                        .takes = ATOMIC_FLAG_INIT};
    if (!conv_buffer_reserve(stream->memory, (size_t)flow.count * flow.capacity))
        return false;
    for (int i = 0; i < flow.count; i++)
        flow.buffer[i] = stream->memory->data + (size_t)i * flow.capacity;
    flow.from = flow.buffer[0];
    bool good = shared ? run_shared(&flow, parallel) : inflate(&flow, next_alone);
    return good && take_rows(&flow, (struct chunk){flow.from, flow.left});
}
