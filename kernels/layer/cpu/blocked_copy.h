// SPDX-License-Identifier: MIT
// Copies the input of a block of outputs to scratch, as blocked.h describes. Part of
// blocked_image.h.
#ifndef CONV_KERNELS_LAYER_CPU_BLOCKED_COPY_H
#define CONV_KERNELS_LAYER_CPU_BLOCKED_COPY_H

#include <string.h>

#include "kernels/common/border.h"
#include "kernels/layer/cpu/blocked.h"
#include "kernels/layer/cpu/blocked_vector.h"

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
    const struct conv_layer *layer = plan->layer;
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

static void copy_block(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                       const struct block *block)
{
    const struct conv_layer *layer = plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    float *scratch = batch->scratch, *line = scratch + blocked->line;
    int stride = layer->stride;
    int rows = (block->rows - 1) * stride + layer->kernel_height;
    int n = (block->columns - 1) * stride + layer->kernel_width;
    int top = block->first_row * stride - layer->pad_top;
    int left = block->first_column * stride - layer->pad_left;
    for (int c = 0; c < layer->channels; c++) {
        const uint8_t *plane = block->image + c * batch->src_plane;
        float *channel = scratch + c * blocked->channel_size;
        for (int r = 0; r < rows; r++) {
            if (r % stride >= blocked->row_phases)
                continue;
            const float *samples = read_line(plan, batch, plane, top + r, left, n, line);
            copy_row(blocked, stride, samples, n,
                     channel + r % stride * blocked->phase_size +
                         (ptrdiff_t)(r / stride) * blocked->pitch);
        }
    }
    if (blocked->adjoining)
        clear_after_rows(blocked, layer->channels, stride, rows, scratch);
}

#endif
