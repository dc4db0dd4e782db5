// SPDX-License-Identifier: MIT
// Chunks, inflate, unfilter, split. Every irregularity ends the attempt: libpng alone decides about
// irregular files.
#include "png/cpu/cpu_png.h"

#include <string.h>

#include "base/features.h"
#include "base/parallel.h"
#include "png/chunk.h"
#include "png/cpu/decode_internal.h"
#include "png/cpu/interleave.h"
#include "png/cpu/unfilter.h"

#define KEPT_ROWS 3                       // plain rows in memory: one, and two below it
#define MOST_WAVE_ROW ((size_t)128 << 10) // bytes of rows of which several are in memory

struct layout {
    size_t row; // bytes of a plain row
    size_t raw; // bytes of all rows, each with its filter byte
    int pixel;  // bytes of a pixel as the filters count them
};

static bool lay_out(struct layout *layout, const struct conv_image_header *header)
{
    size_t bits =
        (size_t)conv_chunk_channels(header->png.color_type) * (size_t)header->png.bit_depth;
    layout->row = ((size_t)header->shape.width * bits + 7) / 8;
    layout->pixel = bits < 8 ? 1 : (int)(bits / 8);
    return !__builtin_mul_overflow(layout->row + 1, (size_t)header->shape.height, &layout->raw);
}

// Bytes of one expanded row, plane by plane; at most 16 times a plain row and some padding.
static size_t expanded_bytes(const struct conv_image_header *header)
{
    return conv_image_stride(header->shape.width, header->shape.depth) *
           (size_t)header->shape.channels;
}

// True if several threads may unfilter rows: they are long, but not too long for memory.
static bool has_wave(const struct layout *layout, const struct conv_image_header *header)
{
    return layout->row <= MOST_WAVE_ROW && conv_unfilter_wave_threads(layout->row) > 1 &&
           conv_decode_stream_is_shared(layout->row + 1, (size_t)header->shape.height);
}

// Bytes of the plain rows that are in memory.
static size_t plain_bytes(const struct layout *layout, bool wave)
{
    return wave ? conv_unfilter_wave_bytes(layout->row)
                : KEPT_ROWS * (layout->row + CONV_UNFILTER_SLACK + 16);
}

static bool reserve(struct conv_decoder *decoder, const struct layout *layout,
                    const struct conv_image_header *header, size_t compressed, bool wave)
{
    size_t expanded = decoder->put_rows ? expanded_bytes(header) : 0;
    return layout->raw / CONV_CHUNK_MAX_EXPANSION <= compressed &&
           layout->raw <= SIZE_MAX - CONV_INFLATE_SLACK &&
           conv_buffer_reserve(&decoder->rows, plain_bytes(layout, wave) + expanded);
}

// Hands row y on as planes of one row, or as it is.
static void put_row(const struct conv_decoder *decoder, const struct conv_expand *expand,
                    const struct conv_image_header *header, uint8_t *expanded, int y,
                    const uint8_t *plain)
{
    const struct conv_rows *rows = decoder->put_rows;
    if (!expand) {
        rows->put_interleaved(rows->context, y, plain);
        return;
    }
    struct conv_image row = header->shape;
    row.height = 1;
    for (int c = 0; c < row.channels; c++)
        row.plane[c].data = expanded + (size_t)c * conv_image_stride(row.width, row.depth);
    conv_expand_row(expand, header, &row, 0, plain, decoder->unfilter->split);
    rows->put(rows->context, y, &row);
}

// The rows made so far.
struct making {
    struct conv_decoder *decoder;
    const struct layout *layout;
    const struct conv_expand *expand; // NULL: rows are as planes need them
    const struct conv_image_header *header;
    const struct conv_image *dst;
    uint8_t *row[KEPT_ROWS]; // row y is in row[y % KEPT_ROWS]
    const uint8_t *above;
    uint8_t *expanded;
    int y; // the next one
};

