// SPDX-License-Identifier: MIT
// Copies the input of a block of outputs to scratch, as blocked.h describes. Part of
// blocked_image.h.
#ifndef CONV_KERNELS_LAYER_CPU_BLOCKED_COPY_H
#define CONV_KERNELS_LAYER_CPU_BLOCKED_COPY_H

#include <string.h>

#include "kernels/common/border.h"
#include "kernels/layer/cpu/blocked.h"
#include "kernels/layer/cpu/blocked_tile.h"

// A block of outputs of one image.
struct block {
    const uint8_t *image;
    int first_row, rows, first_column, columns;
};

static void convert(const struct conv_layer *layer, const uint8_t *row, int x, int n, float *line)
{
    if (layer->input == CONV_ELEMENT_F32) {
        memcpy(line, row + (size_t)x * sizeof(float), (size_t)n * sizeof(float));
    } else if (layer->input_divisor == 1) {
        for (int i = 0; i < n; i++)
            line[i] = (float)row[x + i];
    } else {
        for (int i = 0; i < n; i++)
            line[i] = (float)row[x + i] / layer->input_divisor;
    }
}

// Samples x to x + n - 1 of a plane's row y as float32, in `line` or in the plane itself. x, y and
// the samples may lie in the padding.
static const float *read_line(const struct conv_layer_plan *plan,
                              const struct conv_layer_batch *batch, const uint8_t *plane, int y,
                              int x, int n, float *line)
{
    const struct conv_layer *layer = &plan->layer;
    int width = plan->shape.width;
    y = conv_border_index(layer->border, y, plan->shape.height);
    if (y < 0) {
        for (int i = 0; i < n; i++)
            line[i] = layer->border_value;
        return line;
    }
    const uint8_t *row = plane + y * batch->src_row;
    if (layer->input == CONV_ELEMENT_F32 && x >= 0 && x + n <= width)
        return (const float *)(const void *)row + x;
    int first = x < 0 ? -x : 0, last = x + n > width ? width - x : n; // inside the plane
    first = first < n ? first : n;
    last = last > first ? last : first;
    if (last > first)
        convert(layer, row, x + first, last - first, line + first);
    for (int i = 0; i < n; i = i + 1 == first ? last : i + 1) {
        if (i >= first && i < last)
            continue;
        int from = conv_border_index(layer->border, x + i, width);
        line[i] = layer->border_value;
        if (from >= 0)
            convert(layer, row, from, 1, line + i);
    }
    return line;
}

static inline void copy_samples(float *dst, const float *src, int n, int stride)
{
    if (stride == 1) {
        int j = 0;
        for (; j + LANES <= n; j += LANES)
            put(dst + j, load(src + j));
        if (j < n)
            PUT_SOME(dst + j, GET_SOME(src + j, n - j), n - j);
    } else {
        for (int j = 0; j < n; j++)
            dst[j] = src[(ptrdiff_t)j * stride];
    }
}

// Vectors read up to LANES - 1 elements after the last sample. Old contents of scratch there would
// not change an output, but if they are subnormal, arithmetic on them takes a hundred times as
// long.
static void clear_after(float *from, const float *end)
{
    for (int i = 0; i < LANES && from + i < end; i++)
        from[i] = 0;
}

// Makes the copies of one input row, of which `n` samples are needed.
static void copy_row(const struct conv_layer_blocked *blocked, int stride, const float *line, int n,
                     float *dst)
{
    for (int k = 0; k < blocked->copies; k++) {
        int count = blocked->adjoining ? blocked->width : (n - k + stride - 1) / stride;
        float *to = dst + k * blocked->copy_size;
        copy_samples(to, line + k, count, stride);
        if (!blocked->adjoining)
            clear_after(to + count, to + blocked->pitch);
    }
}

// For a block of adjoining rows with fewer rows than fit, clears the elements after the rows of
// each copy and after the last copy.
static void clear_after_rows(const struct conv_layer_blocked *blocked, int channels, int stride,
                             int rows, float *scratch)
{
    float *end = scratch + channels * blocked->channel_size;
    clear_after(end, end + LANES);
    for (float *phases = scratch; phases < end; phases += blocked->channel_size) {
        for (int p = 0; p < blocked->row_phases; p++) {
            ptrdiff_t used = (ptrdiff_t)((rows - p + stride - 1) / stride) * blocked->pitch;
            float *copy = phases + p * blocked->phase_size;
            for (int k = 0; k < blocked->copies; k++, copy += blocked->copy_size)
                clear_after(copy + used, copy + blocked->copy_size);
        }
    }
}

// Where the input of a block lies in its planes, in samples, and how many it needs.
struct window {
    int top, left, rows, columns;
};

