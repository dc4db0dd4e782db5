// SPDX-License-Identifier: MIT
// Parts of a stream that are decoded ahead: where they begin, how long they are, and which of them
// were useful.
#include <stdlib.h>

#include "png/cpu/decode_shared_internal.h"

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
