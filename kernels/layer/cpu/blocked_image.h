// SPDX-License-Identifier: MIT
// The loops over an image's tiles, and the variant's table entry, for the instruction set of the
// including file: see blocked_tile.h.
#ifndef CONV_KERNELS_LAYER_CPU_BLOCKED_IMAGE_H
#define CONV_KERNELS_LAYER_CPU_BLOCKED_IMAGE_H

#include <string.h>

#include "base/features.h"
#include "kernels/common/border.h"
#include "kernels/layer/cpu/blocked.h"
#include "kernels/layer/cpu/blocked_tile.h"

// --- copies of the input -------------------------------------------------------------------------

// Copies the input of a block of outputs to scratch, as blocked.h describes.

// A block of outputs of one image, and the channels whose products are added to it.
struct block {
    int64_t image;
    int group; // of the layer
    int first_row, rows, first_column, columns;
    int first_channel, channels; // of the group
    bool is_direct;              // its samples are those of the planes
};

// Every `stride`-th sample. With `whole` vectors may be read and stored after the last one.
static inline void copy_samples(float *dst, const float *src, int n, int stride, bool whole)
{
    int j = 0;
    if (stride == 1) {
        for (; whole ? j < n : j + LANES <= n; j += LANES)
            put(dst + j, load(src + j));
        if (j < n)
            PUT_SOME(dst + j, GET_SOME(src + j, n - j), n - j);
        return;
    }
    for (; stride == 2 && j + LANES < n; j += LANES)
        put(dst + j, EVENS(load(src + 2 * j), load(src + 2 * j + LANES)));
    if (stride == 2 && j < n) {
        int left = 2 * (n - j) - 1; // samples
        vec low = fetch(src + 2 * j, left);
        vec high = left > LANES ? GET_SOME(src + 2 * j + LANES, left - LANES) : low;
        PUT_SOME(dst + j, EVENS(low, high), n - j);
        return;
    }
    for (; j < n; j++)
        dst[j] = src[(ptrdiff_t)j * stride];
}

// Sample x of a row as float32.
static inline float sample_of(const struct conv_layer *layer, const uint8_t *row, int x)
{
    if (layer->input == CONV_ELEMENT_F32)
        return ((const float *)(const void *)row)[x];
    return layer->input_divisor == 1 ? (float)row[x] : (float)row[x] / layer->input_divisor;
}

// Samples x, x + stride_x, ... of a row, some of which may lie in the padding. Those of the plane
// are inside[x] as float32.
static void copy_columns(const struct conv_layer_plan *plan, const uint8_t *row,
                         const float *inside, int x, int count, bool whole, float *to)
{
    const struct conv_layer *layer = &plan->layer;
    int stride = layer->stride_x, width = plan->shape.width;
    int first = x < 0 ? (stride - 1 - x) / stride : 0;
    int end = x < width ? (width - 1 - x) / stride + 1 : 0;
    first = first < count ? first : count;
    end = end > count ? count : end > first ? end : first;
    copy_samples(to + first, inside + x + first * stride, end - first, stride, whole);
    for (int j = first > 0 ? 0 : end; j < count; j = j + 1 == first ? end : j + 1) {
        int from = conv_border_index(layer->border, x + j * stride, width);
        to[j] = from < 0 ? layer->border_value : sample_of(layer, row, from);
    }
}

// Vectors read up to LANES - 1 elements after the last sample. Old contents of scratch there would
// not change an output, but if they are subnormal, arithmetic on them takes a hundred times as
// long.
static void clear_after(float *from, const float *end)
{
    PUT_SOME(from, (vec){0}, (int)(end - from));
}