static void start_rows(struct making *making)
{
    uint8_t *rows = making->decoder->rows.data;
    size_t pitch = conv_image_align(making->layout->row + CONV_UNFILTER_SLACK, 16);
    for (int i = 0; i < KEPT_ROWS; i++)
        making->row[i] = rows + (size_t)i * pitch;
    making->above = memset(making->row[KEPT_ROWS - 1], 0, pitch); // above the first row
    making->expanded = rows + KEPT_ROWS * pitch;
}

// Unfilters one or two of the next rows. Returns how many; 0: the first has a filter that does not
// exist.
static size_t unfilter_next(struct making *making, const uint8_t *raw, size_t count)
{
    const struct conv_unfilter *unfilter = making->decoder->unfilter;
    size_t size = making->layout->row, y = (size_t)making->y;
    int pixel = making->layout->pixel;
    uint8_t *const dst[2] = {making->row[y % KEPT_ROWS], making->row[(y + 1) % KEPT_ROWS]};
    const uint8_t *const src[2] = {raw + 1, raw + size + 2};
    conv_unfilter_pair_fn pair = NULL;
    if (count > 1)
        pair = conv_unfilter_find_pair(unfilter, pixel, raw, raw + size + 1, size);
    if (pair)
        pair(dst, src, making->above, size);
    else if (raw[0] < CONV_UNFILTER_COUNT)
        unfilter->reverse[conv_unfilter_index(pixel)][raw[0]](dst[0], src[0], making->above, size);
    else
        return 0;
    return pair ? 2 : 1;
}

// Unfilters rows and splits each while it is in the first-level cache.
static bool make_rows(void *context, const uint8_t *raw, size_t count)
{
    struct making *making = context;
    struct conv_decoder *decoder = making->decoder;
    const struct conv_unfilter *unfilter = decoder->unfilter;
    while (count > 0) {
        if (conv_cancel_is_asked(decoder->stop))
            return false;
        size_t done = unfilter_next(making, raw, count);
        decoder->bad_filter = done == 0;
        if (done == 0)
            return false;
        count -= done;
        raw += done * (making->layout->row + 1);
        for (; done > 0; done--) {
            int y = making->y++;
            uint8_t *plain = making->row[y % KEPT_ROWS];
            if (decoder->put_rows)
                put_row(decoder, making->expand, making->header, making->expanded, y, plain);
            else if (making->expand)
                conv_expand_row(making->expand, making->header, making->dst, y, plain,
                                unfilter->split);
            else
                unfilter->split(making->dst, y, plain);
            making->above = plain;
        }
    }
    return true;
}

struct waving {
    struct conv_unfilter_wave wave;
    const struct making *making;
};

// Splits row y, which is unfiltered.
static void make_row(struct waving *waving, unsigned y, const uint8_t *plain)
{
    const struct making *making = waving->making;
    const struct conv_unfilter *unfilter = making->decoder->unfilter;
    if (making->expand)
        conv_expand_row(making->expand, making->header, making->dst, (int)y, plain,
                        unfilter->split);
    else
        unfilter->split(making->dst, (int)y, plain);
    conv_unfilter_wave_end(&waving->wave, y);
}

static bool make_one(struct waving *waving, unsigned y, uint8_t *raw)
{
    const uint8_t *plain = NULL;
    if (!conv_cancel_is_asked(waving->making->decoder->stop))
        plain = conv_unfilter_wave_row(&waving->wave, y, raw);
    if (plain)
        make_row(waving, y, plain);
    else
        conv_unfilter_wave_fail(&waving->wave);
    return plain;
}

// One or two rows; several threads.
static bool take_row(void *context, unsigned y, uint8_t *raw, bool both)
{
    struct waving *waving = context;
    const struct making *making = waving->making;
    uint8_t *next = raw + making->layout->row + 1;
    conv_unfilter_pair_fn pair = NULL;
    if (both)
        pair = conv_unfilter_find_pair(making->decoder->unfilter, making->layout->pixel, raw, next,
                                       making->layout->row);
    if (!pair)
        return make_one(waving, y, raw) && (!both || make_one(waving, y + 1, next));
    const uint8_t *plain[2];
    if (conv_cancel_is_asked(making->decoder->stop) ||
        !conv_unfilter_wave_pair(&waving->wave, y, raw, pair, plain)) {
        conv_unfilter_wave_fail(&waving->wave);
        return false;
    }
    make_row(waving, y, plain[0]);
    make_row(waving, y + 1, plain[1]);
    return true;
}

