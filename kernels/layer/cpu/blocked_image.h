// SPDX-License-Identifier: MIT
// The loops over an image's tiles, and the variant's table entry, for the instruction set of the
// including file: see blocked_tile.h.
#ifndef CONV_KERNELS_LAYER_CPU_BLOCKED_IMAGE_H
#define CONV_KERNELS_LAYER_CPU_BLOCKED_IMAGE_H

#include "base/features.h"
#include "kernels/layer/cpu/blocked_copy.h"
#include "kernels/layer/cpu/blocked_tile.h"

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
    bool is_dense = layer->stride <= layer->kernel_height &&
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
    uint8_t *dst;
    struct tile tile;
    struct ahead ahead;
};

// Whether a group's outputs are the first, or the last, of all that are adjacent.
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

// Computes `count` adjacent outputs of the maps of a group.
static void compute_group(struct image_run *run, int maps, const float *samples, uint8_t *dst,
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

// Computes all maps of `count` adjacent outputs, from element `at` of each map on; their samples
// are at `samples`. It works on a few hundred outputs at a time: their samples stay in the level 1
// cache, and each fetched weight is used for all of them.
static void compute_span(struct image_run *run, const float *samples, size_t at, int count)
{
    const struct conv_layer *layer = &run->plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    struct tile *tile = &run->tile;
    size_t taps = conv_layer_blocked_taps(layer);
    const int most = 24 * LANES; // a multiple of most tiles
    for (int done = 0; done < count; done += most) {
        int n = count - done < most ? count - done : most;
        const float *packed = (const float *)run->plan->packed + conv_layer_blocked_offsets(layer);
        uint8_t *dst = run->dst + (at + (size_t)done) * conv_element_size(tile->output);
        struct ends ends = {done == 0, done + n == count};
        vec *kept = tile->kept;
        for (int g = 0; g < blocked->groups; g++) {
            int maps = conv_layer_blocked_maps(blocked, g);
            tile->bias = packed;
            tile->weights = packed + maps;
            compute_group(run, maps, samples + done, dst, n, ends);
            if (tile->kept)
                tile->kept += maps;
            packed += (size_t)maps * (taps + 1);
            dst += (size_t)maps * tile->map_size;
        }
        tile->kept = kept;
    }
}

static void compute_block(struct image_run *run, const struct conv_layer_batch *batch,
                          const struct block *block)
{
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(run->plan);
    const float *samples = batch->scratch;
    copy_block(run->plan, batch, block);
    size_t width = (size_t)blocked->width;
    size_t at = (size_t)block->first_row * width + (size_t)block->first_column;
    if (blocked->adjoining) {
        compute_span(run, samples, at, block->rows * block->columns);
        return;
    }
    for (int i = 0; i < block->rows; i++)
        compute_span(run, samples + (ptrdiff_t)i * blocked->pitch, at + (size_t)i * width,
                     block->columns);
}

static void compute_image(struct image_run *run, const struct conv_layer_batch *batch,
                          const uint8_t *image)
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
                .columns =
                    blocked->width - j < blocked->columns ? blocked->width - j : blocked->columns,
            };
            compute_block(run, batch, &block);
        }
    }
}

// About the number of tiles for `rows` output rows.
static ptrdiff_t tiles_of(const struct conv_layer_blocked *blocked, int rows)
{
    ptrdiff_t outputs = (ptrdiff_t)rows * blocked->width;
    ptrdiff_t tile = VECTORS_FOR(blocked->most_maps) * LANES;
    return (outputs + tile - 1) / tile * blocked->groups;
}

static enum conv_status run_blocked(const struct conv_layer_plan *plan,
                                    const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    size_t map_size =
        (size_t)blocked->height * (size_t)blocked->width * conv_element_size(layer->output);
    struct image_run run = {
        .plan = plan,
        .dst = batch->dst,
        .tile = {.offsets = plan->packed,
                 .offsets_end = (const int32_t *)plan->packed + conv_layer_blocked_taps(layer),
                 .activation = layer->activation,
                 .output = layer->output,
                 .map_size = map_size},
    };
    if (blocked->kept)
        run.tile.kept = (vec *)(void *)((uint8_t *)batch->scratch + blocked->kept);
    run.ahead = plan_ahead(plan, batch, tiles_of(blocked, batch->rows));
    for (int64_t b = 0; b < batch->images; b++) {
        const uint8_t *image = (const uint8_t *)batch->src + b * batch->src_image;
        begin_ahead(&run.ahead, b + 1 < batch->images ? image + batch->src_image : NULL,
                    layer->channels);
        compute_image(&run, batch, image);
        run.dst += (size_t)layer->maps * map_size;
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
        .pads = true,                                                                              \
        .plan = plan_blocked,                                                                      \
        .score = score_blocked,                                                                    \
        .pack = conv_layer_blocked_pack,                                                           \
        .run = run_blocked,                                                                        \
    }

#endif
