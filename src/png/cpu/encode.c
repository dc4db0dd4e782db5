// SPDX-License-Identifier: MIT
// Planes to a PNG file. At the fast levels rows are filtered into a stripe, which is compressed and
// summed up (Adler-32, CRC-32) while it is in the cache.
#include "png/cpu/encode.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "png/chunk.h"
#include "png/cpu/deflate_fast.h"
#include "png/cpu/deflate_search.h"
#include "png/cpu/encode_rows.h"

// Filtered bytes per stripe: enough to pay for a code of its own, and within the second-level
// cache.
#define STRIPE ((size_t)128 << 10)
// At level 1 the first of this many rows that is unlike the row above chooses the filter for all of
// them.
#define ROWS_PER_CHOICE 4

#define ZLIB_FRAME 6 // two bytes before the data, Adler-32 after it

struct conv_encoder {
    int level;
    size_t max_chunk;
    const atomic_int *stop; // may be NULL
    const struct conv_filter_rows *functions;
    struct conv_deflate *deflate;             // up to level 1
    struct conv_deflate_search *search;       // levels 2 to 9
    struct libdeflate_compressor *compressor; // levels 10 to 12
    struct conv_buffer scratch;               // conv_encode_rows_scratch
    struct conv_buffer filtered;              // a stripe, or all rows from level 2 on
    struct conv_buffer bands;                 // levels 2 to 9: rows that are tried
    const struct conv_png_row_source *source; // of the current image; NULL: its planes
};

// Arguments of conv_deflate_search_open for each level.
#define LAST_SEARCH_LEVEL 9
static const struct {
    int candidates, skip_shift;
} search_effort[LAST_SEARCH_LEVEL + 1] = {
    [2] = {1, 5}, [3] = {2, 6}, [4] = {1, 7},   [5] = {2, 7},
    [6] = {4, 8}, [7] = {8, 9}, [8] = {16, 10}, [9] = {64, 12},
};

// --- chunks -------------------------------------------------------------------------------------

// Writes length and CRC of the chunk whose type is at `type` and whose data ends at `end`; returns
// the end of the chunk.
static uint8_t *close_chunk(uint8_t *type, uint8_t *end)
{
    conv_chunk_write_u32(type - 4, (uint32_t)(end - type - 4));
    conv_chunk_write_u32(end, libdeflate_crc32(0, type, (size_t)(end - type)));
    return end + 4;
}

uint8_t *conv_encode_put_head(uint8_t *at, const struct conv_image *shape)
{
    static const uint8_t start[] = {137, 'P', 'N', 'G', 13,  10,  26,  10,
                                    0,   0,   0,   13,  'I', 'H', 'D', 'R'};
    static const uint8_t color_type[CONV_IMAGE_MAX_CHANNELS + 1] = {0, 0, 4, 2, 6};
    memcpy(at, start, sizeof start);
    conv_chunk_write_u32(at + 16, (uint32_t)shape->width);
    conv_chunk_write_u32(at + 20, (uint32_t)shape->height);
    at[24] = (uint8_t)shape->depth;
    at[25] = color_type[shape->channels];
    memset(at + 26, 0, 3);
    return close_chunk(at + 12, at + 29);
}

const uint8_t conv_encode_tail[CONV_ENCODE_TAIL] = {0,   0,   0,    0,    'I',  'E',
                                                    'N', 'D', 0xae, 0x42, 0x60, 0x82};

static uint8_t *put_tail(uint8_t *at)
{
    return (uint8_t *)memcpy(at, conv_encode_tail, CONV_ENCODE_TAIL) + CONV_ENCODE_TAIL;
}

// A growing IDAT, whose CRC is updated while its data is in the cache.
struct idat {
    uint8_t *type;   // address of "IDAT"
    uint8_t *summed; // `crc` covers the bytes before it
    uint32_t crc;
};

static uint8_t *open_idat(struct idat *idat, uint8_t *at)
{
    memcpy(at + 4, "IDAT", 4);
    *idat = (struct idat){.type = at + 4, .summed = at + 4};
    return at + 8;
}

static void sum_idat(struct idat *idat, uint8_t *end)
{
    idat->crc = libdeflate_crc32(idat->crc, idat->summed, (size_t)(end - idat->summed));
    idat->summed = end;
}

