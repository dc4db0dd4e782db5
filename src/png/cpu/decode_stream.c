// SPDX-License-Identifier: MIT
// One thread: the inflater writes to a buffer that begins with the window of bytes that matches may
// refer to. When it is full, the window is copied to its start.
//
// Several threads: the one that follows the stream never waits for a part that is still being
// searched, so a stream in which no part is found takes as long as with one thread.
#include "png/cpu/decode_internal.h"

#include <libdeflate.h>
#include <string.h>

#include "png/chunk.h"
#include "png/cpu/unfilter.h"

// New bytes per buffer, besides window, room and a row: the copies then take 4 % of the bytes.
#define FILL ((size_t)512 << 10)
#define PIECE CONV_DECODE_PIECE
_Static_assert(PIECE >= CONV_INFLATE_PIECE, "see conv_inflate.supply");
// Several threads are woken for at least this many bytes of rows.
#define SHARED_FROM ((size_t)4 << 20)

struct flow {
    const struct conv_decode_stream *stream;
    uint8_t *buffer;
    size_t capacity; // its bytes
    uint8_t *from;   // the first row that was not handed on
    size_t left;     // rows that were not handed on
};

static size_t alone_bytes(size_t pitch)
{
    return CONV_INFLATE_WINDOW + pitch + FILL + CONV_INFLATE_ROOM;
}

// True if the rows get a buffer for all of them.
static bool is_small(size_t pitch, size_t rows)
{
    return pitch * rows + CONV_INFLATE_SLACK <= alone_bytes(pitch);
}

bool conv_decode_stream_is_shared(size_t pitch, size_t rows)
{
    return !is_small(pitch, rows) && pitch * rows >= SHARED_FROM;
}

static size_t buffer_bytes(void)
{
    return CONV_INFLATE_WINDOW + FILL + CONV_INFLATE_ROOM;
}

// Of stream->memory, with several threads.
static size_t shared_bytes(size_t pitch, int row_threads)
{
    return BUFFERS * buffer_bytes() + CONV_INFLATE_WINDOW +
           conv_decode_rows_bytes(pitch, row_threads);
}

size_t conv_decode_stream_bytes(size_t pitch, size_t rows, int row_threads)
{
    size_t raw;
    if (__builtin_mul_overflow(pitch, rows, &raw) || pitch > SIZE_MAX / 8)
        return SIZE_MAX;
    if (is_small(pitch, rows))
        return raw + CONV_INFLATE_SLACK;
    size_t alone = alone_bytes(pitch), shared = shared_bytes(pitch, row_threads);
    return conv_decode_stream_is_shared(pitch, rows) && shared > alone ? shared : alone;
}

// Hands on the whole rows up to `at`.
static bool take_rows(struct flow *flow, const uint8_t *at)
{
    const struct conv_decode_stream *stream = flow->stream;
    uint8_t *raw = flow->from;
    size_t count = (size_t)(at - raw) / stream->pitch, y = stream->rows - flow->left;
    flow->from += count * stream->pitch;
    flow->left -= count;
    return count == 0 || stream->take(stream->context, (unsigned)y, raw, count);
}

// False if the current row has a filter that does not exist. take() finds such rows as well, but
// the first row of a hostile file may be long.
static bool is_good(const struct flow *flow, const uint8_t *at)
{
    return at == flow->from || *flow->from < CONV_UNFILTER_COUNT;
}

static uint8_t *next_alone(void *context, uint8_t *at)
{
    struct flow *flow = context;
    if (!take_rows(flow, at) || !is_good(flow, at))
        return NULL;
    if (is_small(flow->stream->pitch, flow->stream->rows) ||
        flow->capacity - (size_t)(at - flow->buffer) >= CONV_INFLATE_ROOM)
        return at;
    // The window is copied to the start of the buffer, or more than that if a longer part of a row
    // was not handed on.
    size_t part = (size_t)(at - flow->from);
    size_t keep = part > CONV_INFLATE_WINDOW ? part : CONV_INFLATE_WINDOW;
    memmove(flow->buffer, at - keep, keep);
    flow->from = flow->buffer + keep - part;
    return flow->buffer + keep;
}

int conv_decode_stream_threads(const struct conv_parallel *parallel)
{
    return conv_parallel_most(parallel, CONV_DECODE_SHARED_THREAD_BYTES);
}

