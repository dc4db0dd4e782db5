// SPDX-License-Identifier: MIT
// Fetches the next image into the cache, a few lines with each tile of the current one: a small
// image ends before the prefetcher of the hardware has found its next line. Part of
// blocked_image.h.
#ifndef CONV_KERNELS_LAYER_CPU_BLOCKED_AHEAD_H
#define CONV_KERNELS_LAYER_CPU_BLOCKED_AHEAD_H

#include "kernels/layer/cpu/blocked_copy.h"

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

// Plans what each of the `tiles` tiles of an image fetches, if images are one block each.
static struct ahead plan_ahead(const struct conv_layer_plan *plan,
                               const struct conv_layer_batch *batch, ptrdiff_t tiles)
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
    if (!is_block || !is_dense || top >= bottom || tiles < 1)
        return ahead;
    ahead.bytes = (bottom - top - 1) * batch->src_row + row;
    ptrdiff_t lines = (ahead.bytes / LINE + 1) * layer->channels / tiles + 1;
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

#endif