// Makes the copies of a channel, row by row. What a row's last vector stores after the row is
// overwritten by the next rows of its copy; what it reads there must lie in the plane.
static void copy_rows(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                      const uint8_t *plane, const struct block *block, float *line, float *dst)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    const struct conv_layer *layer = &plan->layer;
    bool is_float = layer->input == CONV_ELEMENT_F32;
    int stride = layer->stride_x, step = blocked->adjoining ? layer->dilation_x : 1;
    int top = block->first_row * layer->stride_y - layer->pad_top;
    int left = block->first_column * stride - layer->pad_left, width = plan->shape.width;
    int rows = (block->rows - 1) * layer->stride_y + conv_layer_reach_y(layer);
    int columns = (block->columns - 1) * stride + conv_layer_reach_x(layer);
    for (int r = 0; r < rows; r++) {
        int phase = r % layer->stride_y, count = blocked->width;
        if (phase >= blocked->row_phases)
            continue;
        for (int j = 0; j < columns; j += 64 / (int)sizeof(float)) // the same of the next plane
            __builtin_prefetch(plane + batch->src_plane + (top + r) * batch->src_row +
                               (left + j) * (ptrdiff_t)sizeof(float));
        int y = conv_border_index(layer->border, top + r, plan->shape.height);
        const uint8_t *row = plane + (y < 0 ? 0 : y) * batch->src_row;
        const float *inside = is_float ? (const float *)(const void *)row : line - left;
        for (int x = left > 0 ? left : 0; !is_float && x < left + columns && x < width; x++)
            line[x - left] = sample_of(layer, row, x);
        ptrdiff_t at = (ptrdiff_t)(r / layer->stride_y) * blocked->pitch;
        bool whole =
            stride == 1 && at + columns + LANES <= blocked->copy_size &&
            (!is_float || (plan->shape.height - 1 - y) * batch->src_row >= (int64_t)sizeof(vec));
        float *to = dst + phase * blocked->phase_size + at;
        for (int k = 0; k < blocked->copies; k++, to += blocked->copy_size) {
            if (!blocked->adjoining)
                count = (columns - k + stride - 1) / stride;
            if (y >= 0)
                copy_columns(plan, row, inside, left + k * step, count, whole, to);
            for (int j = 0; y < 0 && j < count; j++)
                to[j] = layer->border_value;
            clear_after(to + count, to + blocked->pitch);
            if (blocked->adjoining && r + layer->stride_y >= rows) // the last row of its copy
                clear_after(to + count, to - at + blocked->copy_size);
        }
    }
}

// The samples of a block, in the planes or in scratch.
static const float *samples_of(const struct conv_layer_plan *plan,
                               const struct conv_layer_batch *batch, const struct block *block)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    float *scratch = batch->scratch;
    const uint8_t *plane = (const uint8_t *)batch->src + block->image * batch->src_image;
    plane += (block->group * (plan->layer.channels / plan->layer.groups) + block->first_channel) *
             batch->src_plane;
    if (block->is_direct)
        return (const float *)(const void *)(plane + block->first_row * batch->src_row);
    for (int c = 0; c < block->channels; c++, plane += batch->src_plane)
        copy_rows(plan, batch, plane, block, scratch + blocked->line,
                  scratch + c * blocked->channel_size);
    put(scratch + block->channels * blocked->channel_size, (vec){0});
    return scratch;
}

// --- the loops -----------------------------------------------------------------------------------

// What the tiles of a run have in common.
struct image_run {
    const struct conv_layer_plan *plan;
    int first_group, groups, first_set, end_set; // what is computed
    bool is_direct;                              // the planes adjoin
    int readable_rows;   // direct: in which vectors may end, whatever their number
    uint8_t *dst;        // of the first set of a group
    const float *packed; // the weights of that and of those after it
    size_t first_tap;    // of the channels that are computed
    float *results;      // across maps: sums of a block
    bool ends;           // sums are results
    int outputs;         // of a block
    struct tile tile;
};

// Computes `count` adjacent outputs of the maps of a set.
static void compute_set(struct image_run *run, int maps, const float *samples, uint8_t *dst,
                        int count)
{
    struct tile *tile = &run->tile;
    int left = (count + LANES - 1) / LANES; // vectors
    for (int n = (left + VECTORS_FOR(maps) - 1) / VECTORS_FOR(maps), done = 0; n > 0; n--) {
        int vectors = (left + n - 1) / n; // of tiles about equally large
        tile->samples = samples + done;
        tile->dst = dst + (size_t)done * conv_element_size(tile->output);
        tile->count = count - done;
        tiles[maps][vectors](tile);
        left -= vectors;
        done += vectors * LANES;
    }
}

