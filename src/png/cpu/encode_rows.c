// SPDX-License-Identifier: MIT
#include "png/cpu/encode_internal.h"

#include <string.h>

// In longer rows only SAMPLE of every SAMPLE_STEP columns are used to choose the filter; files of
// screenshots are 0.3 % larger.
#define SAMPLE 256
#define SAMPLE_STEP 1024
// Rows with residuals smaller than this on average are filtered piece by piece: pieces that equal
// those above are zeros.
#define FLAT 2
#define PIECE 128 // columns

// Bytes before the rows from a source, which begin at a multiple of 16: residuals, zeros, halves.
static bool own_bytes(const struct conv_image *src, size_t *bytes)
{
    size_t planes = (size_t)src->channels * (size_t)(src->depth / 8);
    size_t rows = 1 + planes * (src->depth == 16 ? 3 : 1);
    if (__builtin_mul_overflow(rows, (size_t)src->width, bytes) || *bytes > SIZE_MAX / 2)
        return false;
    *bytes = conv_image_align(*bytes, 16);
    return true;
}

static size_t fetched_bytes(const struct conv_image *src)
{
    return conv_image_stride(src->width, src->depth) * (size_t)src->channels;
}

size_t conv_encode_rows_scratch(const struct conv_image *src, bool has_source)
{
    size_t bytes;
    if (!own_bytes(src, &bytes))
        return SIZE_MAX;
    return has_source ? bytes + 2 * fetched_bytes(src) : bytes;
}

void conv_encode_rows_start(struct conv_encode_rows *rows, const struct conv_filter_rows *functions,
                            const struct conv_image *src, const struct conv_row_source *source,
                            uint8_t *scratch)
{
    *rows = (struct conv_encode_rows){
        .functions = functions,
        .src = src,
        .source = source,
        .planes = src->channels * (src->depth / 8),
        .width = (size_t)src->width,
    };
    size_t of_planes = (size_t)rows->planes * rows->width, own = 0;
    rows->residual = scratch;
    rows->zero = memset(scratch + of_planes, 0, rows->width);
    for (int p = 0; p < rows->planes; p++)
        rows->row[p] = rows->zero;
    for (int i = 0; i < 2 && src->depth == 16; i++)
        rows->halves[i] = scratch + of_planes + rows->width + (size_t)i * of_planes;
    (void)own_bytes(src, &own); // fits, since conv_encode_rows_scratch was asked
    for (int i = 0; i < 2 && source; i++)
        rows->fetched[i] = scratch + own + (size_t)i * fetched_bytes(src);
}

// Row y of the source, as planes of one row.
static struct conv_image fetch_row(const struct conv_encode_rows *rows, int y)
{
    struct conv_image row = *rows->src;
    row.height = 1;
    for (int c = 0; c < row.channels; c++)
        row.plane[c] = (struct conv_plane){
            rows->fetched[y % 2] + (size_t)c * conv_image_stride(row.width, row.depth), 0};
    rows->source->get(rows->source->context, y, &row);
    return row;
}

void conv_encode_rows_next(struct conv_encode_rows *rows, int y)
{
    struct conv_image src = *rows->src;
    rows->next = y + 1;
    for (int p = 0; p < rows->planes; p++)
        rows->above[p] = y > 0 ? rows->row[p] : rows->zero;
    if (rows->source)
        src = fetch_row(rows, y); // of stride 0
    for (int c = 0; c < src.channels; c++) {
        const uint8_t *samples = conv_image_row(&src, c, y);
        if (src.depth == 8) {
            rows->row[c] = samples;
            continue;
        }
        uint8_t *high = rows->halves[y % 2] + (size_t)(2 * c) * rows->width;
        uint8_t *low = high + rows->width;
        rows->functions->halve(high, low, (const uint16_t *)(const void *)samples, rows->width);
        rows->row[2 * c] = high;
        rows->row[2 * c + 1] = low;
    }
}

enum conv_row_filter conv_encode_rows_choose(struct conv_encode_rows *rows)
{
    uint64_t cost[CONV_ROW_FILTERS] = {0}, samples = 0;
    size_t width = rows->width, sample = width < SAMPLE_STEP ? width : SAMPLE;
    for (int p = 0; p < rows->planes; p++) {
        for (size_t x = 0; x + sample <= width; x += SAMPLE_STEP, samples += sample)
            rows->functions->add_costs(cost, rows->row[p] + x, rows->above[p] + x, sample);
    }
    int best = CONV_ROW_PAETH;
    for (int f = CONV_ROW_PAETH - 1; f >= 0; f--) {
        if (cost[f] < cost[best])
            best = f;
    }
    rows->flat = cost[CONV_ROW_UP] < FLAT * samples;
    return (enum conv_row_filter)best;
}

// Filters the columns from x to x + n; dst is their place.
static void put_columns(const struct conv_encode_rows *rows, uint8_t *dst,
                        enum conv_row_filter filter, size_t x, size_t n)
{
    int planes = rows->planes;
    size_t left = x > 0; // a column to the left, whose own residual is not used
    const uint8_t *residual[CONV_ROW_MAX_PLANES], *above[CONV_ROW_MAX_PLANES];
    if (rows->functions->filter_join && (planes == 3 || planes == 4) && n >= CONV_ROW_JOIN_LEAST) {
        for (int p = 0; p < planes; p++) {
            residual[p] = rows->row[p] + x;
            above[p] = rows->above[p] + x;
        }
        rows->functions->filter_join(dst, filter, residual, above, planes, n, left);
        return;
    }
    for (int p = 0; p < planes; p++) {
        residual[p] = rows->row[p] + x;
        if (filter == CONV_ROW_NONE)
            continue;
        uint8_t *row = rows->residual + (size_t)p * rows->width + x;
        rows->functions->filter(row - left, filter, rows->row[p] + x - left,
                                rows->above[p] + x - left, n + left);
        residual[p] = row;
    }
    rows->functions->join(dst, residual, planes, n);
}

bool conv_encode_rows_is_repeated(const struct conv_encode_rows *rows, size_t x, size_t n)
{
    for (int p = 0; p < rows->planes; p++) {
        if (memcmp(rows->row[p] + x, rows->above[p] + x, n) != 0)
            return false;
    }
    return true;
}

uint8_t *conv_encode_rows_put_repeated(const struct conv_encode_rows *rows, uint8_t *dst)
{
    size_t bytes = rows->width * (size_t)rows->planes;
    *dst++ = CONV_ROW_UP;
    return (uint8_t *)memset(dst, 0, bytes) + bytes;
}

uint8_t *conv_encode_rows_put(const struct conv_encode_rows *rows, uint8_t *dst,
                              enum conv_row_filter filter)
{
    size_t planes = (size_t)rows->planes, width = rows->width;
    bool skips = rows->flat && (filter == CONV_ROW_UP || filter == CONV_ROW_PAETH);
    *dst++ = (uint8_t)filter;
    if (planes == 1 && !skips) {
        rows->functions->filter(dst, filter, rows->row[0], rows->above[0], width);
        return dst + width;
    }
    for (size_t x = 0, n; x < width; x += n) {
        n = !skips || width - x < 2 * PIECE ? width - x : PIECE;
        // Both filters produce 0 if this column and the one to the left equal those above.
        if (skips && conv_encode_rows_is_repeated(rows, x - (x > 0), n + (x > 0)))
            memset(dst, 0, n * planes);
        else
            put_columns(rows, dst, filter, x, n);
        dst += n * planes;
    }
    return dst;
}
