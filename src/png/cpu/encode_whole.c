// SPDX-License-Identifier: MIT
// Levels 2 to 12: all rows are filtered first, and then compressed. Large images are compressed in
// bands, which refer to the rows before them except at levels 10 to 12.
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "png/cpu/adler.h"
#include "png/cpu/deflate_fast.h"
#include "png/cpu/encode_internal.h"

// In flat images of SAMPLES_FROM bytes or more SAMPLES groups of rows, together at most
// 1/SAMPLES_PART of the image and each at most SAMPLE_MOST bytes, are coded with and without
// filters.
#define SAMPLES 4
#define SAMPLES_FROM ((size_t)32 << 10)
#define SAMPLES_PART 8
#define SAMPLE_MOST ((size_t)16 << 10)

// --- filtering -----------------------------------------------------------------------------------

struct filtering {
    const struct conv_image *src;
    uint8_t *filtered;
    size_t row_bytes;
    int rows; // of each part
    bool unfiltered;
};

// Filters part `i`.
static void filter_part(struct conv_encoder *encoder, void *context, int i)
{
    const struct filtering *f = context;
    struct conv_encode_rows rows;
    conv_encode_rows_start(&rows, encoder->functions, f->src, encoder->source,
                           encoder->scratch.data);
    int from = i * f->rows, left = f->src->height - from;
    int to = from + (left < f->rows ? left : f->rows);
    uint8_t *dst = f->filtered + (size_t)from * f->row_bytes;
    if (from > 0)
        conv_encode_rows_next(&rows, from - 1); // the row above
    for (int y = from; y < to && !conv_cancel_is_asked(encoder->stop); y++) {
        conv_encode_rows_next(&rows, y);
        dst = conv_encode_rows_put(&rows, dst,
                                   f->unfiltered ? CONV_ROW_NONE : conv_encode_rows_choose(&rows));
    }
}

static bool prepare_nothing(struct conv_encoder *encoder, void *context)
{
    (void)encoder;
    (void)context;
    return true;
}

// Filters in `parts` parts. A source hands its rows to the calling thread alone.
static void filter_all(struct conv_encoder *encoder, const struct conv_encode_task *task,
                       int part_rows, bool unfiltered)
{
    struct filtering filtering = {task->src, encoder->filtered.data, task->row_bytes, part_rows,
                                  unfiltered};
    int parts = (task->src->height - 1) / part_rows + 1;
    if (encoder->source || parts == 1) {
        filtering.rows = task->src->height;
        filter_part(encoder, &filtering, 0);
    } else {
        conv_encode_each(encoder, prepare_nothing, 0, filter_part, &filtering, parts);
    }
}

// Samples, evenly spaced, of `rows` rows each; 0: none.
struct samples {
    int rows;
    size_t row_bytes;
};

static struct samples plan_samples(int height, size_t all_bytes)
{
    size_t row_bytes = all_bytes / (size_t)height, bytes = all_bytes / SAMPLES_PART / SAMPLES;
    int rows = (int)((bytes < SAMPLE_MOST ? bytes : SAMPLE_MOST) / row_bytes);
    return (struct samples){all_bytes < SAMPLES_FROM ? 0 : rows, row_bytes};
}

// The size of the compressed samples, from the filtered rows or unfiltered.
static size_t try_samples(const struct conv_encoder *encoder, struct samples samples,
                          const struct conv_image *src, uint8_t *scratch, bool unfiltered)
{
    struct conv_encode_rows rows;
    conv_encode_rows_start(&rows, encoder->functions, src, encoder->source, encoder->scratch.data);
    uint8_t *data = encoder->tried.data, *end = data;
    for (int i = 0; i < SAMPLES; i++) {
        int from = (int)((long long)(src->height - samples.rows) * (2 * i + 1) / (2 * SAMPLES));
        for (int y = from; y < from + samples.rows; y++) {
            if (unfiltered) {
                conv_encode_rows_next(&rows, y);
                conv_encode_rows_put(&rows, end, CONV_ROW_NONE);
            } else {
                memcpy(end, encoder->filtered.data + (size_t)y * samples.row_bytes,
                       samples.row_bytes);
            }
            end += samples.row_bytes;
        }
    }
    struct conv_bits out = {.at = scratch};
    const struct conv_deflate_part all = {data, 0, (size_t)(end - data), true};
    conv_deflate_search_put(encoder->search, &out, &all, encoder->stop);
    return (size_t)(out.at - scratch);
}