static uint8_t *close_idat(struct idat *idat, uint8_t *end)
{
    sum_idat(idat, end);
    conv_chunk_write_u32(idat->type - 4, (uint32_t)(end - idat->type - 4));
    conv_chunk_write_u32(end, idat->crc);
    return end + 4;
}

// --- levels 0 and 1: stripe by stripe -----------------------------------------------------------

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

static size_t fill_stripe(const struct conv_encoder *encoder, struct conv_encode_rows *rows, int y,
                          int count)
{
    uint8_t *dst = encoder->filtered.data;
    enum conv_row_filter filter = CONV_ROW_NONE;
    bool chosen = false;
    for (int i = 0; i < count; i++) {
        conv_encode_rows_next(rows, y + i);
        chosen = chosen && i % ROWS_PER_CHOICE > 0;
        if (encoder->level > 0 && conv_encode_rows_is_repeated(rows)) {
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

static uint8_t *put_stripes(const struct conv_encoder *encoder, struct stripe stripe,
                            const struct conv_image *src, uint8_t *at)
{
    struct conv_encode_rows rows;
    conv_encode_rows_start(&rows, encoder->functions, src, encoder->source, encoder->scratch.data);
    struct idat idat;
    struct conv_bits out = {.at = open_idat(&idat, at)};
    conv_bits_put(&out, 0x0178, 16); // deflate, a window of 32 KiB, fastest
    conv_bits_flush(&out);
    uint32_t adler = 1;
    for (int y = 0; y < src->height; y += stripe.rows) {
        if (conv_cancel_is_asked(encoder->stop))
            break;
        int count = stripe.rows < src->height - y ? stripe.rows : src->height - y;
        size_t size = fill_stripe(encoder, &rows, y, count);
        adler = libdeflate_adler32(adler, encoder->filtered.data, size);
        put_stripe(encoder, &out, size, (size_t)rows.planes, y + count == src->height);
        sum_idat(&idat, out.at);
        if ((size_t)(out.at - idat.type) >= encoder->max_chunk)
            out.at = open_idat(&idat, close_idat(&idat, out.at));
    }
    conv_bits_align(&out);
    conv_chunk_write_u32(out.at, adler);
    return close_idat(&idat, out.at + 4);
}

static enum conv_status out_of_memory(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_MEMORY, "out of memory");
}

static enum conv_status cancelled(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
}

// All bytes around the deflate stream: at most one IDAT ends per stripe.
static size_t frames(size_t stripes)
{
    return CONV_ENCODE_HEAD + ZLIB_FRAME + CONV_CHUNK_FRAME * (stripes + 2) + CONV_BITS_SLACK;
}

static enum conv_status encode_stripes(struct conv_encoder *encoder, struct conv_buffer *file,
                                       const struct conv_image *src, size_t row_bytes,
                                       size_t all_bytes, struct conv_err *err)
{
    struct stripe stripe = plan_stripes(row_bytes, src->height);
    size_t stripe_bytes = (size_t)stripe.rows * row_bytes;
    size_t stripes = (size_t)src->height / (size_t)stripe.rows + 1;
    size_t block = stripe_bytes < CONV_DEFLATE_BLOCK / 2 ? stripe_bytes : CONV_DEFLATE_BLOCK / 2;
    if (all_bytes > SIZE_MAX / 4 || !conv_buffer_reserve(&encoder->filtered, stripe_bytes) ||
        !conv_buffer_reserve(file, frames(stripes) + conv_deflate_bound(all_bytes, block)))
        return out_of_memory(err);
    uint8_t *at = conv_encode_put_head(file->data, src);
    at = put_tail(put_stripes(encoder, stripe, src, at));
    file->size = (size_t)(at - file->data);
    return CONV_OK;
}

// --- levels 2 to 12: all rows at once -----------------------------------------------------------

// In flat images of BANDS_FROM bytes or more BANDS bands of rows, together at most 1/BANDS_PART of
// the image and each at most BAND_MOST bytes, are coded with and without filters.
#define BANDS 4
#define BANDS_FROM ((size_t)32 << 10)
#define BANDS_PART 8
#define BAND_MOST ((size_t)16 << 10)

static void filter_all(const struct conv_encoder *encoder, const struct conv_image *src,
                       bool unfiltered)
{
    struct conv_encode_rows rows;
    conv_encode_rows_start(&rows, encoder->functions, src, encoder->source, encoder->scratch.data);
    uint8_t *dst = encoder->filtered.data;
    for (int y = 0; y < src->height && !conv_cancel_is_asked(encoder->stop); y++) {
        conv_encode_rows_next(&rows, y);
        dst = conv_encode_rows_put(&rows, dst,
                                   unfiltered ? CONV_ROW_NONE : conv_encode_rows_choose(&rows));
    }
}

// Bands of rows, evenly spaced, of `rows` rows each; 0: none.
struct bands {
    int rows;
    size_t row_bytes;
};

static struct bands plan_bands(int height, size_t all_bytes)
{
    size_t row_bytes = all_bytes / (size_t)height, bytes = all_bytes / BANDS_PART / BANDS;
    int rows = (int)((bytes < BAND_MOST ? bytes : BAND_MOST) / row_bytes);
    return (struct bands){all_bytes < BANDS_FROM ? 0 : rows, row_bytes};
}

// The size of the compressed bands, from the filtered rows or unfiltered.
static size_t try_bands(const struct conv_encoder *encoder, struct bands bands,
                        const struct conv_image *src, uint8_t *scratch, bool unfiltered)
{
    struct conv_encode_rows rows;
    conv_encode_rows_start(&rows, encoder->functions, src, encoder->source, encoder->scratch.data);
    uint8_t *data = encoder->bands.data, *end = data;
    for (int i = 0; i < BANDS; i++) {
        int from = (int)((long long)(src->height - bands.rows) * (2 * i + 1) / (2 * BANDS));
        for (int y = from; y < from + bands.rows; y++) {
            if (unfiltered) {
                conv_encode_rows_next(&rows, y);
                conv_encode_rows_put(&rows, end, CONV_ROW_NONE);
            } else {
                memcpy(end, encoder->filtered.data + (size_t)y * bands.row_bytes, bands.row_bytes);
            }
            end += bands.row_bytes;
        }
    }
    struct conv_bits out = {.at = scratch};
    conv_deflate_search_put(encoder->search, &out, data, (size_t)(end - data), encoder->stop);
    return (size_t)(out.at - scratch);
}

// Images of few colours repeat themselves, which filters hide: icons are up to 16 % smaller
// without.
static bool is_best_unfiltered(const struct conv_encoder *encoder, struct bands bands,
                               const struct conv_image *src, uint8_t *scratch, size_t all_bytes)
{
    return bands.rows > 0 && conv_deflate_is_flat(encoder->filtered.data, all_bytes) &&
           try_bands(encoder, bands, src, scratch, true) <
               try_bands(encoder, bands, src, scratch, false);
}

// Splits the `size` bytes at at + 8 into IDATs that begin at `at`; returns their end. It goes from
// the last to the first, since each moves up by the frames of those before it.
static uint8_t *split_chunks(uint8_t *at, size_t size, size_t max_chunk)
{
    size_t chunks = size / max_chunk + (size % max_chunk > 0);
    uint8_t *data = at + 8;
    for (size_t i = chunks; i-- > 0;) {
        size_t count = i + 1 < chunks ? max_chunk : size - i * max_chunk;
        uint8_t *type = data + i * (max_chunk + CONV_CHUNK_FRAME) - 4;
        memmove(type + 4, data + i * max_chunk, count);
        memcpy(type, "IDAT", 4);
        close_chunk(type, type + 4 + count);
    }
    return at + size + chunks * CONV_CHUNK_FRAME;
}

// Writes the zlib stream of the filtered rows; returns its size.
static size_t compress_all(const struct conv_encoder *encoder, uint8_t *at, size_t all_bytes,
                           size_t bound)
{
    const uint8_t *data = encoder->filtered.data;
    if (encoder->compressor)
        return libdeflate_zlib_compress(encoder->compressor, data, all_bytes, at, bound);
    struct conv_bits out = {.at = at};
    conv_bits_put(&out, 0x9c78, 16); // deflate, a window of 32 KiB, default effort
    conv_bits_flush(&out);
    conv_deflate_search_put(encoder->search, &out, data, all_bytes, encoder->stop);
    conv_bits_align(&out);
    conv_chunk_write_u32(out.at, libdeflate_adler32(1, data, all_bytes));
    return (size_t)(out.at + 4 - at);
}

static enum conv_status encode_whole(struct conv_encoder *encoder, struct conv_buffer *file,
                                     const struct conv_image *src, size_t all_bytes,
                                     struct conv_err *err)
{
    struct bands bands = {0};
    if (encoder->search)
        bands = plan_bands(src->height, all_bytes);
    size_t band_bytes = BANDS * (size_t)bands.rows * bands.row_bytes;
    if (all_bytes > SIZE_MAX / 4 || !conv_buffer_reserve(&encoder->filtered, all_bytes) ||
        !conv_buffer_reserve(&encoder->bands, band_bytes))
        return out_of_memory(err);
    size_t bound = encoder->compressor
                       ? libdeflate_zlib_compress_bound(encoder->compressor, all_bytes)
                       : ZLIB_FRAME + conv_deflate_bound(all_bytes, CONV_DEFLATE_SEARCH_BLOCK / 2);
    if (!conv_buffer_reserve(file, frames(bound / encoder->max_chunk) + bound))
        return out_of_memory(err);
    filter_all(encoder, src, false);
    if (is_best_unfiltered(encoder, bands, src, file->data, all_bytes))
        filter_all(encoder, src, true);
    if (conv_cancel_is_asked(encoder->stop)) // else uninitialised rows would be compressed
        return cancelled(err);
    uint8_t *at = conv_encode_put_head(file->data, src);
    size_t size = compress_all(encoder, at + 8, all_bytes, bound);
    at = put_tail(split_chunks(at, size, encoder->max_chunk));
    file->size = (size_t)(at - file->data);
    return CONV_OK;
}

// --- the encoder --------------------------------------------------------------------------------

enum conv_status conv_encode_open(struct conv_encoder **encoder, int level, unsigned features,
                                  size_t max_chunk, struct conv_err *err)
{
    struct conv_encoder *made = calloc(1, sizeof *made);
    *encoder = NULL;
    if (!made)
        return out_of_memory(err);
    made->level = level;
    made->max_chunk = max_chunk;
    made->functions = conv_filter_rows_choose(features);
    if (level <= 1)
        made->deflate = conv_deflate_open(features);
    else if (level <= LAST_SEARCH_LEVEL)
        made->search = conv_deflate_search_open(search_effort[level].candidates,
                                                search_effort[level].skip_shift);
    else
        made->compressor = libdeflate_alloc_compressor(level);
    if (!made->deflate && !made->search && !made->compressor) {
        conv_encode_close(made);
        return out_of_memory(err);
    }
    *encoder = made;
    return CONV_OK;
}

void conv_encode_set_stop(struct conv_encoder *encoder, const atomic_int *stop)
{
    encoder->stop = stop;
}

void conv_encode_close(struct conv_encoder *encoder)
{
    if (!encoder)
        return;
    conv_deflate_close(encoder->deflate);
    conv_deflate_search_close(encoder->search);
    libdeflate_free_compressor(encoder->compressor);
    conv_buffer_free(&encoder->scratch);
    conv_buffer_free(&encoder->filtered);
    conv_buffer_free(&encoder->bands);
    free(encoder);
}

void conv_encode_trim(struct conv_encoder *encoder, size_t keep)
{
    conv_buffer_trim(&encoder->scratch, keep);
    conv_buffer_trim(&encoder->filtered, keep);
    conv_buffer_trim(&encoder->bands, keep);
}

enum conv_status conv_encode_image(struct conv_encoder *encoder, struct conv_buffer *file,
                                   const struct conv_image *src, struct conv_err *err)
{
    int planes = src->channels * (src->depth / 8);
    size_t row_bytes = (size_t)src->width * (size_t)planes + 1, all_bytes;
    file->size = 0;
    if (__builtin_mul_overflow(row_bytes, (size_t)src->height, &all_bytes) ||
        !conv_buffer_reserve(&encoder->scratch,
                             conv_encode_rows_scratch(src, encoder->source != NULL)))
        return out_of_memory(err);
    enum conv_status status = encoder->level <= 1
                                  ? encode_stripes(encoder, file, src, row_bytes, all_bytes, err)
                                  : encode_whole(encoder, file, src, all_bytes, err);
    // A cancelled encoder leaves an incomplete file.
    return !status && conv_cancel_is_asked(encoder->stop) ? cancelled(err) : status;
}

enum conv_status conv_encode_image_rows(struct conv_encoder *encoder, struct conv_buffer *file,
                                        const struct conv_image *shape,
                                        const struct conv_png_row_source *source,
                                        struct conv_err *err)
{
    encoder->source = source;
    enum conv_status status = conv_encode_image(encoder, file, shape, err);
    encoder->source = NULL;
    return status;
}
