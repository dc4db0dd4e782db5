// SPDX-License-Identifier: MIT
// Large images are encoded in bands of rows, by all available threads. Each band is compressed
// where its output would lie if all bands were incompressible, and then moved down to the end of
// the bands before it.
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/parallel.h"
#include "png/chunk.h"
#include "png/cpu/deflate.h"
#include "png/cpu/encode_internal.h"

// --- threads -------------------------------------------------------------------------------------

struct each {
    struct conv_encoder *own; // of the calling thread
    atomic_flag own_taken;
    conv_encode_prepare_fn prepare;
    conv_encode_each_fn each;
    void *context;
    int count;
    atomic_int next;
};

static void take_all(struct each *work, struct conv_encoder *encoder)
{
    while (!conv_cancel_is_asked(encoder->stop)) {
        int i = atomic_fetch_add(&work->next, 1);
        if (i >= work->count)
            break;
        work->each(encoder, work->context, i);
    }
}

// A thread without memory leaves all bands to the others; the first thread has the memory that it
// needs.
static void work_on(void *context)
{
    struct each *work = context;
    const struct conv_encoder *own = work->own;
    if (!atomic_flag_test_and_set(&work->own_taken)) {
        take_all(work, work->own);
        return;
    }
    struct conv_encoder *made;
    if (conv_encode_open(&made, own->level, own->features, own->max_chunk, NULL))
        return;
    made->stop = own->stop;
    if (conv_buffer_reserve(&made->scratch, own->scratch.capacity) &&
        work->prepare(made, work->context))
        take_all(work, made);
    conv_encode_close(made);
}

bool conv_encode_each(struct conv_encoder *encoder, conv_encode_prepare_fn prepare, size_t prepared,
                      conv_encode_each_fn each, void *context, int count)
{
    struct each work = {.own = encoder,
                        .own_taken = ATOMIC_FLAG_INIT,
                        .prepare = prepare,
                        .each = each,
                        .context = context,
                        .count = count};
    if (!prepare(encoder, context))
        return false;
    size_t bytes = conv_encode_tables_bytes(encoder->level) + encoder->scratch.capacity + prepared;
    conv_parallel_run(encoder->source ? NULL : encoder->parallel, bytes, work_on, &work);
    return true;
}

// --- bands ---------------------------------------------------------------------------------------

void conv_encode_bands_plan(struct conv_encode_bands *bands, const struct conv_encoder *encoder,
                            const struct conv_encode_task *task, int unit)
{
    int height = task->src->height;
    bands->task = task;
    bands->rows = height;
    bands->count = 1;
    if (task->all_bytes < encoder->bands_from)
        return;
    size_t wanted = task->all_bytes / encoder->band_bytes + 1;
    size_t units = ((size_t)height + (size_t)unit - 1) / (size_t)unit; // all of them
    size_t each = (units + wanted - 1) / wanted;
    if (each >= units)
        return;
    bands->rows = (int)each * unit;
    bands->count = (height - 1) / bands->rows + 1;
}

void conv_encode_end_band(struct conv_bits *out)
{
    static const uint8_t nothing[1];
    conv_deflate_store(out, nothing, 0, false);
}

struct part {
    uint8_t *data;
    size_t size;
    uint32_t adler;
    bool done;
};

struct run {
    const struct conv_encode_bands *bands;
    int first, count; // bands of this run
    uint8_t *begin;   // of the room of the first one
    struct part *parts;
    struct conv_lock lock; // guards all below and parts[].done
    int moved;             // bands that lie one after the other
    bool moving;           // a thread moves the next one
    uint8_t *end;          // of those; used by the thread that moves
};

// Moves all bands that can be moved, unless another thread does so.
static void move_down(struct run *run) CONV_NEEDS(run->lock)
{
    while (!run->moving && run->moved < run->count && run->parts[run->moved].done) {
        const struct part *part = &run->parts[run->moved];
        run->moving = true;
        conv_lock_release(&run->lock);
        memmove(run->end, part->data, part->size);
        run->end += part->size;
        conv_lock_acquire(&run->lock);
        run->moved++;
        run->moving = false;
    }
}