// Images of few colours have repetitions, which filters hide: icons are up to 16 % smaller without
// filters.
static bool is_best_unfiltered(const struct conv_encoder *encoder, struct samples samples,
                               const struct conv_image *src, uint8_t *scratch, size_t all_bytes)
{
    return samples.rows > 0 && conv_deflate_is_flat(encoder->filtered.data, all_bytes) &&
           try_samples(encoder, samples, src, scratch, true) <
               try_samples(encoder, samples, src, scratch, false);
}

// --- compression ---------------------------------------------------------------------------------

// Writes the zlib stream of the filtered rows; returns its size.
static size_t compress_all(const struct conv_encoder *encoder, uint8_t *at, size_t all_bytes,
                           size_t bound)
{
    const uint8_t *data = encoder->filtered.data;
    if (encoder->compressor)
        return libdeflate_zlib_compress(encoder->compressor, data, all_bytes, at, bound);
    struct conv_bits out = {.at = at};
    conv_bits_put(&out, CONV_ENCODE_ZLIB_DEFAULT, 16);
    conv_bits_flush(&out);
    const struct conv_deflate_part part = {data, 0, all_bytes, true};
    conv_deflate_search_put(encoder->search, &out, &part, encoder->stop);
    conv_bits_align(&out);
    conv_chunk_write_u32(out.at, conv_png_adler(1, data, all_bytes));
    return (size_t)(out.at + 4 - at);
}

static size_t bound_of(const struct conv_encoder *encoder, size_t bytes)
{
    return encoder->compressor
               ? libdeflate_zlib_compress_bound(encoder->compressor, bytes)
               : CONV_ENCODE_ZLIB_FRAME + conv_deflate_bound(bytes, CONV_DEFLATE_SEARCH_BLOCK / 2);
}

// --- bands ---------------------------------------------------------------------------------------

static size_t inflated_bytes(const struct conv_encode_bands *bands)
{
    return (size_t)bands->rows * bands->task->row_bytes + CONV_INFLATE_SLACK;
}

static bool prepare_band(struct conv_encoder *encoder, const struct conv_encode_bands *bands)
{
    if (!encoder->compressor)
        return true;
    if (!encoder->inflate)
        encoder->inflate = calloc(1, sizeof *encoder->inflate);
    return encoder->inflate && conv_buffer_reserve(&encoder->inflated, inflated_bytes(bands));
}

// libdeflate marks the last block of every stream, which must not happen in a band that others
// follow.
static void compress_band(struct conv_encoder *encoder, struct conv_bits *out,
                          const struct conv_deflate_part *part, size_t room)
{
    const uint8_t *data = part->data + part->from;
    size_t bytes = part->to - part->from;
    size_t size = libdeflate_deflate_compress(encoder->compressor, data, bytes, out->at, room);
    struct conv_inflate_end end;
    if (size > 0 && part->last) {
        out->at += size;
    } else if (size > 0 && conv_inflate_find_end(encoder->inflate, &end, encoder->inflated.data,
                                                 bytes, out->at, size)) {
        out->at[end.last_block / 8] &= (uint8_t) ~(1u << end.last_block % 8);
        out->at += end.bits / 8;
        out->count = end.bits % 8;
        out->bits = *out->at & ((1u << out->count) - 1);
    } else { // would be a fault of the inflater
        conv_deflate_store(out, data, bytes, part->last);
    }
}

