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

// Copies the input of a block of outputs to scratch, as blocked.h describes. Part of
// blocked_image.h.

// A block of outputs of one image.
struct block {
    const uint8_t *image;
    int first_row, rows, first_column, columns;
    int group; // of the layer
};

// Every `stride`-th sample.
static inline void copy_samples(float *dst, const float *src, int n, int stride)
{
    int j = 0;
    if (stride == 1) {
        for (; j + LANES <= n; j += LANES)
            put(dst + j, load(src + j));
        if (j < n)
            PUT_SOME(dst + j, GET_SOME(src + j, n - j), n - j);
        return;
    }
#ifdef EVENS
    for (; stride == 2 && j + LANES < n; j += LANES)
        put(dst + j, EVENS(load(src + 2 * j), load(src + 2 * j + LANES)));
    if (stride == 2 && j < n) {
        int left = 2 * (n - j) - 1; // samples
        vec low = left < LANES ? GET_SOME(src + 2 * j, left) : load(src + 2 * j), high = low;
        if (left > LANES)
            high = GET_SOME(src + 2 * j + LANES, left - LANES);
        PUT_SOME(dst + j, EVENS(low, high), n - j);
        return;
    }
#endif
    for (; j < n; j++)
        dst[j] = src[(ptrdiff_t)j * stride];
}

static void convert(const struct conv_layer *layer, const uint8_t *row, int x, int n, float *line)
{
    if (layer->input == CONV_ELEMENT_F32) {
        copy_samples(line, (const float *)(const void *)row + x, n, 1);
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
    if (y < 0 || y >= plan->shape.height)
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
    if (layer->border == CONV_BORDER_CONSTANT) {
        for (int i = 0; i < first; i++)
            line[i] = layer->border_value;
        for (int i = last; i < n; i++)
            line[i] = layer->border_value;
        return line;
    }
    for (int i = 0; i < n; i = i + 1 == first ? last : i + 1)
        if (i < first || i >= last)
            convert(layer, row, conv_border_index(layer->border, x + i, width), 1, line + i);
    return line;
}

// Vectors read up to LANES - 1 elements after the last sample. Old contents of scratch there would
// not change an output, but if they are subnormal, arithmetic on them takes a hundred times as
// long.
static void clear_after(float *from, const float *end)
{
    if (end - from >= LANES)
        put(from, (vec){0});
    else
        for (; from < end; from++)
            *from = 0;
}

static void clear_row(const struct conv_layer_blocked *blocked, float *row, int used)
{
    if (blocked->spaced && used < blocked->pitch) // results are computed from all of it
        memset(row + used, 0, (size_t)(blocked->pitch - used) * sizeof *row);
    else if (!blocked->adjoining && !blocked->spaced)
        clear_after(row + used, row + blocked->pitch);
}

// Makes the copies of one input row, of which `n` samples are needed.
static void copy_row(const struct conv_layer_plan *plan, const float *line, int n, float *dst)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    int stride = plan->layer.stride_x, step = blocked->adjoining ? plan->layer.dilation_x : 1;
    for (int k = 0; k < blocked->copies; k++) {
        int count = blocked->adjoining ? blocked->width : (n - k + stride - 1) / stride;
        float *to = dst + k * blocked->copy_size;
        copy_samples(to, line + k * step, count, stride);
        clear_row(blocked, to, count);
    }
}

// For a block of adjoining or spaced rows with fewer rows than fit, clears the elements after the
// rows of each copy and after the last copy.
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
        .top = block->first_row * layer->stride_y - layer->pad_top,
        .left = block->first_column * layer->stride_x - layer->pad_left,
        .rows = (block->rows - 1) * layer->stride_y + conv_layer_reach_y(layer),
        .columns = (block->columns - 1) * layer->stride_x + conv_layer_reach_x(layer),
    };
}

// Makes the copies of a channel row by row: for strides.
static void copy_rows(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                      const uint8_t *plane, const struct window *window, float *line, float *dst)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    int stride = plan->layer.stride_y;
    for (int r = 0; r < window->rows; r++) {
        if (r % stride >= blocked->row_phases)
            continue;
        const float *samples =
            read_line(plan, batch, plane, window->top + r, window->left, window->columns, line);
        copy_row(plan, samples, window->columns,
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

// Makes the copies of a channel for adjoining rows without stride, from a window at `src`.
static void copy_window(const struct conv_layer_plan *plan, const struct window *window,
                        const float *src, ptrdiff_t src_row, const float *src_end, float *dst)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    for (int k = 0; k < blocked->copies; k++)
        copy_whole_rows(dst + k * blocked->copy_size, blocked->pitch,
                        src + k * plan->layer.dilation_x, src_row, src_end, window->rows,
                        blocked->width);
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
            copy_samples(line, samples, window->columns, 1);
    }
    copy_window(plan, window, padded, columns, line + LANES, dst);
}

