// SPDX-License-Identifier: MIT
// The loops over an image's tiles, and the variant's table entry, for the instruction set of the
// including file: see blocked_tile.h.
#pragma once

#include "base/features.h"
#include "kernels/common/border.h"
#include "kernels/layer/cpu/blocked.h"
#include "kernels/layer/cpu/blocked_tile.h"

// --- copies of the input -------------------------------------------------------------------------

// A block of outputs of one image, and the channels whose products are added to it.
struct block {
    int64_t image;
    int group; // of the layer
    int first_row, rows, first_column, columns;
    int first_channel, channels; // of the group
    bool is_direct;              // its samples are those of the planes
    int in_columns;              // of the padded input
};

// Copies every `stride`-th sample in whole vectors, which read and store after the last one.
static inline void copy_samples(float *dst, const float *src, ptrdiff_t n, int stride)
{
    for (ptrdiff_t j = 0; stride == 1 && j < n; j += LANES)
        put(dst + j, load(src + j));
    for (ptrdiff_t j = 0; stride == 2 && j < n; j += LANES)
        put(dst + j, EVENS(load(src + 2 * j), load(src + 2 * j + LANES)));
    for (ptrdiff_t j = 0; stride == 4 && j < n; j += LANES) {
        const float *from = src + 4 * j;
        vec low = EVENS(load(from), load(from + LANES));
        put(dst + j, EVENS(low, EVENS(load(from + 2 * LANES), load(from + 3 * LANES))));
    }
    for (ptrdiff_t j = 0; stride != 1 && stride != 2 && stride != 4 && j < n; j++)
        dst[j] = src[j * stride];
}

// Sample x of a row as float32.
static inline float sample_of(const struct conv_layer *layer, const uint8_t *row, int x)
{
    if (layer->input == CONV_ELEMENT_F32)
        return ((const float *)(const void *)row)[x];
    return layer->input_divisor == 1 ? (float)row[x] : (float)row[x] / layer->input_divisor;
}

// Puts n samples of a row's padding, from x on, and others after them at dst. NULL: of a constant.
static inline void fill_padding(const struct conv_layer_plan *plan, const uint8_t *row, int x,
                                int n, float *dst)
{
    const struct conv_layer *layer = &plan->layer;
    bool is_constant = !row || layer->border == CONV_BORDER_CONSTANT;
    for (int j = 0; j < n; j += is_constant ? LANES : 1)
        if (is_constant)
            put(dst + j, splat(layer->border_value));
        else
            dst[j] =
                sample_of(layer, row, conv_border_index(layer->border, x + j, plan->shape.width));
}

// Puts padded lines of a channel, `first` to `end_line` - 1, as float32 at dst, `pitch` apart, and
// zeros after them: in ascending order, as vectors write after what they are meant for. The lines
// of a block are the rows of all row phases in turn; if a phase has no tap, its rows are none of
// them.
static void fill_lines(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                       const uint8_t *plane, const struct block *block, int first, int end_line,
                       float *dst, ptrdiff_t pitch)
{
    const struct conv_layer *layer = &plan->layer;
    int phases = conv_layer_blocked_of(plan)->row_phases, stride = layer->stride_y;
    int top = block->first_row * stride - layer->pad_top;
    int left = block->first_column * layer->stride_x - layer->pad_left;
    int columns = block->in_columns, inside = plan->shape.width - left; // before the right pads
    ptrdiff_t size = (ptrdiff_t)conv_element_size(layer->input);
    int begin = left < 0 ? (columns < -left ? columns : -left) : 0;
    int end = inside < begin ? begin : inside < columns ? inside : columns;
    int phase = first % phases, r = first / phases * stride + phase;
    for (int i = first; i < end_line; i++, dst += pitch) {
        int y = conv_border_index(layer->border, top + r, plan->shape.height);
        const uint8_t *row = plane + (y < 0 ? 0 : y) * batch->src_row;
        for (ptrdiff_t at = left * size; at < (left + columns) * size; at += 64)
            __builtin_prefetch(row + batch->src_plane + at); // the same of the next plane
        if (y < 0) {
            fill_padding(plan, NULL, 0, columns, dst);
        } else {
            fill_padding(plan, row, left, begin, dst);
            const float *from = (const float *)(const void *)row + left;
            for (int j = begin; layer->input == CONV_ELEMENT_F32 && j < end; j += LANES)
                put(dst + j, fetch(from + j, end - j));
            for (int j = begin; layer->input != CONV_ELEMENT_F32 && j < end; j++)
                dst[j] = sample_of(layer, row, left + j);
            fill_padding(plan, row, left + end, columns - end, dst + end);
        }
        put(dst + columns, (vec){0});
        phase = phase + 1 < phases ? phase + 1 : 0;
        r += phase > 0 ? 1 : stride - phases + 1;
    }
}

