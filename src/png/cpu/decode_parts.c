// SPDX-License-Identifier: MIT
// The parts of a stream that threads decode ahead, and the rows that its chunks are cut into.
#include <stdlib.h>
#include <string.h>

#include "png/chunk.h"
#include "png/cpu/decode_internal.h"
#include "png/cpu/unfilter.h"

// --- parts that are decoded ahead ----------------------------------------------------------------

// Parts of a stream that are decoded ahead: where they begin, how long they are, and which of them
// were useful.

#define PARTS_PER_THREAD 2
#define PART_BYTES (CONV_DECODE_SHARED_THREAD_BYTES / PARTS_PER_THREAD)
// Bytes of output that a part should have: symbols of two bytes still fit its memory then.
#define PART_OUTPUT (PART_BYTES / 2 - CONV_INFLATE_AHEAD_LEAST)
#define LEAST_BITS ((size_t)8 * (32 << 10)) // of a part
#define MOST_SEARCHING 2 // parts that are searched at a time until one was useful
#define MOST_SEARCHED ((size_t)8 * (192 << 10)) // bits: of a part, for its begin
#define MOST_MISSES 2 // unused parts in a row, after which a stretch gets none
#define PAUSE 8       // parts in such a stretch, at first; it doubles
#define MOST_PAUSES 4

static void count_miss(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    if (++flow->misses < MOST_MISSES)
        return;
    size_t begin = flow->next_cut > flow->front ? flow->next_cut : flow->front;
    flow->next_cut = begin + flow->part_bits * ((size_t)PAUSE << 2 * flow->pauses);
    flow->pauses += flow->pauses < MOST_PAUSES;
    flow->misses = 0;
    flow->proven = false;
}

// Finds a begin at `from` or later that the first thread has not passed yet.
static bool find_begin(struct conv_shared_flow *flow, struct conv_shared_part *part, size_t from)
    CONV_TAKES(flow->lock)
{
    while (!part->found && conv_inflate_ahead_find(&part->ahead, from)) {
        conv_lock_acquire(&flow->lock);
        part->found = part->ahead.first >= flow->front;
        from = flow->front;
        if (part->found && flow->searching-- == MOST_SEARCHING && !flow->proven)
            pthread_cond_broadcast(&flow->tasks); // others may search
        conv_lock_release(&flow->lock);
    }
    return part->found;
}

static bool decode_part(struct conv_shared_flow *flow, struct conv_shared_part *part, size_t from)
    CONV_TAKES(flow->lock)
{
    while (find_begin(flow, part, from)) {
        if (conv_inflate_ahead_decode(&part->ahead))
            return true;
        from = part->ahead.first + 1;
        conv_lock_acquire(&flow->lock);
        part->found = false;
        flow->searching++;
        pthread_cond_signal(&flow->followed);
        conv_lock_release(&flow->lock);
    }
    return false;
}

static void run_part(struct conv_shared_flow *flow, struct conv_shared_part *part)
    CONV_NEEDS(flow->lock)
{
    size_t from = flow->front + flow->part_bits;
    if (from < flow->next_cut)
        from = flow->next_cut;
    flow->next_cut = part->ahead.to = part->ahead.until = from + flow->part_bits;
    if (flow->part_bits > MOST_SEARCHED)
        part->ahead.until = from + MOST_SEARCHED;
    part->state = PART_BUSY;
    part->found = false;
    flow->searching++;
    atomic_store_explicit(&part->stop, false, memory_order_relaxed);
    conv_lock_release(&flow->lock);
    if (!part->ahead.memory)
        part->ahead.memory = malloc(part->ahead.room);
    bool good = part->ahead.memory && decode_part(flow, part, from);
    conv_lock_acquire(&flow->lock);
    if (atomic_load_explicit(&part->stop, memory_order_relaxed))
        good = false;
    flow->searching -= !part->found;
    part->state = good ? PART_READY : PART_FREE;
    if (!good)
        count_miss(flow);
    pthread_cond_signal(&flow->followed);
}