// The same in vectors across maps.
static void compute_set_across(struct image_run *run, int maps, const float *samples, uint8_t *dst,
                               int count, vec *results)
{
    struct tile *tile = &run->tile;
    int vectors = (maps + LANES - 1) / LANES, most = ACROSS_OUTPUTS(vectors);
    tile->step = count;
    for (int n = (count + most - 1) / most, done = 0, some; n > 0; n--, done += some) {
        some = (count - done + n - 1) / n; // of tiles about equally large
        tile->samples = samples + done;
        tile->results = results + done;
        across_tiles[0][vectors][some](tile);
    }
    for (int v = 0; v < vectors && run->ends; v++)
        store_across(tile, dst + (size_t)(v * LANES) * tile->map_size, tile->map_size,
                     maps - v * LANES, results + v * count, count);
}

// Computes all maps of a group, of `rows` rows of `count` adjacent outputs, from element `at` of
// each map on; their samples begin at `samples`.
static void compute_span(struct image_run *run, const float *samples, size_t at, int rows,
                         int count)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    struct tile *tile = &run->tile;
    bool reads_planes = tile->offsets != run->plan->packed;
    size_t taps = conv_layer_taps(&run->plan->layer), element = conv_element_size(tile->output);
    int first = conv_layer_blocked_first(blocked, run->first_set);
    for (int s = run->first_set; s < run->end_set; s++) {
        int begin = conv_layer_blocked_first(blocked, s) - first;
        int maps = conv_layer_blocked_first(blocked, s + 1) - first - begin;
        int packed_maps = blocked->across ? (maps + LANES - 1) / LANES * LANES : maps;
        uint8_t *dst = run->dst + (size_t)begin * tile->map_size + at * element;
        tile->is_first = reads_planes && s == run->first_set;
        tile->bias = run->packed + (size_t)begin * (taps + 1);
        tile->weights = tile->bias + (run->first_tap + 1) * (size_t)packed_maps;
        if (blocked->across)
            compute_set_across(run, maps, samples, dst, count,
                               (vec *)(void *)run->results + begin / LANES * run->outputs);
        for (int i = 0; i < rows && !blocked->across; i++)
            compute_set(run, maps, samples + i * blocked->pitch,
                        dst + (size_t)(i * blocked->width) * element, count);
    }
}

// Computes the maps of a block, a few hundred outputs at a time: their samples stay in a cache, and
// each fetched weight is used for all of them.
static void compute_block(struct image_run *run, const struct block *block, const float *samples)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    int rows = blocked->adjoining ? 1 : block->rows, most = CONV_LAYER_BLOCKED_SPAN * LANES;
    int count = blocked->adjoining ? run->outputs : block->columns;
    int spans = blocked->across ? 1 : (count + most - 1) / most; // about equally wide
    int wide = ((count + spans - 1) / spans + LANES - 1) / LANES * LANES;
    int tall = wide < most ? most / wide : 1;
    size_t at = (size_t)block->first_row * (size_t)blocked->width + (size_t)block->first_column;
    for (int i = 0; i < rows; i += tall)
        for (int j = 0; j < count; j += wide)
            compute_span(run, samples + (ptrdiff_t)i * blocked->pitch + j,
                         at + (size_t)(i * blocked->width + j), rows - i < tall ? rows - i : tall,
                         count - j < wide ? count - j : wide);
}

// Goes to the next block; false if there is none.
static bool next_block(const struct image_run *run, const struct conv_layer_batch *batch,
                       struct block *block)
{
    const struct conv_layer *layer = &run->plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    int channels = layer->channels / layer->groups, end = batch->first_row + batch->rows;
    if ((block->first_channel += blocked->channels) >= channels) {
        block->first_channel = 0;
        block->first_column += blocked->columns;
    }
    if (block->first_column >= blocked->width) {
        block->first_column = 0;
        block->first_row += block->rows;
    }
    if (block->first_row >= end) {
        block->first_row = batch->first_row;
        block->group++;
    }
    if (block->group >= run->groups) {
        block->group = run->first_group;
        block->image++;
    }
    int rows = end - block->first_row, columns = blocked->width - block->first_column;
    bool reads_on = !blocked->across && run->is_direct && rows * blocked->width % LANES != 0;
    int readable = reads_on ? run->readable_rows - block->first_row : rows;
    block->is_direct = run->is_direct && readable > 0;
    int direct = readable < blocked->direct_rows ? readable : blocked->direct_rows;
    int most = block->is_direct ? direct : blocked->rows;
    block->rows = rows < most ? rows : most;
    block->columns = columns < blocked->columns ? columns : blocked->columns;
    block->channels = channels - block->first_channel < blocked->channels
                          ? channels - block->first_channel
                          : blocked->channels;
    return block->image < batch->images;
}

