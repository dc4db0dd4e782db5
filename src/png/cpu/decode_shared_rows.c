// SPDX-License-Identifier: MIT
// Chunks are cut into rows. Rows that one thread can take while another takes the row above go to
// take_row(), one by one; others to take(), as many as a chunk has.
#include <string.h>

#include "png/cpu/checksum.h"
#include "png/cpu/decode_shared_internal.h"
#include "png/cpu/unfilter.h"

static size_t joined_bytes(size_t pitch)
{
    return (pitch + CONV_UNFILTER_SLACK + 63) / 64 * 64;
}

size_t conv_decode_rows_bytes(size_t pitch, bool by_row)
{
    return (by_row ? JOINED_ROWS : 1) * joined_bytes(pitch);
}

void conv_decode_rows_start(struct conv_shared_flow *flow, uint8_t *memory)
{
    flow->rows.adler = 1;
    for (int i = 0; i < (flow->stream->take_row ? JOINED_ROWS : 1); i++)
        flow->rows.joined[i] = memory + (size_t)i * joined_bytes(flow->stream->pitch);
}

// Adds bytes to the row that is being joined, as many as it lacks; returns how many.
static size_t join(struct conv_shared_flow *flow, const uint8_t *data, size_t size)
{
    struct conv_shared_rows *rows = &flow->rows;
    size_t rest = flow->stream->pitch - rows->size, count = size < rest ? size : rest;
    memcpy(rows->joined[rows->current] + rows->size, data, count);
    rows->size += count;
    return count;
}

static void add_sum(struct conv_shared_flow *flow, const struct conv_shared_chunk *chunk)
{
    flow->rows.adler = conv_adler_join(flow->rows.adler, chunk->adler, chunk->size);
}

static void end_chunk(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    struct conv_shared_part *part = flow->chunks[flow->taken++ % MOST_CHUNKS].part;
    if (part)
        part->state = PART_FREE;
    pthread_cond_signal(&flow->tasks);
    pthread_cond_signal(&flow->followed);
}

// --- take() --------------------------------------------------------------------------------------

// False if the row that is being joined has a filter that does not exist: the first row of a
// hostile file may be long.
static bool is_good(const struct conv_shared_rows *rows)
{
    return rows->size == 0 || rows->joined[0][0] < CONV_UNFILTER_COUNT;
}

static bool take_chunk(struct conv_shared_flow *flow, const struct conv_shared_chunk *chunk)
{
    const struct conv_decode_stream *stream = flow->stream;
    struct conv_shared_rows *rows = &flow->rows;
    const uint8_t *data = chunk->data;
    size_t left = chunk->size, pitch = stream->pitch;
    add_sum(flow, chunk);
    if (rows->size > 0) {
        size_t count = join(flow, data, left);
        data += count;
        left -= count;
        if (!is_good(rows))
            return false;
        if (rows->size == pitch) {
            rows->size = 0;
            if (!stream->take(stream->context, rows->joined[0], 1))
                return false;
        }
    }
    size_t whole = left / pitch;
    if (whole > 0 && !stream->take(stream->context, data, whole))
        return false;
    if (left > whole * pitch)
        join(flow, data + whole * pitch, left - whole * pitch);
    return is_good(rows);
}

static bool take_next_chunk(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    const struct conv_shared_chunk *chunk = &flow->chunks[flow->taken % MOST_CHUNKS];
    if (flow->taking || flow->taken == flow->posted || chunk->state != CHUNK_FINISHED)
        return false;
    flow->taking = true;
    conv_lock_release(&flow->lock);
    bool good = take_chunk(flow, chunk);
    conv_lock_acquire(&flow->lock);
    flow->taking = false;
    flow->failed |= !good;
    if (!good)
        pthread_cond_broadcast(&flow->tasks);
    end_chunk(flow);
    return true;
}

// --- take_row() ----------------------------------------------------------------------------------