// Copies what a block reads of a channel as blocked.h describes, some padded lines at a time.
static void copy_channel(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                         const uint8_t *plane, const struct block *block, float *dst)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    const struct conv_layer *layer = &plan->layer;
    int stride = layer->stride_x, phases = blocked->row_phases, columns = block->in_columns;
    int rows = (block->rows - 1) * layer->stride_y + conv_layer_reach_y(layer);
    int lines = phases < layer->stride_y ? block->rows * phases : rows;
    if (blocked->copies == 1 && layer->stride_y * stride == 1) {
        fill_lines(plan, batch, plane, block, 0, lines, dst, blocked->pitch);
        return;
    }
    float *line = (float *)batch->scratch + blocked->lines;
    int step = blocked->adjoining ? layer->dilation_x : 1;
    int most = CONV_LAYER_BLOCKED_LINES / columns;
    int longest = blocked->adjoining ? block->columns : (columns - 1) / stride + 1;
    int shorter = blocked->adjoining ? blocked->copies : (columns - 1) % stride + 1; // from this on
    for (int first = 0, end, phase = 0; first < lines; first = end) {
        end = lines - first < most ? lines : first + (most < 1 ? 1 : most);
        fill_lines(plan, batch, plane, block, first, end, line, columns);
        for (const float *from = line; from < line + (end - first) * columns; from += columns) {
            for (int k = 0; k < blocked->copies; k++) {
                float *to = dst + phase * blocked->phase_size + k * blocked->copy_size;
                int n = k < shorter ? longest : longest - 1;
                copy_samples(to, from + k * step, n, stride);
                put(to + n, (vec){0});
            }
            phase = phase + 1 < phases ? phase + 1 : 0;
            dst += phase > 0 ? 0 : blocked->pitch;
        }
    }
}

// The samples of a block, in the planes or in scratch.
static const float *samples_of(const struct conv_layer_plan *plan,
                               const struct conv_layer_batch *batch, const struct block *block)
{
    const uint8_t *plane = (const uint8_t *)batch->src + block->image * batch->src_image;
    plane += (block->group * (plan->layer.channels / plan->layer.groups) + block->first_channel) *
             batch->src_plane;
    if (block->is_direct)
        return (const float *)(const void *)plane + block->first_column;
    for (int c = 0; c < block->channels; c++, plane += batch->src_plane)
        copy_channel(plan, batch, plane, block,
                     (float *)batch->scratch + c * conv_layer_blocked_of(plan)->channel_size);
    return batch->scratch;
}

// --- the loops -----------------------------------------------------------------------------------

// What the tiles of a run have in common.
struct image_run {
    const struct conv_layer_plan *plan;
    int first_set, end_set; // what is computed of a group
    bool is_direct;         // the planes adjoin
    uint8_t *dst;           // of the first set of a group
    const float *packed;    // the weights of that and of those after it
    float *results;         // across maps: sums of a block
    bool ends;              // sums are results
    const struct block *block;
    const struct conv_layer_tap_list *all;
    bool skips, has_minus_zero; // taps that meet only padding are skipped; a sum is -0
    struct tile tile;
};

// Chooses the taps for `count` outputs from `first` on of some rows.
static void choose_taps(struct image_run *run, int row, int rows, int first, int count)
{
    const struct conv_layer *layer = &run->plan->layer;
    const struct conv_layer_shape *shape = &run->plan->shape;
    struct conv_taps down =
        conv_taps_inside(row, rows, layer->stride_y, layer->pad_top, shape->height,
                         layer->dilation_y, layer->kernel_height);
    struct conv_taps along = conv_taps_inside(first, count, layer->stride_x, layer->pad_left,
                                              shape->width, layer->dilation_x, layer->kernel_width);
    run->tile.taps_end = run->tile.taps;
    for (int u = down.first; u < down.end; u++)
        for (int v = along.first; v < along.end; v++)
            *run->tile.taps_end++ = run->all->taps[u * layer->kernel_width + v];
}

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

// Each tap of a 1x1 kernel reads other cache lines. This many taps stay in the level 1 cache for
// all tiles of a set.
#define TAPS_TOGETHER 128