// The IDAT chunks of a file, as far as they were copied.
struct pieces {
    uint8_t *start;    // of a piece
    const uint8_t *at; // in a chunk
    size_t chunk;      // bytes from there to its end
    size_t left;       // bytes of all chunks
};

static const uint8_t *supply(void *input, const uint8_t *at, size_t *left, bool *more)
{
    struct pieces *pieces = input;
    memmove(pieces->start - CONV_INFLATE_BEHIND, at - CONV_INFLATE_BEHIND,
            CONV_INFLATE_BEHIND + *left);
    while (*left < PIECE && pieces->left > 0) {
        size_t step = pieces->chunk < PIECE - *left ? pieces->chunk : PIECE - *left;
        memcpy(pieces->start + *left, pieces->at, step);
        *left += step;
        pieces->at += step;
        pieces->chunk -= step;
        pieces->left -= step;
        if (pieces->chunk == 0 && pieces->left > 0) {
            pieces->at += CONV_CHUNK_FRAME;
            pieces->chunk = conv_chunk_read_u32(pieces->at - 8);
        }
    }
    *more = pieces->left > 0;
    return pieces->start;
}

static bool inflate_alone(const struct conv_decode_stream *stream, uint8_t *out)
{
    struct conv_inflate *inflate = stream->inflate;
    const uint8_t *data = stream->data;
    size_t size = stream->size, all = stream->pitch * stream->rows;
    bool more;
    if (!stream->pieces)
        return conv_inflate_zlib(inflate, out, all, data, size);
    if (!conv_buffer_reserve(stream->pieces, CONV_INFLATE_BEHIND + PIECE))
        return false;
    uint8_t *start = stream->pieces->data + CONV_INFLATE_BEHIND;
    struct pieces pieces = {start, data, conv_chunk_read_u32(data - 8), size};
    memset(stream->pieces->data, 0, CONV_INFLATE_BEHIND);
    size = 0;
    supply(&pieces, start, &size, &more);
    inflate->supply = more ? supply : NULL;
    inflate->input = &pieces;
    bool good = conv_inflate_zlib(inflate, out, all, start, size);
    inflate->supply = NULL;
    inflate->input = NULL;
    return good;
}

bool conv_decode_stream_run(const struct conv_decode_stream *stream, struct conv_parallel *parallel)
{
    size_t pitch = stream->pitch, rows = stream->rows;
    if (conv_decode_stream_threads(parallel) > 1 && conv_decode_stream_is_shared(pitch, rows))
        return conv_decode_shared_run(stream, parallel);
    struct flow flow = {.stream = stream, .left = rows};
    flow.capacity = is_small(pitch, rows) ? pitch * rows + CONV_INFLATE_SLACK : alone_bytes(pitch);
    if (!conv_buffer_reserve(stream->memory, flow.capacity))
        return false;
    flow.buffer = flow.from = stream->memory->data;
    stream->inflate->next = next_alone;
    stream->inflate->context = &flow;
    bool good = inflate_alone(stream, flow.buffer);
    stream->inflate->next = NULL;
    stream->inflate->context = NULL;
    return good && take_rows(&flow, flow.from + flow.left * pitch);
}

// --- tasks ---------------------------------------------------------------------------------------

static void finish_chunk(struct conv_shared_flow *flow, struct conv_shared_chunk *chunk)
    CONV_NEEDS(flow->lock)
{
    chunk->state = CHUNK_BUSY;
    conv_lock_release(&flow->lock);
    if (chunk->part)
        chunk->data =
            conv_inflate_ahead_finish(&chunk->part->ahead, chunk->part->before, &chunk->adler);
    else
        chunk->adler = libdeflate_adler32(1, chunk->data, chunk->size);
    conv_lock_acquire(&flow->lock);
    chunk->state = CHUNK_FINISHED;
    pthread_cond_signal(&flow->tasks);
}

// Does the most urgent task. False: there is none.
static bool do_task(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    if (conv_decode_rows_take(flow))
        return true;
    for (unsigned i = flow->taken; i < flow->posted; i++) {
        struct conv_shared_chunk *chunk = &flow->chunks[i % MOST_CHUNKS];
        if (chunk->state == CHUNK_RAW) {
            finish_chunk(flow, chunk);
            return true;
        }
    }
    return conv_decode_parts_run(flow);
}