static void encode_band(struct conv_encoder *encoder, void *context, int i)
{
    struct run *run = context;
    const struct conv_encode_bands *bands = run->bands;
    struct part *part = &run->parts[i];
    int index = run->first + i, height = bands->task->src->height;
    struct conv_encode_band band = {.from = index * bands->rows, .last = index + 1 == bands->count};
    band.to = band.last ? height : band.from + bands->rows;
    part->data = run->begin + (size_t)i * bands->room;
    part->size = (size_t)(bands->put(encoder, bands, &band, part->data) - part->data);
    part->adler = band.adler;
    conv_lock_acquire(&run->lock);
    part->done = true;
    move_down(run);
    conv_lock_release(&run->lock);
}

static bool prepare(struct conv_encoder *encoder, void *context)
{
    const struct run *run = context;
    encoder->rows = (struct conv_encode_rows){.next = 0};
    return run->bands->prepare(encoder, run->bands);
}

// Of the rows up to the end of the run; `adler`: up to its begin.
static uint32_t sum_all(const struct run *run, uint32_t adler)
{
    const struct conv_encode_task *task = run->bands->task;
    size_t each = (size_t)run->bands->rows * task->row_bytes;
    size_t left = task->all_bytes - (size_t)run->first * each;
    for (int i = 0; i < run->count; i++, left -= each)
        adler = conv_adler_join(adler, run->parts[i].adler, left < each ? left : each);
    return adler;
}

// Encodes `count` bands from `first` on; *at is moved from where they begin to their end. The sum
// of the rows is the last IDAT.
static enum conv_status run_bands(struct conv_encoder *encoder,
                                  const struct conv_encode_bands *bands, int first, int count,
                                  uint8_t **at, struct conv_err *err)
{
    struct run run = {.bands = bands, .first = first, .count = count, .begin = *at, .end = *at};
    run.parts = calloc((size_t)count, sizeof *run.parts);
    if (!run.parts)
        return conv_err_memory(err, "out of memory");
    conv_lock_init(&run.lock);
    bool done = conv_encode_each(encoder, prepare, bands->prepared, encode_band, &run, count);
    bool whole = done && !conv_cancel_is_asked(encoder->stop);
    if (whole)
        encoder->adler = sum_all(&run, first == 0 ? 1 : encoder->adler);
    if (whole && first + count == bands->count) {
        struct conv_encode_idat idat;
        uint8_t *end = conv_encode_idat_open(&idat, run.end);
        conv_chunk_write_u32(end, encoder->adler);
        run.end = conv_encode_idat_close(&idat, end + 4);
    }
    *at = run.end;
    conv_lock_destroy(&run.lock);
    free(run.parts);
    return whole ? CONV_OK : done ? conv_err_cancelled(err) : conv_err_memory(err, "out of memory");
}

static size_t room_of(const struct conv_encode_bands *bands, int count)
{
    size_t all;
    if (__builtin_mul_overflow(bands->room, (size_t)count, &all) ||
        __builtin_add_overflow(all, conv_encode_frames(1), &all))
        return SIZE_MAX;
    return all;
}

size_t conv_encode_bands_room(const struct conv_encode_bands *bands)
{
    return room_of(bands, bands->count);
}

enum conv_status conv_encode_bands_run(struct conv_encoder *encoder,
                                       const struct conv_encode_bands *bands,
                                       struct conv_buffer *file, struct conv_err *err)
{
    if (!conv_buffer_reserve(file, conv_encode_bands_room(bands)))
        return conv_err_memory(err, "out of memory");
    uint8_t *at = conv_encode_put_head(file->data, bands->task->src);
    enum conv_status status = run_bands(encoder, bands, 0, bands->count, &at, err);
    if (!status)
        file->size = (size_t)(conv_encode_put_tail(at) - file->data);
    return status;
}

enum conv_status conv_encode_bands_run_some(struct conv_encoder *encoder,
                                            const struct conv_encode_bands *bands,
                                            struct conv_buffer *file, int from, int to,
                                            struct conv_err *err)
{
    int count = (to - from - 1) / bands->rows + 1;
    if (!conv_buffer_reserve(file, room_of(bands, count)))
        return conv_err_memory(err, "out of memory");
    uint8_t *at = file->data;
    enum conv_status status = run_bands(encoder, bands, from / bands->rows, count, &at, err);
    file->size = (size_t)(at - file->data);
    return status;
}