static struct conv_shared_part *find_free(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    size_t end = 8 * flow->stream->size;
    if (flow->next_cut >= end || flow->front + flow->part_bits >= end)
        return NULL;
    if (!flow->proven && flow->searching >= MOST_SEARCHING)
        return NULL;
    for (int i = 0; i < flow->part_count; i++)
        if (flow->parts[i].state == PART_FREE)
            return &flow->parts[i];
    return NULL;
}

bool conv_decode_parts_run(struct conv_shared_flow *flow)
{
    struct conv_shared_part *part = find_free(flow);
    if (part)
        run_part(flow, part);
    return part;
}

struct conv_shared_part *conv_decode_parts_at(struct conv_shared_flow *flow, size_t bit)
    CONV_NEEDS(flow->lock)
{
    struct conv_shared_part *found = NULL;
    for (int i = 0; i < flow->part_count; i++) {
        struct conv_shared_part *part = &flow->parts[i];
        bool has_begin = part->state == PART_READY || (part->state == PART_BUSY && part->found);
        if (!has_begin || part->ahead.first > bit)
            continue;
        if (part->ahead.first == bit && !found) {
            found = part;
        } else if (part->state == PART_READY) {
            part->state = PART_FREE;
            count_miss(flow);
        } else {
            atomic_store_explicit(&part->stop, true, memory_order_relaxed);
        }
    }
    return found;
}

void conv_decode_parts_learn(struct conv_shared_flow *flow, const struct conv_shared_part *part)
    CONV_NEEDS(flow->lock)
{
    const struct conv_inflate_ahead *ahead = &part->ahead;
    size_t size = ahead->symbols + ahead->bytes, bits = ahead->end - ahead->first;
    size_t wanted = (size_t)((double)bits * (double)PART_OUTPUT / (double)size);
    wanted = wanted > LEAST_BITS ? wanted : LEAST_BITS;
    flow->misses = 0;
    flow->proven = true;
    if (flow->stream->part_bits == 0)
        flow->part_bits = wanted < 2 * flow->part_bits ? wanted : 2 * flow->part_bits;
}

void conv_decode_parts_start(struct conv_shared_flow *flow, int threads)
{
    const struct conv_decode_stream *stream = flow->stream;
    // Of two threads the second one is busy with rows: parts then made decoding 0.9 to 1.25 times
    // as fast, and took up to 1.4 times the processor time.
    int wanted = threads > 2 ? threads * PARTS_PER_THREAD : 0;
    wanted = wanted < MOST_PARTS ? wanted : MOST_PARTS;
    if (wanted == 0)
        return;
    flow->parts = calloc((size_t)wanted, sizeof *flow->parts); // NULL: there are none
    flow->part_count = flow->parts ? wanted : 0;
    for (int i = 0; i < flow->part_count; i++) {
        struct conv_inflate_ahead *ahead = &flow->parts[i].ahead;
        ahead->data = stream->data;
        ahead->size = stream->size - 4; // the Adler-32
        ahead->room = PART_BYTES - sizeof *flow->parts;
        ahead->stop = &flow->parts[i].stop;
    }
    double share = (double)PART_OUTPUT / (double)flow->all;
    flow->part_bits = (size_t)(8 * share * (double)stream->size);
    if (flow->part_bits < LEAST_BITS)
        flow->part_bits = LEAST_BITS;
    if (stream->part_bits > 0)
        flow->part_bits = stream->part_bits;
}

static int count_ready(const struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    int ready = 0;
    for (int i = 0; i < flow->part_count; i++)
        ready += flow->parts[i].state == PART_READY;
    return ready;
}

void conv_decode_parts_await(struct conv_shared_flow *flow, int count)
{
    conv_lock_acquire(&flow->lock);
    while (count_ready(flow) < count)
        conv_lock_wait(&flow->lock, &flow->followed, WAIT_NS);
    conv_lock_release(&flow->lock);
}

void conv_decode_parts_free(struct conv_shared_flow *flow)
{
    for (int i = 0; i < flow->part_count; i++)
        free(flow->parts[i].ahead.memory);
    free(flow->parts);
}

// --- rows ----------------------------------------------------------------------------------------

// Chunks are cut into rows. Rows that several threads may take at a time go to take() one by one or
// in pairs, others as many as a chunk has.

static size_t joined_bytes(size_t pitch)
{
    return (pitch + CONV_UNFILTER_SLACK + 63) / 64 * 64;
}

