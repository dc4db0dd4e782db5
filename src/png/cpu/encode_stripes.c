// SPDX-License-Identifier: MIT
// Levels 0 and 1: rows are filtered into a stripe, which is compressed and summed up (Adler-32,
// CRC-32) while it is in the cache. A stripe depends on others only by the bit position at which it
// begins.
#include <libdeflate.h>

#include "base/parallel.h"
#include "png/chunk.h"
#include "png/cpu/deflate.h"
#include "png/cpu/encode_internal.h"

// Filtered bytes per stripe: enough to pay for a code of its own, and within the second-level
// cache.
#define STRIPE ((size_t)128 << 10)
// At level 1 the first of this many rows that is unlike the row above chooses the filter for all of
// them.
#define ROWS_PER_CHOICE 4

struct stripe {
    size_t row_bytes; // with the filter byte
    int rows;         // the last stripe may have fewer
};

// Stripes of nearly equal size, at least one row each.
static struct stripe plan_stripes(size_t row_bytes, int height)
{
    size_t stripes = row_bytes >= STRIPE ? (size_t)height : row_bytes * (size_t)height / STRIPE + 1;
    int rows = (int)(((size_t)height + stripes - 1) / stripes);
    return (struct stripe){row_bytes, rows};
}

static size_t filtered_bytes(struct stripe stripe)
{
    return (size_t)stripe.rows * stripe.row_bytes;
}

static size_t fill_stripe(const struct conv_encoder *encoder, struct conv_encode_rows *rows, int y,
                          int count)
{
    uint8_t *dst = encoder->filtered.data;
    enum conv_row_filter filter = CONV_ROW_NONE;
    bool chosen = false;
    for (int i = 0; i < count; i++) {
        conv_encode_rows_next(rows, y + i);
        chosen = chosen && i % ROWS_PER_CHOICE > 0;
        if (encoder->level > 0 && conv_encode_rows_is_repeated(rows, 0, rows->width)) {
            dst = conv_encode_rows_put_repeated(rows, dst);
            continue;
        }
        if (encoder->level > 0 && !chosen)
            filter = conv_encode_rows_choose(rows);
        chosen = true;
        dst = conv_encode_rows_put(rows, dst, filter);
    }
    return (size_t)(dst - encoder->filtered.data);
}

static void put_stripe(const struct conv_encoder *encoder, struct conv_bits *out, size_t size,
                       size_t pixel, bool last)
{
    const uint8_t *data = encoder->filtered.data;
    if (encoder->level == 0) {
        conv_deflate_store(out, data, size, last);
        return;
    }
    // A stripe longer than a block, that is one long row, is cut into equal parts.
    size_t blocks = (size + CONV_DEFLATE_BLOCK - 1) / CONV_DEFLATE_BLOCK;
    for (size_t i = 0, at = 0; i < blocks; i++) {
        size_t end = at + (size - at) / (blocks - i);
        conv_deflate_block(encoder->deflate, out, data + at, end - at, pixel, last && end == size);
        at = end;
    }
}

// A zlib stream in IDATs, as far as it is written.
struct stream {
    struct conv_encode_idat idat;
    struct conv_bits out;
    uint32_t adler; // of the rows so far
};

static void open_stream(struct stream *stream, uint8_t *at, bool first)
{
    *stream = (struct stream){.adler = 1};
    stream->out.at = conv_encode_idat_open(&stream->idat, at);
    if (first) {
        conv_bits_put(&stream->out, CONV_ENCODE_ZLIB_FASTEST, 16);
        conv_bits_flush(&stream->out);
    }
}

// Appends the rows from `from` to `to`, whose first one follows the last that *rows moved to.
static void put_rows(struct stream *stream, const struct conv_encoder *encoder,
                     struct stripe stripe, struct conv_encode_rows *rows, int from, int to)
{
    const struct conv_image *src = rows->src;
    for (int y = from; y < to; y += stripe.rows) {
        if (conv_cancel_is_asked(encoder->stop))
            break;
        int count = stripe.rows < to - y ? stripe.rows : to - y;
        size_t size = fill_stripe(encoder, rows, y, count);
        stream->adler = libdeflate_adler32(stream->adler, encoder->filtered.data, size);
        put_stripe(encoder, &stream->out, size, (size_t)rows->planes, y + count == src->height);
        conv_encode_idat_sum(&stream->idat, stream->out.at);
        if ((size_t)(stream->out.at - stream->idat.type) >= encoder->max_chunk)
            stream->out.at = conv_encode_idat_open(
                &stream->idat, conv_encode_idat_close(&stream->idat, stream->out.at));
    }
}

