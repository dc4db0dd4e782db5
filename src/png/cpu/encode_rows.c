// SPDX-License-Identifier: MIT
#include "png/cpu/encode_rows.h"

#include <string.h>

size_t conv_encode_rows_scratch(const struct conv_image *src)
{
    size_t planes = (size_t)src->channels * (size_t)(src->depth / 8), bytes;
    size_t rows = 1 + planes * (src->depth == 16 ? 3 : 1);
    return __builtin_mul_overflow(rows, (size_t)src->width, &bytes) ? SIZE_MAX : bytes;
}

void conv_encode_rows_start(struct conv_encode_rows *rows, const struct conv_filter_rows *functions,
                            const struct conv_image *src, uint8_t *scratch)
{
    *rows = (struct conv_encode_rows){
        .functions = functions,
        .src = src,
        .planes = src->channels * (src->depth / 8),
        .width = (size_t)src->width,
    };
    size_t of_planes = (size_t)rows->planes * rows->width;
    rows->residual = scratch;
    rows->zero = memset(scratch + of_planes, 0, rows->width);
    for (int i = 0; i < 2 && src->depth == 16; i++)
        rows->halves[i] = scratch + of_planes + rows->width + (size_t)i * of_planes;
}

void conv_encode_rows_next(struct conv_encode_rows *rows, int y)
{
    const struct conv_image *src = rows->src;
    for (int p = 0; p < rows->planes; p++)
        rows->above[p] = y > 0 ? rows->row[p] : rows->zero;
    for (int c = 0; c < src->channels; c++) {
        const uint8_t *samples = src->plane[c].data + y * src->plane[c].stride;
        if (src->depth == 8) {
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

enum conv_row_filter conv_encode_rows_choose(const struct conv_encode_rows *rows)
{
    uint64_t cost[CONV_ROW_FILTERS] = {0};
    for (int p = 0; p < rows->planes; p++)
        rows->functions->add_costs(cost, rows->row[p], rows->above[p], rows->width);
    int best = CONV_ROW_PAETH;
    for (int f = CONV_ROW_PAETH - 1; f >= 0; f--) {
        if (cost[f] < cost[best])
            best = f;
    }
    return (enum conv_row_filter)best;
}

uint8_t *conv_encode_rows_put(const struct conv_encode_rows *rows, uint8_t *dst,
                              enum conv_row_filter filter)
{
    size_t n = rows->width;
    int planes = rows->planes;
    *dst++ = (uint8_t)filter;
    if (planes == 1) {
        rows->functions->filter(dst, filter, rows->row[0], rows->above[0], n);
        return dst + n;
    }
    const uint8_t *residual[CONV_ROW_MAX_PLANES];
    for (int p = 0; p < planes; p++) {
        residual[p] = rows->row[p];
        if (filter == CONV_ROW_NONE)
            continue;
        uint8_t *row = rows->residual + (size_t)p * n;
        rows->functions->filter(row, filter, rows->row[p], rows->above[p], n);
        residual[p] = row;
    }
    rows->functions->join(dst, residual, planes, n);
    return dst + n * (size_t)planes;
}