static int joined_rows(int row_threads)
{
    return row_threads > 1 ? JOINED_ROWS : 2;
}

size_t conv_decode_rows_bytes(size_t pitch, int row_threads)
{
    return (size_t)joined_rows(row_threads) * joined_bytes(pitch);
}

void conv_decode_rows_start(struct conv_shared_flow *flow, uint8_t *memory)
{
    flow->rows.adler = 1;
    for (int i = 0; i < joined_rows(flow->stream->row_threads); i++)
        flow->rows.joined[i] = memory + (size_t)i * joined_bytes(flow->stream->pitch);
}

static void fail(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    flow->failed = true;
    pthread_cond_broadcast(&flow->tasks);
    pthread_cond_signal(&flow->followed);
}

// Adds bytes to the row that is being joined, as many as it lacks; returns how many. Fails if its
// filter does not exist: the first row of a hostile file may be long.
static size_t join(struct conv_shared_flow *flow, const uint8_t *data, size_t size)
    CONV_NEEDS(flow->lock)
{
    struct conv_shared_rows *rows = &flow->rows;
    uint8_t *row = rows->joined[rows->current];
    size_t rest = flow->stream->pitch - rows->size, count = size < rest ? size : rest;
    memcpy(row + rows->size, data, count);
    rows->size += count;
    if (row[0] >= CONV_UNFILTER_COUNT)
        fail(flow);
    return count;
}

static void end_chunk(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    struct conv_shared_part *part = flow->chunks[flow->taken++ % MOST_CHUNKS].part;
    if (part)
        part->state = PART_FREE;
    pthread_cond_signal(&flow->tasks);
    pthread_cond_signal(&flow->followed);
}

// From now on the rows of the next chunk are handed out. False: there is no chunk, or no memory for
// the row at its end.
static bool open_chunk(struct conv_shared_flow *flow) CONV_NEEDS(flow->lock)
{
    struct conv_shared_rows *rows = &flow->rows;
    const struct conv_shared_chunk *chunk = &flow->chunks[rows->opened % MOST_CHUNKS];
    size_t pitch = flow->stream->pitch, left = chunk->size;
    int following = (rows->current + 1) % joined_rows(flow->stream->row_threads);
    if (rows->opened == flow->posted || chunk->state != CHUNK_FINISHED || rows->busy[following])
        return false;
    rows->adler = conv_adler_join(rows->adler, chunk->adler, chunk->size);
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
    return !flow->failed;
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

bool conv_decode_rows_take(struct conv_shared_flow *flow)
{
    const struct conv_decode_stream *stream = flow->stream;
    struct conv_shared_rows *rows = &flow->rows;
    if (flow->failed || rows->out >= stream->row_threads || !has_row(flow))
        return false;
    struct conv_shared_chunk *chunk = &flow->chunks[(rows->opened - 1) % MOST_CHUNKS];
    uint8_t *raw = rows->ready;
    int all = joined_rows(stream->row_threads), joined = (rows->current + all - 1) % all;
    size_t count = raw ? 1 : stream->row_threads == 1 ? rows->left : are_two(flow) ? 2 : 1;
    if (raw) {
        rows->ready = NULL;
    } else {
        raw = rows->at;
        rows->at += count * stream->pitch;
        rows->left -= count;
        chunk->rows_out++;
        joined = -1;
    }
    unsigned y = rows->y;
    rows->y += (unsigned)count;
    rows->out++;
    if (rows->out < stream->row_threads && rows->left > 0)
        pthread_cond_signal(&flow->tasks); // another thread may take the next row
    conv_lock_release(&flow->lock);
    bool good = stream->take(stream->context, y, raw, count);
    conv_lock_acquire(&flow->lock);
    rows->out--;
    if (joined >= 0)
        rows->busy[joined] = false;
    else
        chunk->rows_out--;
    end_chunks(flow);
    if (!good)
        fail(flow);
    else if (rows->out == 0)
        pthread_cond_signal(&flow->followed);
    return true;
}

bool conv_decode_rows_are_taken(const struct conv_shared_flow *flow)
{
    return flow->taken == flow->posted && flow->rows.out == 0 && !flow->rows.ready;
}