static struct window window_of(const struct conv_layer *layer, const struct block *block)
{
    return (struct window){
        .top = block->first_row * layer->stride - layer->pad_top,
        .left = block->first_column * layer->stride - layer->pad_left,
        .rows = (block->rows - 1) * layer->stride + layer->kernel_height,
        .columns = (block->columns - 1) * layer->stride + layer->kernel_width,
    };
}

// Makes the copies of a channel row by row: for strides.
static void copy_rows(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                      const uint8_t *plane, const struct window *window, float *line, float *dst)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    int stride = plan->layer.stride;
    for (int r = 0; r < window->rows; r++) {
        if (r % stride >= blocked->row_phases)
            continue;
        const float *samples =
            read_line(plan, batch, plane, window->top + r, window->left, window->columns, line);
        copy_row(blocked, stride, samples, window->columns,
                 dst + r % stride * blocked->phase_size + (ptrdiff_t)(r / stride) * blocked->pitch);
    }
}

// Whether a window without stride can be copied from the planes as they are: float32, no sample in
// the padding.
static bool is_inside(const struct conv_layer_plan *plan, const struct window *window)
{
    return plan->layer.input == CONV_ELEMENT_F32 && window->top >= 0 && window->left >= 0 &&
           window->rows <= plan->shape.height - window->top &&
           window->columns <= plan->shape.width - window->left;
}

// One copy, without stride, of `rows` rows with `count` samples, in whole vectors. What a row's
// last vector stores after the row is overwritten by the rows and copies after it, so these are
// made in ascending order. What it reads there must lie before `src_end`: the last rows are read
// under a mask.
static void copy_whole_rows(float *dst, ptrdiff_t pitch, const float *src, ptrdiff_t src_row,
                            const float *src_end, int rows, int count)
{
    int r = 0;
    ptrdiff_t vectors = (count + LANES - 1) / LANES * LANES;
    for (; r < rows && vectors <= src_end - src; r++, dst += pitch, src += src_row)
        for (ptrdiff_t j = 0; j < vectors; j += LANES)
            put(dst + j, load(src + j));
    for (; r < rows; r++, dst += pitch, src += src_row) {
        ptrdiff_t j = 0;
        for (; j + LANES <= count; j += LANES)
            put(dst + j, load(src + j));
        if (j < count)
            put(dst + j, GET_SOME(src + j, count - (int)j));
    }
}

// Makes the copies of a channel, without stride, from a window at `src`.
static void copy_window(const struct conv_layer_blocked *blocked, const struct window *window,
                        const float *src, ptrdiff_t src_row, const float *src_end, float *dst)
{
    int count = blocked->adjoining ? blocked->width : window->columns;
    for (int k = 0; k < blocked->copies; k++)
        copy_whole_rows(dst + k * blocked->copy_size, blocked->pitch, src + k, src_row, src_end,
                        window->rows, count);
    for (int r = 0; r < window->rows && !blocked->adjoining; r++, dst += blocked->pitch)
        clear_after(dst + count, dst + blocked->pitch);
}

// The same where samples lie in the padding or have 8 bits: the window is made in `padded` first.
static void copy_padded(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        const uint8_t *plane, const struct window *window, float *padded,
                        float *dst)
{
    ptrdiff_t columns = window->columns;
    float *line = padded;
    for (int r = 0; r < window->rows; r++, line += columns) {
        const float *samples =
            read_line(plan, batch, plane, window->top + r, window->left, window->columns, line);
        if (samples != line)
            memcpy(line, samples, (size_t)columns * sizeof *line);
    }
    copy_window(conv_layer_blocked_of(plan), window, padded, columns, line + LANES, dst);
}

static void copy_block(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                       const struct block *block)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    float *scratch = batch->scratch, *line = scratch + blocked->line;
    const struct window window = window_of(layer, block);
    bool inside = is_inside(plan, &window);
    ptrdiff_t src_row = batch->src_row / (ptrdiff_t)sizeof(float);
    for (int c = 0; c < layer->channels; c++) {
        const uint8_t *plane = block->image + c * batch->src_plane;
        float *channel = scratch + c * blocked->channel_size;
        if (layer->stride > 1) {
            copy_rows(plan, batch, plane, &window, line, channel);
        } else if (!inside) {
            copy_padded(plan, batch, plane, &window, line, channel);
        } else {
            const float *src = (const float *)(const void *)plane;
            copy_window(blocked, &window, src + window.top * src_row + window.left, src_row,
                        src + (plan->shape.height - 1) * src_row + plan->shape.width, channel);
        }
    }
    if (blocked->adjoining)
        clear_after_rows(blocked, layer->channels, layer->stride, window.rows, scratch);
}

#endif