// Makes the only copy of a channel without stride: of rows that do not adjoin.
static void copy_once(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                      const uint8_t *plane, const struct window *window, float *dst)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    for (int r = 0; r < window->rows; r++, dst += blocked->pitch) {
        const float *samples =
            read_line(plan, batch, plane, window->top + r, window->left, window->columns, dst);
        if (samples != dst)
            copy_samples(dst, samples, window->columns, 1);
        clear_row(blocked, dst, window->columns);
    }
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
    int channels = layer->channels / layer->groups;
    for (int c = 0; c < channels; c++) {
        const uint8_t *plane = block->image + (block->group * channels + c) * batch->src_plane;
        float *channel = scratch + c * blocked->channel_size;
        if (layer->stride_y > 1 || layer->stride_x > 1) {
            copy_rows(plan, batch, plane, &window, line, channel);
        } else if (!blocked->adjoining) {
            copy_once(plan, batch, plane, &window, channel);
        } else if (!inside) {
            copy_padded(plan, batch, plane, &window, line, channel);
        } else {
            const float *src = (const float *)(const void *)plane;
            copy_window(plan, &window, src + window.top * src_row + window.left, src_row,
                        src + (plan->shape.height - 1) * src_row + plan->shape.width, channel);
        }
    }
    if (blocked->adjoining || blocked->spaced)
        clear_after_rows(blocked, channels, layer->stride_y, window.rows, scratch);
}

// -------------------------------------------------------------------------------------------------

// --- the next image ------------------------------------------------------------------------------
// Fetches the next image into the cache, a few lines with each tile of the current one: a small
// image ends before the prefetcher of the hardware has found its next line.

#define LINE 64
// A plane's bytes are fetched from its first row to its last, unless more than this share of them
// lies between rows.
#define MOST_BETWEEN 0.25
// Of a tile. A tile that needs more is computed sooner than they arrive.
#define MOST_LINES 64

struct ahead {
    const uint8_t *plane, *next, *end; // of the current plane: the line to fetch, and its end
    ptrdiff_t first, bytes;            // what is fetched of each image's planes
    ptrdiff_t plane_stride;
    int planes; // after this one
    int lines;  // for each tile; 0: the images are not fetched
};

// Plans what each of the `tile_count` tiles of an image fetches, if images are one block each.
static struct ahead plan_ahead(const struct conv_layer_plan *plan,
                               const struct conv_layer_batch *batch, ptrdiff_t tile_count)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    struct block block = {.first_row = batch->first_row, .rows = batch->rows};
    struct window window = window_of(layer, &block);
    int top = window.top > 0 ? window.top : 0, bottom = window.top + window.rows;
    bottom = bottom < plan->shape.height ? bottom : plan->shape.height;
    ptrdiff_t row = plan->shape.width * (ptrdiff_t)conv_element_size(layer->input);
    struct ahead ahead = {.plane_stride = batch->src_plane, .first = top * batch->src_row};
    bool is_block = batch->rows <= blocked->rows && blocked->columns == blocked->width;
    bool is_dense = layer->stride_y <= conv_layer_reach_y(layer) &&
                    (double)batch->src_row <= (1 + MOST_BETWEEN) * (double)row;
    if (!is_block || !is_dense || top >= bottom || tile_count < 1)
        return ahead;
    ahead.bytes = (bottom - top - 1) * batch->src_row + row;
    ptrdiff_t lines = (ahead.bytes / LINE + 1) * layer->channels / tile_count + 1;
    ahead.lines = lines < MOST_LINES ? (int)lines : MOST_LINES;
    return ahead;
}

// Begins with the planes of the image at `image`; NULL: there is none.
static void begin_ahead(struct ahead *ahead, const uint8_t *image, int channels)
{
    ahead->plane = ahead->next = ahead->end = NULL;
    ahead->planes = 0;
    if (image && ahead->lines > 0) {
        ahead->plane = ahead->next = image + ahead->first;
        ahead->end = ahead->plane + ahead->bytes;
        ahead->planes = channels - 1;
    }
}