// --- bands ---------------------------------------------------------------------------------------

static bool prepare_band(struct conv_encoder *encoder, const struct conv_encode_bands *bands)
{
    return conv_buffer_reserve(&encoder->filtered, bands->prepared);
}

static uint8_t *put_band(struct conv_encoder *encoder, const struct conv_encode_bands *bands,
                         struct conv_encode_band *band, uint8_t *at)
{
    const struct conv_encode_task *task = bands->task;
    struct conv_encode_rows *rows = &encoder->rows;
    struct stream stream;
    if (rows->next != band->from || band->from == 0) {
        conv_encode_rows_start(rows, encoder->functions, task->src, encoder->source,
                               encoder->scratch.data);
        if (band->from > 0) // the row above
            conv_encode_rows_next(rows, band->from - 1);
    }
    open_stream(&stream, at, band->from == 0);
    put_rows(&stream, encoder, plan_stripes(task->row_bytes, task->src->height), rows, band->from,
             band->to);
    if (band->last)
        conv_bits_align(&stream.out);
    else
        conv_encode_end_band(&stream.out);
    band->adler = stream.adler;
    if (bands->count == 1) { // else the sum of all follows the last band
        conv_chunk_write_u32(stream.out.at, stream.adler);
        stream.out.at += 4;
    }
    return conv_encode_idat_close(&stream.idat, stream.out.at);
}

// --- images --------------------------------------------------------------------------------------

// Bytes of the chunks of `stripes` stripes.
static size_t bound(struct stripe stripe, size_t stripes, size_t bytes)
{
    size_t of_stripe = filtered_bytes(stripe);
    size_t block = of_stripe < CONV_DEFLATE_BLOCK / 2 ? of_stripe : CONV_DEFLATE_BLOCK / 2;
    return conv_encode_frames(stripes) + conv_deflate_bound(bytes, block);
}

static void plan(struct conv_encode_bands *bands, const struct conv_encoder *encoder,
                 const struct conv_encode_task *task)
{
    struct stripe stripe = plan_stripes(task->row_bytes, task->src->height);
    *bands = (struct conv_encode_bands){
        .put = put_band, .prepare = prepare_band, .prepared = filtered_bytes(stripe)};
    conv_encode_bands_plan(bands, encoder, task, stripe.rows);
    bands->room = bound(stripe, (size_t)(bands->rows / stripe.rows) + 1,
                        (size_t)bands->rows * task->row_bytes);
}

static size_t room_of(const struct conv_encoder *, const struct conv_encode_bands *bands)
{
    return bands->count > 1 ? conv_encode_bands_room(bands) : bands->room;
}

static enum conv_status encode(struct conv_encoder *encoder, struct conv_buffer *file,
                               const struct conv_encode_task *task, struct conv_err *err)
{
    struct conv_encode_bands bands;
    struct conv_encode_band all = {.to = task->src->height, .last = true};
    plan(&bands, encoder, task);
    if (bands.count > 1)
        return conv_encode_bands_run(encoder, &bands, file, err);
    if (!prepare_band(encoder, &bands) || !conv_buffer_reserve(file, bands.room))
        return conv_err_memory(err, "out of memory");
    uint8_t *at = conv_encode_put_head(file->data, task->src);
    at = conv_encode_put_tail(put_band(encoder, &bands, &all, at));
    file->size = (size_t)(at - file->data);
    return CONV_OK;
}

static enum conv_status encode_some(struct conv_encoder *encoder, struct conv_buffer *file,
                                    const struct conv_encode_task *task, int from, int to,
                                    struct conv_err *err)
{
    struct conv_encode_bands bands;
    plan(&bands, encoder, task);
    return conv_encode_bands_run_some(encoder, &bands, file, from, to, err);
}

static size_t stripe_bytes(const struct conv_encode_task *task, int)
{
    return filtered_bytes(plan_stripes(task->row_bytes, task->src->height));
}

const struct conv_encode_way conv_encode_stripes = {
    .plan = plan,
    .room = room_of,
    .encode = encode,
    .some = encode_some,
    .filtered_bytes = stripe_bytes,
};
