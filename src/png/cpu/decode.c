// SPDX-License-Identifier: MIT
// Chunks, inflate, unfilter, split. Every irregularity ends the attempt: libpng alone decides about
// irregular files.
#include "png/cpu/cpu_png.h"

#include <string.h>

#include "base/features.h"
#include "base/parallel.h"
#include "image/interleave.h"
#include "png/chunk.h"
#include "png/cpu/decode_internal.h"
#include "png/cpu/unfilter.h"

#define MOST_WAVE_ROW ((size_t)128 << 10) // bytes of rows of which many are in memory

// --- rows that need more than a split: packed bits, palettes, transparent colours ----------------

struct expansion {
    uint8_t palette[CONV_IMAGE_MAX_CHANNELS][256]; // R, G, B, alpha; opaque black beyond its end
    uint16_t key[3];                               // the transparent gray or R, G, B
};

// Prepares for an image with this data of PLTE and tRNS, whose sizes are valid; NULL if absent.
static void prepare_expansion(struct expansion *expansion, const struct conv_image_header *header,
                              const uint8_t *plte, size_t plte_size, const uint8_t *trns,
                              size_t trns_size)
{
    if (header->png.color_type == CONV_COLOR_PALETTE) {
        memset(expansion->palette, 0, 3 * sizeof expansion->palette[0]);
        for (size_t i = 0; i < plte_size / 3; i++) {
            for (size_t c = 0; c < 3; c++)
                expansion->palette[c][i] = plte[3 * i + c];
        }
        memset(expansion->palette[3], 255, sizeof expansion->palette[3]);
        if (trns)
            memcpy(expansion->palette[3], trns, trns_size);
    } else if (trns) {
        // Only the bits of a sample count.
        unsigned mask = (1u << header->png.bit_depth) - 1;
        for (size_t c = 0; c < trns_size / 2; c++)
            expansion->key[c] = (uint16_t)((trns[2 * c] << 8 | trns[2 * c + 1]) & (int)mask);
    }
}

static bool needs_expansion(const struct conv_image_header *header)
{
    return header->png.color_type == CONV_COLOR_PALETTE || header->png.bit_depth < 8 ||
           header->png.transparency;
}

// Spreads the samples of a byte, of 1, 2 or 4 bits each, to bytes; the first sample is in the
// lowest byte.
static inline uint64_t spread(unsigned byte, int depth)
{
    if (depth == 4)
        return byte >> 4 | (byte & 15) << 8;
    if (depth == 2)
        return byte >> 6 | (byte >> 4 & 3) << 8 | (byte >> 2 & 3) << 16 | (byte & 3) << 24;
    // One bit in each byte of a word, moved to the lowest place; no sum exceeds a byte.
    uint64_t bits = (uint64_t)byte * 0x0101010101010101 & 0x0102040810204080;
    return (bits + 0x7f7f7f7f7f7f7f7f) >> 7 & 0x0101010101010101;
}

static inline void unpack_as(uint8_t *restrict out, const uint8_t *restrict row, size_t width,
                             int depth, unsigned scale)
{
    size_t each = 8 / (unsigned)depth;
    for (; width >= each; width -= each, out += each, row++) {
        uint64_t samples = spread(*row, depth) * scale;
        memcpy(out, &samples, each);
    }
    for (size_t x = 0; x < width; x++)
        out[x] = (uint8_t)(spread(*row, depth) * scale >> 8 * x);
}

// Samples of 1, 2 or 4 bits, the first in the highest bits, times `scale`.
static void unpack(uint8_t *out, const uint8_t *row, size_t width, int depth, unsigned scale)
{
    if (depth == 4)
        unpack_as(out, row, width, 4, scale);
    else if (depth == 2)
        unpack_as(out, row, width, 2, scale);
    else
        unpack_as(out, row, width, 1, scale);
}

// out[x] = table[from[x]]; `from` may be `out`. By words: fewer loads and stores.
static void map_bytes(uint8_t *out, const uint8_t *from, size_t width, const uint8_t *table)
{
    size_t x = 0;
    for (; x + 8 <= width; x += 8) {
        uint64_t word, mapped = 0;
        memcpy(&word, from + x, sizeof word);
        for (int i = 0; i < 64; i += 8)
            mapped |= (uint64_t)table[word >> i & 0xff] << i;
        memcpy(out + x, &mapped, sizeof mapped);
    }
    for (; x < width; x++)
        out[x] = table[from[x]];
}

static void look_up(const struct expansion *expansion, const struct conv_image *dst, int y,
                    const uint8_t *row, int depth)
{
    size_t width = (size_t)dst->width;
    // The last plane holds the indices until its own samples replace them.
    uint8_t *indices = conv_image_row(dst, dst->channels - 1, y);
    if (depth < 8)
        unpack(indices, row, width, depth, 1);
    const uint8_t *from = depth < 8 ? indices : row;
    for (int c = 0; c < dst->channels; c++)
        map_bytes(conv_image_row(dst, c, y), from, width, expansion->palette[c]);
}