static uint8_t *put_band(struct conv_encoder *encoder, const struct conv_encode_bands *bands,
                         struct conv_encode_band *band, uint8_t *at)
{
    const uint8_t *filtered = bands->context;
    size_t pitch = bands->task->row_bytes;
    const struct conv_deflate_part part = {filtered, (size_t)band->from * pitch,
                                           (size_t)band->to * pitch, band->last};
    struct conv_bits out = {.at = at + 8};
    if (band->from == 0) {
        conv_bits_put(&out, CONV_ENCODE_ZLIB_DEFAULT, 16);
        conv_bits_flush(&out);
    }
    if (encoder->compressor)
        compress_band(encoder, &out, &part, bands->room - CONV_CHUNK_FRAME);
    else
        conv_deflate_search_put(encoder->search, &out, &part, encoder->stop);
    if (band->last)
        conv_bits_align(&out);
    else
        conv_encode_end_band(&out);
    band->adler = conv_png_adler(1, filtered + part.from, part.to - part.from);
    return conv_encode_split_chunks(at, (size_t)(out.at - at - 8), encoder->max_chunk);
}

// Plans *bands and the samples.
static struct samples plan(struct conv_encode_bands *bands, const struct conv_encoder *encoder,
                           const struct conv_encode_task *task)
{
    struct samples samples = {0};
    *bands = (struct conv_encode_bands){.put = put_band, .prepare = prepare_band};
    if (encoder->search)
        samples = plan_samples(task->src->height, task->all_bytes);
    conv_encode_bands_plan(bands, encoder, task, 1);
    size_t of_band = bound_of(encoder, (size_t)bands->rows * task->row_bytes);
    bands->room = conv_encode_frames(of_band / encoder->max_chunk) + of_band;
    if (encoder->compressor)
        bands->prepared = sizeof *encoder->inflate + inflated_bytes(bands);
    return samples;
}

static size_t sample_bytes(struct samples samples)
{
    return SAMPLES * (size_t)samples.rows * samples.row_bytes;
}

// The samples are tried in the memory of the file.
static size_t room_of(const struct conv_encoder *encoder, const struct conv_encode_bands *bands,
                      struct samples samples)
{
    size_t all = bands->count > 1 ? conv_encode_bands_room(bands) : bands->room;
    size_t tried = bound_of(encoder, sample_bytes(samples));
    return all > tried ? all : tried;
}

size_t conv_encode_whole_room(const struct conv_encoder *encoder,
                              const struct conv_encode_task *task)
{
    struct conv_encode_bands bands;
    struct samples samples = plan(&bands, encoder, task);
    return room_of(encoder, &bands, samples);
}

size_t conv_encode_whole_bytes(const struct conv_encode_task *task)
{
    return task->all_bytes + sample_bytes(plan_samples(task->src->height, task->all_bytes));
}

enum conv_status conv_encode_whole(struct conv_encoder *encoder, struct conv_buffer *file,
                                   const struct conv_encode_task *task, struct conv_err *err)
{
    size_t all_bytes = task->all_bytes;
    struct conv_encode_bands bands;
    struct samples samples = plan(&bands, encoder, task);
    if (!conv_buffer_reserve(&encoder->filtered, all_bytes) ||
        !conv_buffer_reserve(&encoder->tried, sample_bytes(samples)) ||
        !conv_buffer_reserve(file, room_of(encoder, &bands, samples)))
        return conv_encode_out_of_memory(err);
    bands.context = encoder->filtered.data;
    filter_all(encoder, task, bands.rows, false);
    if (is_best_unfiltered(encoder, samples, task->src, file->data, all_bytes))
        filter_all(encoder, task, bands.rows, true);
    if (conv_cancel_is_asked(encoder->stop)) // else uninitialised rows would be compressed
        return conv_encode_cancelled(err);
    if (bands.count > 1)
        return conv_encode_bands_run(encoder, &bands, file, err);
    uint8_t *at = conv_encode_put_head(file->data, task->src);
    size_t size = compress_all(encoder, at + 8, all_bytes, bound_of(encoder, all_bytes));
    at = conv_encode_put_tail(conv_encode_split_chunks(at, size, encoder->max_chunk));
    file->size = (size_t)(at - file->data);
    return CONV_OK;
}
