// SPDX-License-Identifier: MIT
// The inflater writes to a buffer that begins with the window of bytes that matches may refer to.
// When it is full, the window is copied to its start.
#include "png/cpu/decode_stream.h"

#include <string.h>

#include "png/cpu/unfilter.h"

// New bytes per buffer, besides window, room and a row: the copies then take 4 % of the bytes.
#define FILL ((size_t)512 << 10)
// Several threads are woken for at least this many bytes of rows.
#define SHARED_FROM ((size_t)4 << 20)

struct flow {
    const struct conv_decode_stream *stream;
    uint8_t *buffer;
    size_t capacity; // its bytes
    uint8_t *from;   // the first row that was not handed on
    size_t left;     // rows that were not handed on
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

bool conv_decode_stream_is_shared(size_t pitch, size_t rows)
{
    return !is_small(pitch, rows) && pitch * rows >= SHARED_FROM;
}

size_t conv_decode_stream_bytes(size_t pitch, size_t rows, bool by_row)
{
    size_t raw;
    if (__builtin_mul_overflow(pitch, rows, &raw) || pitch > SIZE_MAX / 8)
        return SIZE_MAX;
    if (is_small(pitch, rows))
        return raw + CONV_INFLATE_SLACK;
    size_t alone = buffer_bytes(pitch), shared = conv_decode_shared_bytes(pitch, by_row);
    return conv_decode_stream_is_shared(pitch, rows) && shared > alone ? shared : alone;
}

// Hands on the whole rows up to `at`.
static bool take_rows(struct flow *flow, const uint8_t *at)
{
    const struct conv_decode_stream *stream = flow->stream;
    const uint8_t *raw = flow->from;
    size_t count = (size_t)(at - raw) / stream->pitch;
    flow->from += count * stream->pitch;
    flow->left -= count;
    return count == 0 || stream->take(stream->context, raw, count);
}

// False if the current row has a filter that does not exist. take() finds such rows as well, but
// the first row of a hostile file may be long.
static bool is_good(const struct flow *flow, const uint8_t *at)
{
    return at == flow->from || *flow->from < CONV_UNFILTER_COUNT;
}

static uint8_t *next(void *context, uint8_t *at)
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

bool conv_decode_stream_run(const struct conv_decode_stream *stream, struct conv_parallel *parallel)
{
    size_t pitch = stream->pitch, rows = stream->rows;
    if (conv_decode_stream_threads(parallel) > 1 && conv_decode_stream_is_shared(pitch, rows))
        return conv_decode_shared_run(stream, parallel);
    struct flow flow = {.stream = stream, .left = rows};
    flow.capacity = is_small(pitch, rows) ? pitch * rows + CONV_INFLATE_SLACK : buffer_bytes(pitch);
    if (!conv_buffer_reserve(stream->memory, flow.capacity))
        return false;
    flow.buffer = flow.from = stream->memory->data;
    stream->inflate->next = next;
    stream->inflate->context = &flow;
    bool good =
        conv_inflate_zlib(stream->inflate, flow.buffer, pitch * rows, stream->data, stream->size);
    stream->inflate->next = NULL;
    stream->inflate->context = NULL;
    return good && take_rows(&flow, flow.from + flow.left * pitch);
}