// Sets alpha to 0 where all samples equal the key, else to opaque.
static void key_out8(uint8_t *restrict alpha, const struct conv_image *dst, int y,
                     const uint16_t *key)
{
    size_t width = (size_t)dst->width;
    const uint8_t *a = conv_image_row(dst, 0, y), *b = a, *c = a;
    uint8_t ka = (uint8_t)key[0], kb = ka, kc = ka;
    if (dst->channels == 4) {
        b = conv_image_row(dst, 1, y), c = conv_image_row(dst, 2, y);
        kb = (uint8_t)key[1], kc = (uint8_t)key[2];
    }
    for (size_t x = 0; x < width; x++)
        alpha[x] = (uint8_t) - (((a[x] ^ ka) | (b[x] ^ kb) | (c[x] ^ kc)) != 0);
}

static void key_out16(uint16_t *restrict alpha, const struct conv_image *dst, int y,
                      const uint16_t *key)
{
    size_t width = (size_t)dst->width;
    const uint16_t *a = (const uint16_t *)(const void *)conv_image_row(dst, 0, y), *b = a, *c = a;
    uint16_t ka = key[0], kb = ka, kc = ka;
    if (dst->channels == 4) {
        b = (const uint16_t *)(const void *)conv_image_row(dst, 1, y);
        c = (const uint16_t *)(const void *)conv_image_row(dst, 2, y);
        kb = key[1], kc = key[2];
    }
    for (size_t x = 0; x < width; x++)
        alpha[x] = (uint16_t) - (((a[x] ^ ka) | (b[x] ^ kb) | (c[x] ^ kc)) != 0);
}

// Fills row y of the planes from an unfiltered row of the file. `split` is conv_unfilter.split, and
// `row` has its slack.
static void expand_row(const struct expansion *expansion, const struct conv_image_header *header,
                       const struct conv_image *dst, int y, const uint8_t *row,
                       void (*split)(const struct conv_image *dst, int y, const uint8_t *row))
{
    if (header->png.color_type == CONV_COLOR_PALETTE) {
        look_up(expansion, dst, y, row, header->png.bit_depth);
        return;
    }
    uint16_t key[3];
    memcpy(key, expansion->key, sizeof key);
    if (header->png.bit_depth < 8) {
        // 1, 3 or 15 becomes 255.
        unsigned scale = 255u / ((1u << header->png.bit_depth) - 1);
        unpack(conv_image_row(dst, 0, y), row, (size_t)dst->width, header->png.bit_depth, scale);
        key[0] = (uint16_t)(key[0] * scale);
    } else {
        struct conv_image color = *dst;
        color.channels -= header->png.transparency;
        color.alpha = false;
        split(&color, y, row);
    }
    if (!header->png.transparency)
        return;
    uint8_t *alpha = conv_image_row(dst, dst->channels - 1, y);
    if (dst->depth == 8)
        key_out8(alpha, dst, y, key);
    else
        key_out16((uint16_t *)(void *)alpha, dst, y, key);
}

// --- layout --------------------------------------------------------------------------------------

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

// The threads that may unfilter rows: several if these are long, but not too long for memory.
static int threads_of(const struct layout *layout, const struct conv_image_header *header)
{
    return layout->row <= MOST_WAVE_ROW &&
                   conv_decode_stream_is_shared(layout->row + 1, (size_t)header->shape.height)
               ? conv_unfilter_wave_threads(layout->row)
               : 1;
}

static bool reserve(struct conv_decoder *decoder, const struct layout *layout,
                    const struct conv_image_header *header, size_t compressed, int threads)
{
    size_t expanded = decoder->put_rows ? expanded_bytes(header) : 0;
    return layout->raw / CONV_CHUNK_MAX_EXPANSION <= compressed &&
           layout->raw <= SIZE_MAX - CONV_INFLATE_SLACK &&
           conv_buffer_reserve(&decoder->rows,
                               conv_unfilter_wave_bytes(layout->row, threads) + expanded);
}

// --- rows ----------------------------------------------------------------------------------------

// The rows made so far.
struct making {
    const struct conv_decoder *decoder;
    const struct expansion *expand; // NULL: rows are as planes need them
    const struct conv_image_header *header;
    const struct conv_image *dst;
    uint8_t *expanded;
    struct conv_unfilter_wave wave;
};