static inline void fetch_ahead(struct ahead *ahead)
{
    for (int n = 0; n < ahead->lines; n++, ahead->next += LINE) {
        if (ahead->next >= ahead->end) {
            if (ahead->planes == 0)
                return;
            ahead->planes--;
            ahead->plane += ahead->plane_stride;
            ahead->next = ahead->plane;
            ahead->end = ahead->plane + ahead->bytes;
        }
        __builtin_prefetch(ahead->next, 0);
    }
}

// --- the loops -----------------------------------------------------------------------------------

// The outputs of one image, and what its tiles have in common.
struct image_run {
    const struct conv_layer_plan *plan;
    uint8_t *dst;        // of the image's next group of maps
    const float *packed; // the weights of that
    struct tile tile;
    struct ahead ahead;
};

// Whether a set's outputs are the first, or the last, of all that are adjacent.
struct ends {
    bool is_first, is_last;
};

static enum tile_stores choose_stores(struct tile *tile, bool is_first, bool is_last)
{
    if (!tile->kept)
        return TILE_CACHED;
    tile->keeps = !is_first;
    return is_last ? TILE_STREAMED_LAST : is_first ? TILE_STREAMED_FIRST : TILE_STREAMED;
}

// Computes `count` adjacent outputs of the maps of a set.
static void compute_set(struct image_run *run, int maps, const float *samples, uint8_t *dst,
                        int count, struct ends ends)
{
    struct tile *tile = &run->tile;
    int left = (count + LANES - 1) / LANES; // vectors
    for (int n = (left + VECTORS_FOR(maps) - 1) / VECTORS_FOR(maps), done = 0; n > 0; n--) {
        int vectors = (left + n - 1) / n; // of tiles about equally large
        tile->samples = samples + done;
        tile->dst = dst + (size_t)done * conv_element_size(tile->output);
        tile->count = count - done;
        tile->stores = choose_stores(tile, ends.is_first && done == 0, ends.is_last && n == 1);
        fetch_ahead(&run->ahead);
        tiles[maps][vectors](tile);
        left -= vectors;
        done += vectors * LANES;
    }
}

// Computes all maps of a group, of `count` adjacent outputs, from element `at` of each map on;
// their samples are at `samples`. It works on a few hundred outputs at a time: their samples stay
// in the level 1 cache, and each fetched weight is used for all of them.
static void compute_span(struct image_run *run, const float *samples, size_t at, int count)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    struct tile *tile = &run->tile;
    size_t taps = conv_layer_taps(&run->plan->layer);
    const int most = 24 * LANES; // a multiple of most tiles
    for (int done = 0; done < count; done += most) {
        int n = count - done < most ? count - done : most;
        const float *packed = run->packed;
        uint8_t *dst = run->dst + (at + (size_t)done) * conv_element_size(tile->output);
        struct ends ends = {done == 0, done + n == count};
        vec *kept = tile->kept;
        for (int s = 0; s < blocked->sets; s++) {
            int maps = conv_layer_blocked_maps(blocked, s);
            tile->bias = packed;
            tile->weights = packed + maps;
            compute_set(run, maps, samples + done, dst, n, ends);
            if (tile->kept)
                tile->kept += maps;
            packed += (size_t)maps * (taps + 1);
            dst += (size_t)maps * tile->map_size;
        }
        tile->kept = kept;
    }
}

// Moves `rows` results of `columns` elements each, which may be followed by others.
static void move_results(uint8_t *dst, size_t dst_row, const float *src, size_t src_row, int rows,
                         int columns, enum conv_element element)
{
    for (int i = 0; i < rows; i++, dst += dst_row) {
        if (element == CONV_ELEMENT_F32)
            copy_samples((float *)(void *)dst, src + (size_t)i * src_row, columns, 1);
        else
            memcpy(dst, (const uint16_t *)(const void *)src + (size_t)i * src_row,
                   (size_t)columns * 2);
    }
}

// All maps of a group, for spaced rows.
static void compute_spaced(struct image_run *run, float *scratch, size_t at,
                           const struct block *block)
{
    const struct conv_layer *layer = &run->plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    size_t element = conv_element_size(layer->output), map_size = run->tile.map_size;
    size_t results = (size_t)blocked->rows * (size_t)blocked->pitch; // elements of a map
    float *src = scratch + blocked->results;
    uint8_t *dst = run->dst;
    run->dst = (uint8_t *)src;
    run->tile.map_size = results * element;
    compute_span(run, scratch, 0, (block->rows - 1) * blocked->pitch + block->columns);
    run->dst = dst;
    run->tile.map_size = map_size;
    dst += at * element;
    for (int m = 0; m < layer->maps / layer->groups; m++, dst += map_size)
        move_results(dst, (size_t)blocked->width * element,
                     (const float *)(const void *)((uint8_t *)src + (size_t)m * results * element),
                     (size_t)blocked->pitch, block->rows, block->columns, layer->output);
}