bool conv_decode_fast(struct conv_decoder *decoder, const uint8_t *data, size_t size,
                      const struct conv_image_header *header, const struct conv_image *dst)
{
    struct conv_decode_content content;
    struct layout layout;
    struct conv_expand expand;
    decoder->inflate.ended_early = false;
    decoder->bad_filter = false;
    if (!decoder->unfilter)
        decoder->unfilter = conv_unfilter_choose(conv_cpu_features());
    // Rows that go elsewhere go there on this thread.
    struct conv_parallel *parallel = decoder->put_rows ? NULL : decoder->parallel;
    if (header->png.interlaced || !lay_out(&layout, header))
        return false;
    bool waves = conv_decode_stream_threads(parallel) > 1 && has_wave(&layout, header);
    if (!conv_decode_content_find(&content, &decoder->idat, header, data, size, parallel) ||
        !reserve(decoder, &layout, header, content.idat.size, waves))
        return false;
    bool expands = conv_expand_needed(header);
    if (expands)
        conv_expand_prepare(&expand, header, content.plte.data, content.plte.size,
                            content.trns.data, content.trns.size);
    struct making making = {.decoder = decoder,
                            .layout = &layout,
                            .expand = expands ? &expand : NULL,
                            .header = header,
                            .dst = dst};
    struct waving waving = {.making = &making};
    if (waves)
        conv_unfilter_wave_start(&waving.wave, decoder->unfilter, layout.row, layout.pixel,
                                 decoder->rows.data);
    else
        start_rows(&making);
    const struct conv_decode_stream stream = {.inflate = &decoder->inflate,
                                              .memory = &decoder->raw,
                                              .data = content.idat.data,
                                              .size = content.idat.size,
                                              .pitch = layout.row + 1,
                                              .rows = (size_t)header->shape.height,
                                              .take = make_rows,
                                              .take_row = waves ? take_row : NULL,
                                              .row_threads = conv_unfilter_wave_threads(layout.row),
                                              .context = waves ? (void *)&waving : &making};
    return conv_decode_stream_run(&stream, parallel);
}

size_t conv_decode_bytes(const struct conv_image_header *header, size_t size)
{
    struct layout layout;
    size_t bytes = conv_interleave_bytes(&header->shape);
    if (header->png.interlaced) // libpng needs all rows at once, and two of its own
        return __builtin_mul_overflow(bytes, (size_t)header->shape.height + 2, &bytes) ? SIZE_MAX
                                                                                       : bytes;
    if (!lay_out(&layout, header))
        return SIZE_MAX;
    bool waves = has_wave(&layout, header);
    bytes = conv_decode_stream_bytes(layout.row + 1, (size_t)header->shape.height, waves);
    if (__builtin_add_overflow(bytes, size, &bytes) ||
        __builtin_add_overflow(bytes, plain_bytes(&layout, waves), &bytes))
        return SIZE_MAX;
    return bytes;
}

bool conv_decode_copy_stream(uint8_t *stream, size_t *stream_size, const uint8_t *data, size_t size,
                             const struct conv_image_header *header)
{
    struct conv_buffer room = {.data = stream, .capacity = size}; // never grows
    struct layout layout;
    if (!lay_out(&layout, header) || !conv_decode_content_copy(&room, header, data, size) ||
        layout.raw / CONV_CHUNK_MAX_EXPANSION > room.size)
        return false;
    *stream_size = room.size;
    return true;
}

void conv_decoder_trim(struct conv_decoder *decoder, size_t keep)
{
    conv_buffer_trim(&decoder->idat, keep);
    conv_buffer_trim(&decoder->raw, keep);
    conv_buffer_trim(&decoder->rows, keep);
}

void conv_decoder_free(struct conv_decoder *decoder)
{
    conv_buffer_free(&decoder->idat);
    conv_buffer_free(&decoder->raw);
    conv_buffer_free(&decoder->rows);
}