// The same of rows of outputs in vectors across maps. A tile is of two rows if these are short.
static void compute_set_across(struct image_run *run, int maps, const float *samples, uint8_t *dst,
                               int rows, int count, vec *results)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    struct tile *tile = &run->tile;
    int vectors = (maps + LANES - 1) / LANES, most = ACROSS_OUTPUTS(vectors);
    int tall = count == blocked->columns && 2 * count <= most ? 2 : 1, high;
    int channels = tile->channels, some = tile->channel_taps == 1 ? TAPS_TOGETHER : channels;
    tile->step = rows * count;
    for (int c = 0; c < channels; c += tile->channels, tile->continues = true) {
        tile->channels = channels - c < some ? channels - c : some;
        for (int i = 0; i < rows; i += high) {
            high = rows - i < tall ? 1 : tall;
            for (int n = (count + most - 1) / most, done = 0, wide; n > 0; n--, done += wide) {
                wide = (count - done + n - 1) / n; // of tiles about equally large
                if (run->skips)
                    choose_taps(run, run->block->first_row + i, high,
                                run->block->first_column + done, wide);
                tile->samples = samples + c * tile->channel_size + i * blocked->pitch + done;
                tile->results = results + i * count + done;
                tile->stride = high > 1 ? blocked->pitch : wide / 2;
                across_tiles[0][vectors][high * wide](tile);
                for (int v = 0; v < vectors && run->skips; v++)
                    run->has_minus_zero |= has_special(
                        (const float *)(tile->results + v * tile->step), high * wide * LANES, true);
            }
        }
        tile->weights += tile->channels * tile->channel_taps * vectors * LANES;
    }
    tile->channels = channels;
    tile->continues = run->block->first_channel > 0;
    int together = count == blocked->width ? rows : 1; // rows of which dst is without gaps
    for (int v = 0; v < vectors && run->ends; v++)
        for (int i = 0; i < rows; i += together)
            store_across(tile,
                         dst + (size_t)(v * LANES) * tile->map_size +
                             (size_t)(i * blocked->width) * conv_element_size(tile->output),
                         tile->map_size, maps - v * LANES, results + v * tile->step + i * count,
                         together * count);
}

// Computes all maps of a group, of `rows` rows of `count` adjacent outputs, from element `at` of
// each map on; their samples begin at `samples`.
static void compute_span(struct image_run *run, const float *samples, size_t at, int rows,
                         int count)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    struct tile *tile = &run->tile;
    size_t taps = conv_layer_taps(&run->plan->layer), element = conv_element_size(tile->output);
    int first = conv_layer_blocked_first(blocked, run->first_set);
    for (int s = run->first_set; s < run->end_set; s++) {
        int begin = conv_layer_blocked_first(blocked, s) - first;
        int maps = conv_layer_blocked_first(blocked, s + 1) - first - begin;
        int packed_maps = blocked->across ? (maps + LANES - 1) / LANES * LANES : maps;
        uint8_t *dst = run->dst + (size_t)begin * tile->map_size + at * element;
        tile->is_first = run->block->is_direct && s == run->first_set;
        tile->bias = run->packed + (size_t)begin * (taps + 1);
        tile->weights =
            tile->bias + (run->block->first_channel * tile->channel_taps + 1) * packed_maps;
        if (blocked->across)
            compute_set_across(run, maps, samples, dst, rows, count,
                               (vec *)(void *)run->results +
                                   begin / LANES * run->block->rows * run->block->columns);
        for (int i = 0; i < rows && !blocked->across; i++) {
            uint8_t *row = dst + (size_t)(i * blocked->width) * element;
            if (run->skips)
                choose_taps(run, (int)(at / (size_t)blocked->width) + i, 1, 0, blocked->width);
            compute_set(run, maps, samples + i * blocked->pitch, row, count);
            for (int m = 0; m < maps && run->skips; m++, row += tile->map_size)
                run->has_minus_zero |= has_special((const float *)(const void *)row, count, true);
        }
    }
}

// Adds the products of a block's channels to its outputs, a few hundred outputs at a time: their
// samples stay in a cache, and each fetched weight is used for all of them.
static void compute_block(struct image_run *run, const struct conv_layer_batch *batch,
                          const struct block *block, const float *samples)
{
    const struct conv_layer *layer = &run->plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    int maps = layer->maps / layer->groups, taps = layer->kernel_height * layer->kernel_width;
    int first = block->group * maps + conv_layer_blocked_first(blocked, run->first_set);
    struct tile *tile = &run->tile;
    run->block = block;
    memcpy(tile->taps, run->all->taps, sizeof *tile->taps * (size_t)taps);
    tile->taps_end = tile->taps + taps;
    tile->channels = block->channels;
    tile->channel_taps = taps;
    tile->channel_size = block->is_direct ? blocked->width : blocked->channel_size;
    tile->continues = block->first_channel > 0;
    run->ends = block->first_channel + block->channels == layer->channels / layer->groups;
    tile->activation = run->ends ? layer->activation : CONV_ACTIVATION_NONE;
    run->packed = (const float *)run->plan->packed + blocked->weights +
                  (size_t)(first + block->group * (blocked->packed_maps - maps)) *
                      (conv_layer_taps(layer) + 1);
    run->dst =
        (uint8_t *)batch->dst + (size_t)(block->image * layer->maps + first) * tile->map_size;

    int rows = blocked->adjoining ? 1 : block->rows, most = CONV_LAYER_BLOCKED_SPAN * LANES;
    int count = blocked->adjoining ? block->rows * block->columns : block->columns;
    int spans = blocked->across ? 1 : (count + most - 1) / most; // about equally wide
    int wide = ((count + spans - 1) / spans + LANES - 1) / LANES * LANES;
    int tall = blocked->across ? rows : wide < most ? most / wide : 1;
    size_t at = (size_t)block->first_row * (size_t)blocked->width + (size_t)block->first_column;
    for (int i = 0; i < rows; i += tall)
        for (int j = 0; j < count; j += wide)
            compute_span(run, samples + (ptrdiff_t)i * blocked->pitch + j,
                         at + (size_t)(i * blocked->width + j), rows - i < tall ? rows - i : tall,
                         count - j < wide ? count - j : wide);
}