static void compute_block(struct image_run *run, const struct conv_layer_batch *batch,
                          const struct block *block)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    float *samples = batch->scratch;
    copy_block(run->plan, batch, block);
    size_t width = (size_t)blocked->width;
    size_t at = (size_t)block->first_row * width + (size_t)block->first_column;
    if (blocked->adjoining) {
        compute_span(run, samples, at, block->rows * block->columns);
        return;
    }
    if (blocked->spaced) {
        compute_spaced(run, samples, at, block);
        return;
    }
    for (int i = 0; i < block->rows; i++)
        compute_span(run, samples + (ptrdiff_t)i * blocked->pitch, at + (size_t)i * width,
                     block->columns);
}

// One group of the layer.
static void compute_image(struct image_run *run, const struct conv_layer_batch *batch,
                          const uint8_t *image, int group)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    int end = batch->first_row + batch->rows;
    for (int i = batch->first_row; i < end; i += blocked->rows) {
        for (int j = 0; j < blocked->width; j += blocked->columns) {
            struct block block = {
                .image = image,
                .first_row = i,
                .rows = end - i < blocked->rows ? end - i : blocked->rows,
                .first_column = j,
                .group = group,
                .columns =
                    blocked->width - j < blocked->columns ? blocked->width - j : blocked->columns,
            };
            compute_block(run, batch, &block);
        }
    }
}

// About the number of tiles for `rows` output rows.
static ptrdiff_t tiles_of(const struct conv_layer_blocked *blocked, int groups, int rows)
{
    ptrdiff_t outputs = (ptrdiff_t)rows * blocked->width;
    ptrdiff_t tile = VECTORS_FOR(blocked->most_maps) * LANES;
    return (outputs + tile - 1) / tile * blocked->sets * groups;
}

static enum conv_status run_blocked(const struct conv_layer_plan *plan,
                                    const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    size_t map_size =
        (size_t)blocked->height * (size_t)blocked->width * conv_element_size(layer->output);
    size_t maps = (size_t)(layer->maps / layer->groups);
    struct image_run run = {
        .plan = plan,
        .dst = batch->dst,
        .tile = {.offsets = plan->packed,
                 .offsets_end = (const int32_t *)plan->packed + conv_layer_taps(layer),
                 .activation = layer->activation,
                 .output = layer->output,
                 .map_size = map_size},
    };
    if (blocked->kept)
        run.tile.kept = (vec *)(void *)((uint8_t *)batch->scratch + blocked->kept);
    run.ahead = plan_ahead(plan, batch, tiles_of(blocked, layer->groups, batch->rows));
    for (int64_t b = 0; b < batch->images; b++) {
        const uint8_t *image = (const uint8_t *)batch->src + b * batch->src_image;
        begin_ahead(&run.ahead, b + 1 < batch->images ? image + batch->src_image : NULL,
                    layer->channels);
        run.packed = (const float *)plan->packed + conv_layer_blocked_offsets(layer);
        for (int g = 0; g < layer->groups; g++) {
            compute_image(&run, batch, image, g);
            run.packed += maps * (conv_layer_taps(layer) + 1);
            run.dst += maps * map_size;
        }
    }
#ifdef STREAM
    if (blocked->kept)
        FENCE();
#endif
    return CONV_OK;
}

static bool plan_blocked(struct conv_layer_plan *plan)
{
#ifdef STREAM
    return conv_layer_blocked_plan(plan, LANES, MOST_MAPS, true);
#else
    return conv_layer_blocked_plan(plan, LANES, MOST_MAPS, false);
#endif
}

static int score_blocked(const struct conv_layer_plan *plan)
{
    (void)plan;
    return SCORE;
}

#define CONV_LAYER_BLOCKED(symbol, needed, text)                                                   \
    const struct conv_layer_variant conv_##symbol = {                                              \
        .name = #symbol,                                                                           \
        .summary = text,                                                                           \
        .place = CONV_ON_CPU,                                                                      \
        .needs = needed,                                                                           \
        .precision = CONV_PRECISION_EXACT,                                                         \
        .handles = CONV_LAYER_ANY,                                                                 \
        .plan = plan_blocked,                                                                      \
        .score = score_blocked,                                                                    \
        .pack = conv_layer_blocked_pack,                                                           \
        .run = run_blocked,                                                                        \
    }

#endif