// From now on the rows of the next chunk are handed out. False: there is no chunk, or no memory for
// the row at its end.
static bool open_chunk(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    struct conv_shared_rows *rows = &flow->rows;
    const struct conv_shared_chunk *chunk = &flow->chunks[rows->opened % MOST_CHUNKS];
    size_t pitch = flow->stream->pitch, left = chunk->size;
    int following = (rows->current + 1) % JOINED_ROWS;
    if (rows->opened == flow->posted || chunk->state != CHUNK_FINISHED || rows->busy[following])
        return false;
    add_sum(flow, chunk);
    rows->opened++;
    rows->at = chunk->data;
    if (rows->size > 0) {
        size_t count = join(flow, rows->at, left);
        rows->at += count;
        left -= count;
    }
    if (rows->size == pitch) {
        rows->ready = rows->joined[rows->current];
        rows->busy[rows->current] = true;
        rows->current = following;
        rows->size = 0;
    }
    rows->left = left / pitch;
    left -= rows->left * pitch;
    if (left > 0)
        join(flow, rows->at + rows->left * pitch, left);
    return true;
}

// Ends the chunks whose rows are all taken.
static void end_chunks(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    const struct conv_shared_rows *rows = &flow->rows;
    while (flow->taken < rows->opened && flow->chunks[flow->taken % MOST_CHUNKS].rows_out == 0 &&
           (flow->taken + 1 < rows->opened || rows->left == 0))
        end_chunk(flow);
}

// True if there is a row to take: in the open chunk, or one that ends in it.
static bool has_row(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    const struct conv_shared_rows *rows = &flow->rows;
    while (!rows->ready && rows->left == 0) {
        if (!open_chunk(flow))
            return false;
        end_chunks(flow); // a chunk may have none
    }
    return true;
}

// True if two rows of the chunk that has been opened are to be taken at once: they begin alike and,
// as filtered rows, with a filter that is slow.
static bool are_two(const struct conv_shared_flow *flow)
{
    const struct conv_shared_rows *rows = &flow->rows;
    return rows->left > 1 && rows->at[0] >= CONV_UNFILTER_AVERAGE &&
           rows->at[0] == rows->at[flow->stream->pitch];
}

static bool take_next_row(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    const struct conv_decode_stream *stream = flow->stream;
    struct conv_shared_rows *rows = &flow->rows;
    if (flow->failed || rows->out >= stream->row_threads || !has_row(flow))
        return false;
    struct conv_shared_chunk *chunk = &flow->chunks[(rows->opened - 1) % MOST_CHUNKS];
    uint8_t *raw = rows->ready;
    int joined = (rows->current + JOINED_ROWS - 1) % JOINED_ROWS; // if it is that one
    bool both = !raw && are_two(flow);
    if (raw) {
        rows->ready = NULL;
    } else {
        raw = rows->at;
        rows->at += stream->pitch << both;
        rows->left -= 1 + both;
        chunk->rows_out++;
        joined = -1;
    }
    unsigned y = rows->y;
    rows->y += 1 + both;
    rows->out++;
    if (rows->out < stream->row_threads && rows->left > 0)
        pthread_cond_signal(&flow->tasks); // another thread may take the next row
    conv_lock_release(&flow->lock);
    bool good = stream->take_row(stream->context, y, raw, both);
    conv_lock_acquire(&flow->lock);
    rows->out--;
    flow->failed |= !good;
    if (joined >= 0)
        rows->busy[joined] = false;
    else
        chunk->rows_out--;
    end_chunks(flow);
    if (!good)
        pthread_cond_broadcast(&flow->tasks);
    if (!good || rows->out == 0)
        pthread_cond_signal(&flow->followed);
    return true;
}

bool conv_decode_rows_take(struct conv_shared_flow *flow)
{
    return flow->stream->take_row ? take_next_row(flow) : take_next_chunk(flow);
}

bool conv_decode_rows_are_taken(const struct conv_shared_flow *flow)
{
    return flow->taken == flow->posted && flow->rows.out == 0 && !flow->rows.ready;
}