// Hands row y on as planes of one row, or as it is.
static void put_row(const struct making *making, int y, const uint8_t *plain)
{
    const struct conv_rows *rows = making->decoder->put_rows;
    const struct conv_unfilter *unfilter = making->decoder->unfilter;
    if (!making->expand && rows->put_interleaved) {
        rows->put_interleaved(rows->context, y, plain);
        return;
    }
    struct conv_image row = making->header->shape;
    row.height = 1;
    for (int c = 0; c < row.channels; c++)
        row.plane[c].data = making->expanded + (size_t)c * conv_image_stride(row.width, row.depth);
    if (making->expand)
        expand_row(making->expand, making->header, &row, 0, plain, unfilter->split);
    else
        unfilter->split(&row, 0, plain);
    rows->put(rows->context, y, &row);
}

// Splits a row while it is in the first-level cache.
static void make_row(struct making *making, unsigned y)
{
    const uint8_t *plain = conv_unfilter_wave_row(&making->wave, y);
    const struct conv_unfilter *unfilter = making->decoder->unfilter;
    if (making->decoder->put_rows)
        put_row(making, (int)y, plain);
    else if (making->expand)
        expand_row(making->expand, making->header, making->dst, (int)y, plain, unfilter->split);
    else
        unfilter->split(making->dst, (int)y, plain);
    conv_unfilter_wave_end(&making->wave, y);
}

static bool take_rows(void *context, unsigned y, uint8_t *raw, size_t count)
{
    struct making *making = context;
    while (count > 0) {
        unsigned done = 0;
        if (!conv_cancel_is_asked(making->decoder->stop))
            done = conv_unfilter_wave_next(&making->wave, y, raw, count);
        if (done == 0) {
            conv_unfilter_wave_fail(&making->wave);
            return false;
        }
        count -= done;
        raw += done * (making->wave.size + 1);
        for (; done > 0; done--)
            make_row(making, y++);
    }
    return true;
}

// --- decoding ------------------------------------------------------------------------------------

bool conv_decode_fast(struct conv_decoder *decoder, const uint8_t *data, size_t size,
                      const struct conv_image_header *header, const struct conv_image *dst)
{
    struct conv_decode_content content;
    struct layout layout;
    struct expansion expand;
    decoder->inflate.ended_early = false;
    decoder->bad_filter = false;
    if (!decoder->unfilter)
        decoder->unfilter = conv_unfilter_choose(conv_cpu_features());
    // Rows that go elsewhere go there on this thread, and the memory does not grow with the file.
    struct conv_parallel *parallel = decoder->put_rows ? NULL : decoder->parallel;
    struct conv_buffer *joined = decoder->put_rows ? NULL : &decoder->idat;
    if (header->png.interlaced || !lay_out(&layout, header))
        return false;
    int threads = conv_decode_stream_threads(parallel) > 1 ? threads_of(&layout, header) : 1;
    if (!conv_decode_content_find(&content, joined, header, data, size, parallel) ||
        !reserve(decoder, &layout, header, content.idat.size, threads))
        return false;
    bool expands = needs_expansion(header);
    if (expands)
        prepare_expansion(&expand, header, content.plte.data, content.plte.size, content.trns.data,
                          content.trns.size);
    struct making making;
    making.decoder = decoder;
    making.expand = expands ? &expand : NULL;
    making.header = header;
    making.dst = dst;
    making.expanded = decoder->rows.data + conv_unfilter_wave_bytes(layout.row, threads);
    conv_unfilter_wave_start(&making.wave, decoder->unfilter, layout.row, layout.pixel, threads,
                             decoder->rows.data);
    const struct conv_decode_stream stream = {.inflate = &decoder->inflate,
                                              .memory = &decoder->raw,
                                              .data = content.idat.data,
                                              .size = content.idat.size,
                                              .pieces = content.in_pieces ? &decoder->idat : NULL,
                                              .pitch = layout.row + 1,
                                              .rows = (size_t)header->shape.height,
                                              .take = take_rows,
                                              .row_threads = threads,
                                              .context = &making};
    bool good = conv_decode_stream_run(&stream, parallel);
    decoder->bad_filter = atomic_load_explicit(&making.wave.bad_filter, memory_order_relaxed);
    return good;
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
    int threads = threads_of(&layout, header);
    bytes = conv_decode_stream_bytes(layout.row + 1, (size_t)header->shape.height, threads);
    if (__builtin_add_overflow(bytes, size, &bytes) ||
        __builtin_add_overflow(bytes, conv_unfilter_wave_bytes(layout.row, threads), &bytes))
        return SIZE_MAX;
    return bytes;
}

size_t conv_decode_rows_most(const struct conv_image_header *header)
{
    struct layout layout;
    if (!lay_out(&layout, header))
        return SIZE_MAX;
    size_t fast = conv_decode_stream_bytes(layout.row + 1, (size_t)header->shape.height, 1) +
                  conv_unfilter_wave_bytes(layout.row, 1) + expanded_bytes(header);
    return fast + CONV_DECODE_PIECE + 3 * expanded_bytes(header); // libpng has rows of its own
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