static void help(struct conv_shared_flow *flow)
{
    conv_lock_acquire(&flow->lock);
    while (!flow->over && !flow->failed)
        if (!do_task(flow))
            conv_lock_wait(&flow->lock, &flow->tasks, WAIT_NS);
    conv_lock_release(&flow->lock);
}

// --- the thread that follows the stream ----------------------------------------------------------

// Does a task, or waits until another thread has done one.
static void do_task_or_wait(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    if (do_task(flow))
        pthread_cond_signal(&flow->tasks); // this thread may not do the next one of the kind
    else
        conv_lock_wait(&flow->lock, &flow->followed, WAIT_NS);
}

static void post(struct conv_shared_flow *flow, struct conv_shared_chunk chunk)
    CONV_NEEDS(flow->lock)
{
    flow->chunks[flow->posted++ % MOST_CHUNKS] = chunk;
    flow->produced += chunk.size;
    pthread_cond_signal(&flow->tasks);
}

// Posts the bytes up to `at`, which is in the current buffer.
static void post_own(struct conv_shared_flow *flow, const uint8_t *at) CONV_NEEDS(flow->lock)
{
    if (at == flow->from)
        return;
    post(flow, (struct conv_shared_chunk){.data = flow->from, .size = (size_t)(at - flow->from)});
    flow->free_from[flow->current] = flow->posted;
    flow->from += at - flow->from;
}

// Continues in a buffer to which no chunk refers, after these bytes. NULL: the run has failed.
static uint8_t *begin_buffer(struct conv_shared_flow *flow, const uint8_t *window)
    CONV_NEEDS(flow->lock)
{
    bool free = flow->taken >= flow->free_from[flow->current];
    int next = free ? flow->current : (flow->current + 1) % BUFFERS;
    while (!flow->failed && flow->taken < flow->free_from[next])
        do_task_or_wait(flow);
    if (flow->failed)
        return NULL;
    flow->current = next;
    memcpy(flow->buffer[next], window, CONV_INFLATE_WINDOW);
    return flow->from = flow->buffer[next] + CONV_INFLATE_WINDOW;
}

static uint8_t *next_shared(void *context, uint8_t *at)
{
    struct conv_shared_flow *flow = context;
    const uint8_t *end = flow->buffer[flow->current] + CONV_INFLATE_WINDOW + FILL;
    if (at < end)
        return at;
    conv_lock_acquire(&flow->lock);
    // Before they are posted, since the thread that takes rows may overwrite them.
    memcpy(flow->window, at - CONV_INFLATE_WINDOW, CONV_INFLATE_WINDOW);
    post_own(flow, at);
    uint8_t *moved = begin_buffer(flow, flow->window);
    conv_lock_release(&flow->lock);
    return moved;
}

// Where the stream is, while parts are appended to it.
struct position {
    struct conv_inflate_place *place;
    bool moved; // parts were appended
};

static void append(struct conv_shared_flow *flow, struct conv_shared_part *part,
                   struct position *position) CONV_NEEDS(flow->lock)
{
    const struct conv_inflate_ahead *ahead = &part->ahead;
    size_t size = ahead->symbols + ahead->bytes;
    if (!position->moved) {
        const uint8_t *at = position->place->at;
        memcpy(flow->window, at - CONV_INFLATE_WINDOW, CONV_INFLATE_WINDOW);
        post_own(flow, at);
        position->moved = true;
    }
    memcpy(part->before, flow->window, CONV_INFLATE_WINDOW);
    conv_inflate_ahead_window(ahead, flow->window, part->before);
    conv_decode_parts_learn(flow, part);
    if (flow->stream->ahead)
        *flow->stream->ahead += size;
    part->state = PART_POSTED;
    post(flow, (struct conv_shared_chunk){.size = size, .part = part});
    position->place->bit = ahead->end;
    position->place->last = ahead->last;
    position->place->skipped += size;
}

static size_t bytes_until(const struct conv_shared_flow *flow, const struct position *position)
    CONV_NEEDS(flow->lock)
{
    size_t own = position->moved ? 0 : (size_t)(position->place->at - flow->from);
    return flow->produced + own;
}

