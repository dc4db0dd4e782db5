// SPDX-License-Identifier: MIT
// Levels 2 to 12: all rows are filtered first, and then compressed. Large images are compressed in
// bands, which refer to the rows before them except at levels 10 to 12.
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "png/chunk.h"
#include "png/cpu/deflate.h"
#include "png/cpu/deflate_internal.h"
#include "png/cpu/encode_internal.h"

// No level may make a larger file than a lower one, by more than 1 %. Since efforts grow with the
// level, that is so where all levels filter alike or keep the smaller of the same tries.
//
// Images of few colours have repetitions, which filters hide: icons are 15 % smaller without
// filters. Images that are flat, or that compress to less than 1/REPETITIVE, are therefore
// compressed both ways. Of flat images in bands only samples are: SAMPLES groups of rows, each at
// most SAMPLE_MOST bytes, together at most 1/SAMPLES_PART of the image. Fewer or smaller groups
// chose wrong for diagrams of 6 to 40 MB, whose files were up to 34 % larger. All levels choose
// with the effort of SAMPLES_LEVEL, so that the choice is the same.
#define REPETITIVE 4
#define SAMPLES 16
#define SAMPLES_PART 2
#define SAMPLE_MOST ((size_t)128 << 10)
#define SAMPLES_LEVEL 6
// Regular patterns, such as ordered dithering and gradients, are up to 6 % smaller with the effort
// of this level than with that of the next ones, which find longer matches at more distances.
#define FALLBACK 2
#define SEARCH_MOST 9 // the effort of levels 10 to 12
// Of images without repetitions level 9 saves less than 1/SEARCH_GAINS of what FALLBACK leaves.
#define SEARCH_GAINS 16
// In files smaller than this a few matches make 1 %: all lower levels are tried. So they are in
// small ones of regular images: of two efforts, the lower one makes up to half of the file of a
// gradient.
#define TINY 4096
#define SMALL ((size_t)256 << 10)
#define REGULAR 12

// --- filtering -----------------------------------------------------------------------------------

struct filtering {
    const struct conv_image *src;
    uint8_t *filtered; // row 0, which may be before the memory if only later ones are filtered
    size_t row_bytes;
    int from, to; // rows
    int rows;     // of each part
    bool unfiltered;
};