// Has tiles add the products of a block's channels to its outputs.
static void begin_block(struct image_run *run, const struct conv_layer_batch *batch,
                        const struct block *block)
{
    const struct conv_layer *layer = &run->plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    int channels = layer->channels / layer->groups, maps = layer->maps / layer->groups;
    int per_channel = layer->kernel_height * layer->kernel_width;
    int first = conv_layer_blocked_first(blocked, run->first_set);
    struct tile *tile = &run->tile;
    tile->offsets = run->plan->packed;
    if (block->is_direct)
        tile->offsets += conv_layer_blocked_offsets(layer);
    tile->offsets_end = tile->offsets + block->channels * per_channel;
    tile->continues = block->first_channel > 0;
    run->ends = block->first_channel + block->channels == channels;
    tile->activation = run->ends ? layer->activation : CONV_ACTIVATION_NONE;
    run->first_tap = (size_t)(block->first_channel * per_channel);
    run->outputs = block->rows * block->columns;
    run->packed =
        (const float *)run->plan->packed + conv_layer_blocked_weights(run->plan) +
        (size_t)(block->group * blocked->packed_maps + first) * (conv_layer_taps(layer) + 1);
    run->dst = (uint8_t *)batch->dst + ((size_t)block->image * (size_t)layer->maps +
                                        (size_t)(block->group * maps + first)) *
                                           tile->map_size;
}

static enum conv_status run_blocked(const struct conv_layer_plan *plan,
                                    const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    size_t plane = (size_t)blocked->height * (size_t)blocked->width;
    int sets = batch->sets ? batch->sets : plan->sets;
    bool by_group = layer->groups > 1;
    struct image_run run = {
        .plan = plan,
        .first_group = by_group ? batch->first_set : 0,
        .groups = by_group ? batch->first_set + sets : 1,
        .first_set = by_group ? 0 : batch->first_set,
        .end_set = by_group ? blocked->sets : batch->first_set + sets,
        .results = (float *)batch->scratch + blocked->results,
        .is_direct = blocked->direct && batch->src_row == 4 * (int64_t)plan->shape.width &&
                     batch->src_plane == batch->src_row * plan->shape.height,
        .readable_rows = blocked->height - (LANES - 1 + blocked->width - 1) / blocked->width,
        .tile = {.output = layer->output, .map_size = plane * conv_element_size(layer->output)},
    };
    struct block block = {.group = run.first_group,
                          .first_row = batch->first_row,
                          .first_channel = -blocked->channels};
    while (next_block(&run, batch, &block)) {
        const float *samples = samples_of(plan, batch, &block);
        begin_block(&run, batch, &block);
        compute_block(&run, &block, samples);
    }
    return CONV_OK;
}

static bool plan_blocked(struct conv_layer_plan *plan)
{
    return conv_layer_blocked_plan(plan, LANES, MOST_MAPS);
}

static int score_of(const struct conv_layer_plan *)
{
    return SCORE;
}

#define pack_blocked conv_layer_blocked_pack
#define CONV_LAYER_VARIANT(symbol, method, needed, text)                                           \
    const struct conv_layer_variant conv_##symbol = {                                              \
        .name = #symbol,                                                                           \
        .summary = text,                                                                           \
        .place = CONV_ON_CPU,                                                                      \
        .needs = needed,                                                                           \
        .precision = CONV_PRECISION_EXACT,                                                         \
        .handles = CONV_LAYER_ANY,                                                                 \
        .plan = plan_##method,                                                                     \
        .score = score_of,                                                                         \
        .pack = pack_##method,                                                                     \
        .run = run_##method,                                                                       \
    }

#endif