// Appends parts while there is one that fits; helps while the next one is being decoded.
static bool append_parts(struct conv_shared_flow *flow, struct position *position)
    CONV_NEEDS(flow->lock)
{
    struct conv_inflate_place *place = position->place;
    for (;;) {
        if (flow->failed)
            return false;
        struct conv_shared_part *part = place->last ? NULL : conv_decode_parts_at(flow, place->bit);
        if (!part)
            return true;
        const struct conv_inflate_ahead *ahead = &part->ahead;
        if (part->state == PART_BUSY) {
            flow->front = place->bit;
            do_task_or_wait(flow);
        } else if (ahead->symbols + ahead->bytes > flow->all - bytes_until(flow, position)) {
            return false; // more than the rows
        } else {
            append(flow, part, position);
        }
    }
}

static bool jump(void *context, struct conv_inflate_place *place)
{
    struct conv_shared_flow *flow = context;
    struct position position = {.place = place};
    conv_lock_acquire(&flow->lock);
    size_t before = flow->produced + (size_t)(place->at - flow->from);
    bool good = !flow->failed;
    if (good && before >= CONV_INFLATE_WINDOW)
        good = append_parts(flow, &position);
    if (good && position.moved)
        good = (place->at = begin_buffer(flow, flow->window));
    flow->front = place->bit + 1;
    conv_lock_release(&flow->lock);
    return good;
}

static bool sum(void *context, uint32_t *adler, const uint8_t *at)
{
    struct conv_shared_flow *flow = context;
    conv_lock_acquire(&flow->lock);
    post_own(flow, at);
    flow->next_cut = SIZE_MAX; // no further parts
    while (!flow->failed && !conv_decode_rows_are_taken(flow))
        do_task_or_wait(flow);
    *adler = flow->rows.adler;
    bool good = !flow->failed;
    conv_lock_release(&flow->lock);
    return good;
}

static void follow(struct conv_shared_flow *flow)
{
    const struct conv_decode_stream *stream = flow->stream;
    struct conv_inflate *inflate = stream->inflate;
    if (stream->parts_first > 0)
        conv_decode_parts_await(flow, stream->parts_first);
    inflate->next = next_shared;
    inflate->jump = jump;
    inflate->sum = sum;
    inflate->context = flow;
    bool good = conv_inflate_zlib(inflate, flow->buffer[0], flow->all, stream->data, stream->size);
    inflate->next = NULL;
    inflate->jump = NULL;
    inflate->sum = NULL;
    inflate->context = NULL;
    conv_lock_acquire(&flow->lock);
    flow->good = good;
    flow->over = true;
    for (int i = 0; i < flow->part_count; i++)
        atomic_store_explicit(&flow->parts[i].stop, true, memory_order_relaxed);
    pthread_cond_broadcast(&flow->tasks);
    conv_lock_release(&flow->lock);
}

static void work_on(void *context)
{
    struct conv_shared_flow *flow = context;
    if (!atomic_flag_test_and_set(&flow->follows))
        follow(flow);
    else
        help(flow);
}

bool conv_decode_shared_run(const struct conv_decode_stream *stream, struct conv_parallel *parallel)
{
    struct conv_shared_flow flow = {
        .stream = stream, .all = stream->pitch * stream->rows, .follows = ATOMIC_FLAG_INIT};
    if (!conv_buffer_reserve(stream->memory, shared_bytes(stream->pitch, stream->row_threads)))
        return false;
    for (int i = 0; i < BUFFERS; i++)
        flow.buffer[i] = stream->memory->data + (size_t)i * buffer_bytes();
    flow.window = stream->memory->data + BUFFERS * buffer_bytes();
    conv_decode_rows_start(&flow, flow.window + CONV_INFLATE_WINDOW);
    flow.from = flow.buffer[0];
    conv_lock_init(&flow.lock);
    conv_lock_init_condition(&flow.tasks);
    conv_lock_init_condition(&flow.followed);
    if (stream->size > 6)
        conv_decode_parts_start(&flow, conv_decode_stream_threads(parallel));
    conv_parallel_run(parallel, CONV_DECODE_SHARED_THREAD_BYTES, work_on, &flow);
    conv_decode_parts_free(&flow);
    conv_lock_destroy(&flow.lock);
    pthread_cond_destroy(&flow.tasks);
    pthread_cond_destroy(&flow.followed);
    return flow.good;
}
