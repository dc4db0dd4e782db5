// SPDX-License-Identifier: MIT
// Applies the border once per line, so that inner loops have no conditions for it.
#include <string.h>

#include "kernels/stencil/cpu/cpu_internal.h"

static void fill_value(void *line, int depth, float value, int from, int to)
{
    if (depth == 32) {
        for (int i = from; i < to; i++)
            ((float *)line)[i] = value;
    } else if (depth == 16) {
        for (int i = from; i < to; i++)
            ((uint16_t *)line)[i] = (uint16_t)value;
    } else if (from < to) {
        memset((uint8_t *)line + from, (int)value, (size_t)(to - from));
    }
}

// Fills line entries `from` to `to` - 1 with the sample of one column.
static void repeat(void *line, int depth, const uint8_t *row, int column, int from, int to)
{
    float value = depth == 32   ? ((const float *)(const void *)row)[column]
                  : depth == 16 ? ((const uint16_t *)(const void *)row)[column]
                                : row[column];
    fill_value(line, depth, value, from, to);
}

// Fills them with those of the columns x + from, ..., outside the plane.
static void fill_border(void *line, const struct conv_stencil *stencil, const uint8_t *row,
                        int width, int x, int from, int to)
{
    for (int i = from; i < to; i++) {
        int column = conv_border_sample(stencil->border, x + i, width, stencil->channels);
        if (column < 0)
            fill_value(line, stencil->depth, stencil->border_value, i, i + 1);
        else if (stencil->depth == 32)
            ((float *)line)[i] = ((const float *)(const void *)row)[column];
        else if (stencil->depth == 16)
            ((uint16_t *)line)[i] = ((const uint16_t *)(const void *)row)[column];
        else
            ((uint8_t *)line)[i] = row[column];
    }
}

void conv_cpu_line(void *line, const struct conv_stencil *stencil,
                   const struct conv_stencil_plane *plane, int x, int y, int count)
{
    int sy = conv_border_index(stencil->border, y, plane->height);
    if (sy < 0) {
        fill_value(line, stencil->depth, stencil->border_value, 0, count);
        return;
    }
    const uint8_t *row = plane->src + sy * plane->src_stride;
    size_t size = (size_t)stencil->depth / 8;
    int inside = x < 0 ? -x : 0; // entries [inside, outside) lie in the plane
    int outside = plane->width - x < count ? plane->width - x : count;
    // Large filters have hundreds of such entries.
    bool repeats = stencil->border == CONV_BORDER_REPLICATE && stencil->channels == 1;
    if (repeats)
        repeat(line, stencil->depth, row, 0, 0, inside);
    else
        fill_border(line, stencil, row, plane->width, x, 0, inside);
    memcpy((uint8_t *)line + (size_t)inside * size, row + (size_t)(x + inside) * size,
           (size_t)(outside - inside) * size);
    if (repeats)
        repeat(line, stencil->depth, row, plane->width - 1, outside, count);
    else
        fill_border(line, stencil, row, plane->width, x, outside, count);
}