// Filters part `i`.
static void filter_part(struct conv_encoder *encoder, void *context, int i)
{
    const struct filtering *f = context;
    struct conv_encode_rows rows;
    conv_encode_rows_start(&rows, encoder->functions, f->src, encoder->source,
                           encoder->scratch.data);
    int from = f->from + i * f->rows, left = f->to - from;
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

static bool prepare_nothing(struct conv_encoder *, void *)
{
    return true;
}

// Filters in parts. A source hands its rows to the calling thread alone.
static void filter_some(struct conv_encoder *encoder, struct filtering *filtering)
{
    int rows = filtering->to - filtering->from, parts = (rows - 1) / filtering->rows + 1;
    if (encoder->source || parts == 1) {
        filtering->rows = rows;
        filter_part(encoder, filtering, 0);
    } else {
        conv_encode_each(encoder, prepare_nothing, 0, filter_part, filtering, parts);
    }
}

static void filter_all(struct conv_encoder *encoder, const struct conv_encode_task *task,
                       int part_rows, bool unfiltered)
{
    struct filtering filtering = {.src = task->src,
                                  .filtered = encoder->filtered.data,
                                  .row_bytes = task->row_bytes,
                                  .to = task->src->height,
                                  .rows = part_rows,
                                  .unfiltered = unfiltered};
    filter_some(encoder, &filtering);
}

// Samples, evenly spaced, of `rows` rows each; 0: none.
struct samples {
    int rows;
    size_t row_bytes;
};

static struct samples plan_samples(const struct conv_encode_task *task)
{
    size_t bytes = task->all_bytes / SAMPLES_PART / SAMPLES;
    int rows = (int)((bytes < SAMPLE_MOST ? bytes : SAMPLE_MOST) / task->row_bytes);
    return (struct samples){rows, task->row_bytes};
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

// How the rows of an image in bands are filtered and searched.
struct method {
    const uint8_t *filtered;
    bool unfiltered;
    int effort; // the encoder's level or FALLBACK
};

static void choose_method(struct method *method, struct conv_encoder *encoder,
                          struct samples samples, const struct conv_image *src, uint8_t *scratch)
{
    if (samples.rows == 0)
        return;
    conv_encode_set_effort(encoder, SAMPLES_LEVEL);
    size_t unfiltered = try_samples(encoder, samples, src, scratch, true);
    method->unfiltered = unfiltered < try_samples(encoder, samples, src, scratch, false);
    conv_encode_set_effort(encoder, encoder->level);
    if (encoder->compressor || encoder->level == FALLBACK)
        return;
    size_t own = try_samples(encoder, samples, src, scratch, method->unfiltered);
    conv_encode_set_effort(encoder, FALLBACK);
    if (try_samples(encoder, samples, src, scratch, method->unfiltered) < own)
        method->effort = FALLBACK;
    conv_encode_set_effort(encoder, encoder->level);
}

// --- compression ---------------------------------------------------------------------------------

// Of the zlib stream of a writer.
static size_t bound_of(const struct conv_encoder *encoder, size_t bytes)
{
    size_t most = CONV_ENCODE_ZLIB_FRAME + conv_deflate_bound(bytes, CONV_DEFLATE_SEARCH_BLOCK / 2);
    size_t optimal =
        encoder->compressor ? libdeflate_zlib_compress_bound(encoder->compressor, bytes) : 0;
    return most > optimal ? most : optimal;
}

// Write the zlib stream of the filtered rows; return its size.
static size_t compress_searched(const struct conv_encoder *encoder, uint8_t *at, size_t all_bytes)
{
    const uint8_t *data = encoder->filtered.data;
    struct conv_bits out = {.at = at};
    conv_bits_put(&out, CONV_ENCODE_ZLIB_DEFAULT, 16);
    conv_bits_flush(&out);
    const struct conv_deflate_part part = {data, 0, all_bytes, true};
    conv_deflate_search_put(encoder->search, &out, &part, encoder->stop);
    conv_bits_align(&out);
    conv_chunk_write_u32(out.at, libdeflate_adler32(1, data, all_bytes));
    return (size_t)(out.at + 4 - at);
}

static size_t compress_optimal(const struct conv_encoder *encoder, uint8_t *at, size_t all_bytes)
{
    if (conv_cancel_is_asked(encoder->stop)) // the rows may be incomplete
        return 0;
    return libdeflate_zlib_compress(encoder->compressor, encoder->filtered.data, all_bytes, at,
                                    bound_of(encoder, all_bytes));
}

// Moves what was tried to `at` if it is smaller than the `size` bytes there.
static bool keep_smaller(const struct conv_encoder *encoder, uint8_t *at, size_t *size,
                         size_t tried)
{
    if (tried == 0 || tried >= *size)
        return false;
    memcpy(at, encoder->tried.data, tried);
    *size = tried;
    return true;
}

static bool needs_all(size_t size, size_t all_bytes)
{
    return size < TINY || (size < SMALL && size < all_bytes / REGULAR);
}

// Tries FALLBACK, or all lower levels; true if one is smaller.
static bool search_lower(struct conv_encoder *encoder, uint8_t *at, size_t *size, size_t all_bytes)
{
    bool smaller = false;
    int own = encoder->compressor ? SEARCH_MOST : encoder->level;
    int step = needs_all(*size, all_bytes) ? 1 : own;
    for (int effort = FALLBACK; effort < own; effort += step) {
        conv_encode_set_effort(encoder, effort);
        size_t tried = compress_searched(encoder, encoder->tried.data, all_bytes);
        smaller |= keep_smaller(encoder, at, size, tried);
    }
    conv_encode_set_effort(encoder, encoder->level);
    return smaller;
}

// Writes the smallest zlib stream of an image that is not in bands; returns its size.
static size_t compress_all(struct conv_encoder *encoder, const struct conv_encode_task *task,
                           uint8_t *at)
{
    size_t all_bytes = task->all_bytes, size;
    uint8_t *tried = encoder->tried.data;
    bool flat = conv_deflate_is_flat(encoder->filtered.data, all_bytes);
    if (encoder->compressor && !flat) {
        conv_encode_set_effort(encoder, FALLBACK);
        size = compress_searched(encoder, tried, all_bytes);
        conv_encode_set_effort(encoder, encoder->level);
        size_t optimal = compress_optimal(encoder, at, all_bytes);
        if (size >= all_bytes / REPETITIVE && size - size / SEARCH_GAINS >= optimal)
            return optimal;
    }
    size = compress_searched(encoder, at, all_bytes);
    if (!flat && size >= all_bytes / REPETITIVE) {
        if (encoder->compressor)
            keep_smaller(encoder, at, &size, compress_optimal(encoder, tried, all_bytes));
        return size;
    }
    bool small = needs_all(size, all_bytes);
    if (small)
        search_lower(encoder, at, &size, all_bytes);
    filter_all(encoder, task, task->src->height, true);
    bool unfiltered =
        keep_smaller(encoder, at, &size, compress_searched(encoder, tried, all_bytes));
    if (small && search_lower(encoder, at, &size, all_bytes))
        unfiltered = true;
    if (!unfiltered)
        filter_all(encoder, task, task->src->height, false);
    if (!small)
        search_lower(encoder, at, &size, all_bytes);
    if (encoder->compressor)
        keep_smaller(encoder, at, &size, compress_optimal(encoder, tried, all_bytes));
    return size;
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
    const struct method *method = bands->context;
    const uint8_t *filtered = method->filtered;
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
    else {
        conv_encode_set_effort(encoder, method->effort);
        conv_deflate_search_put(encoder->search, &out, &part, encoder->stop);
        conv_encode_set_effort(encoder, encoder->level);
    }
    if (band->last)
        conv_bits_align(&out);
    else
        conv_encode_end_band(&out);
    band->adler = libdeflate_adler32(1, filtered + part.from, part.to - part.from);
    return conv_encode_split_chunks(at, (size_t)(out.at - at - 8), encoder->max_chunk);
}

static void plan(struct conv_encode_bands *bands, const struct conv_encoder *encoder,
                 const struct conv_encode_task *task)
{
    *bands = (struct conv_encode_bands){.put = put_band, .prepare = prepare_band};
    conv_encode_bands_plan(bands, encoder, task, 1);
    size_t of_band = bound_of(encoder, (size_t)bands->rows * task->row_bytes);
    bands->room = conv_encode_frames(of_band / encoder->max_chunk) + of_band;
    if (encoder->compressor)
        bands->prepared = sizeof *encoder->inflate + inflated_bytes(bands);
}

static size_t sample_bytes(struct samples samples)
{
    return SAMPLES * (size_t)samples.rows * samples.row_bytes;
}

// The samples are tried in the memory of the file.
static size_t room_of(const struct conv_encoder *encoder, const struct conv_encode_bands *bands)
{
    if (bands->count == 1)
        return bands->room;
    size_t all = conv_encode_bands_room(bands);
    size_t tried = bound_of(encoder, sample_bytes(plan_samples(bands->task)));
    return all > tried ? all : tried;
}

static size_t rows_bytes(const struct conv_encode_task *task, int rows)
{
    size_t all_bytes = task->all_bytes;
    if (rows > 0)
        return CONV_DEFLATE_WINDOW + (size_t)rows * task->row_bytes;
    if (all_bytes < CONV_ENCODE_BANDS_FROM) // compressed twice
        return all_bytes + CONV_ENCODE_ZLIB_FRAME +
               conv_deflate_bound(all_bytes, CONV_DEFLATE_SEARCH_BLOCK / 2);
    return all_bytes + sample_bytes(plan_samples(task));
}

// Replaces the file by that of level 1 if it is smaller.
static enum conv_status try_stripes(struct conv_encoder *encoder, struct conv_buffer *file,
                                    const struct conv_encode_task *task, struct conv_err *err)
{
    struct conv_buffer other = {0};
    encoder->deflate = conv_deflate_open(encoder->features);
    enum conv_status status = encoder->deflate
                                  ? conv_encode_stripes.encode(encoder, &other, task, err)
                                  : conv_err_memory(err, "out of memory");
    if (!status && other.size < file->size) {
        memcpy(file->data, other.data, other.size);
        file->size = other.size;
    }
    conv_buffer_free(&other);
    conv_deflate_close(encoder->deflate);
    encoder->deflate = NULL;
    return status;
}

static enum conv_status encode(struct conv_encoder *encoder, struct conv_buffer *file,
                               const struct conv_encode_task *task, struct conv_err *err)
{
    size_t all_bytes = task->all_bytes;
    struct conv_encode_bands bands;
    struct samples samples = plan_samples(task);
    plan(&bands, encoder, task);
    size_t tried = bands.count > 1 ? sample_bytes(samples) : bound_of(encoder, all_bytes);
    if (!conv_buffer_reserve(&encoder->filtered, all_bytes) ||
        !conv_buffer_reserve(&encoder->tried, tried) ||
        !conv_buffer_reserve(file, room_of(encoder, &bands)))
        return conv_err_memory(err, "out of memory");
    struct method method = {encoder->filtered.data, false, encoder->level};
    bands.context = &method;
    filter_all(encoder, task, bands.rows, false);
    if (bands.count > 1 && conv_deflate_is_flat(encoder->filtered.data, all_bytes))
        choose_method(&method, encoder, samples, task->src, file->data);
    if (method.unfiltered)
        filter_all(encoder, task, bands.rows, true);
    if (conv_cancel_is_asked(encoder->stop)) // else uninitialised rows would be compressed
        return conv_err_cancelled(err);
    if (bands.count > 1)
        return conv_encode_bands_run(encoder, &bands, file, err);
    uint8_t *at = conv_encode_put_head(file->data, task->src);
    size_t size = compress_all(encoder, task, at + 8);
    at = conv_encode_put_tail(conv_encode_split_chunks(at, size, encoder->max_chunk));
    file->size = (size_t)(at - file->data);
    return size < all_bytes / REPETITIVE ? try_stripes(encoder, file, task, err) : CONV_OK;
}

// The rows that bands refer to are before the others in the same memory.
static enum conv_status encode_some(struct conv_encoder *encoder, struct conv_buffer *file,
                                    const struct conv_encode_task *task, int from, int to,
                                    struct conv_err *err)
{
    struct conv_encode_bands bands;
    size_t pitch = task->row_bytes, before = (size_t)from * pitch, window = CONV_DEFLATE_WINDOW;
    plan(&bands, encoder, task);
    window = before < window ? before : window;
    struct conv_buffer *filtered = &encoder->filtered;
    if (!conv_buffer_reserve(filtered, rows_bytes(task, to - from)))
        return conv_err_memory(err, "out of memory");
    memmove(filtered->data, filtered->data + filtered->size - window, window);
    uint8_t *first = filtered->data + window - before; // only rows from `from` on are there
    filtered->size = window + (size_t)(to - from) * pitch;
    struct filtering filtering = {task->src, first, pitch, from, to, bands.rows, false};
    filter_some(encoder, &filtering);
    if (conv_cancel_is_asked(encoder->stop)) // else uninitialised rows would be compressed
        return conv_err_cancelled(err);
    struct method method = {first, false, encoder->level};
    bands.context = &method;
    return conv_encode_bands_run_some(encoder, &bands, file, from, to, err);
}

const struct conv_encode_way conv_encode_whole = {
    .plan = plan,
    .room = room_of,
    .encode = encode,
    .some = encode_some,
    .filtered_bytes = rows_bytes,
};