// Computes the next block, of at most that many rows and columns, from all channels.
static void run_block(struct image_run *run, const struct conv_layer_batch *batch,
                      struct block *block, int rows, int columns)
{
    const struct conv_layer *layer = &run->plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    int channels = layer->channels / layer->groups;
    int most = run->is_direct ? blocked->direct_columns : blocked->columns;
    block->is_direct = run->is_direct;
    block->rows = rows < blocked->rows ? rows : blocked->rows;
    block->columns = columns < most ? columns : most;
    int vectors = (block->columns + LANES - 1) / LANES;
    if (run->is_direct && !blocked->across &&
        vectors * LANES > blocked->width - block->first_column) { // the last one is copied
        block->is_direct = vectors > 1;
        block->columns = vectors > 1 ? (vectors - 1) * LANES : columns;
    }
    block->in_columns = (block->columns - 1) * layer->stride_x + conv_layer_reach_x(layer);
    run->skips = run->all->may_skip && blocked->kept < 0.98;
    for (int c = 0; c < channels; c += block->channels) {
        block->first_channel = c;
        block->channels = channels - c < blocked->channels ? channels - c : blocked->channels;
        const float *samples = samples_of(run->plan, batch, block);
        compute_block(run, batch, block, samples);
        if (run->has_minus_zero) { // once more, with all taps
            run->skips = run->has_minus_zero = false;
            c = -block->channels;
        }
    }
}

// Computes columns `begin` to `end` - 1 of the batch's rows.
static void run_columns(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        int begin, int end)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    size_t plane = (size_t)blocked->height * (size_t)blocked->width;
    int first = batch->first_set, last = first + (batch->sets ? batch->sets : plan->sets);
    int end_row = batch->first_row + batch->rows;
    bool by_group = plan->layer.groups > 1;
    enum conv_element output = plan->layer.output;
    struct conv_layer_tap taps[CONV_LAYER_MAX_SIDE * CONV_LAYER_MAX_SIDE];
    struct image_run run = {
        .plan = plan,
        .all = plan->packed,
        .first_set = by_group ? 0 : first,
        .end_set = by_group ? blocked->sets : last,
        .results = (float *)batch->scratch + blocked->results,
        .is_direct = blocked->direct && batch->src_plane == 4 * (int64_t)blocked->width,
        .tile = {.taps = taps, .output = output, .map_size = plane * conv_element_size(output)},
    };
    for (struct block b = {0}; b.image < batch->images; b.image++)
        for (b.group = by_group ? first : 0; b.group < (by_group ? last : 1); b.group++)
            for (b.first_row = batch->first_row; b.first_row < end_row; b.first_row += b.rows)
                for (b.first_column = begin; b.first_column < end; b.first_column += b.columns)
                    run_block(&run, batch, &b, end_row - b.first_row, end - b.first_column);
}

static enum conv_status run_blocked(const struct conv_layer_plan *plan,
                                    const struct conv_layer_batch *batch)
{
    struct conv_layer_plan flat = *plan;
    struct conv_layer_batch line = *batch;
    int width = plan->shape.width, end = batch->first_row + batch->rows;
    int64_t gap = batch->src_row - width * (int64_t)conv_element_size(plan->layer.input);
    if (!conv_layer_blocked_of(plan)->flat) {
        run_columns(plan, batch, 0, conv_layer_blocked_of(plan)->width);
        return CONV_OK;
    }
    flat.shape.width *= flat.shape.height;
    flat.shape.height = line.rows = 1;
    line.first_row = 0;
    for (int i = batch->first_row, rows = gap ? 1 : batch->rows; i < end; i += rows) {
        line.src = (const uint8_t *)batch->src + i * gap;
        run_columns(&flat, &line, i * width, (i + rows) * width);
    }
    return CONV_OK;
}

static bool plan_blocked(struct conv_layer_plan *plan)
{
    return conv_layer_blocked_plan(plan, LANES, MOST_MAPS, ACROSS_OUTPUTS(2));
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
