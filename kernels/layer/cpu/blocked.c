// SPDX-License-Identifier: MIT
// Chooses how a layer's input is copied and in which blocks, and packs its weights.
#include "kernels/layer/cpu/blocked.h"

// Half of the smallest level 2 cache that processors with these instruction sets have, in bytes.
#define MOST_COPIED (192 << 10)

static int min(int a, int b)
{
    return a < b ? a : b;
}

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

// Sets everything about the copy that follows from `adjoining`, `rows` and `columns`.
static void lay_out(struct conv_layer_blocked *blocked, const struct conv_layer *layer, int lanes)
{
    int stride = layer->stride;
    blocked->row_phases = min(stride, layer->kernel_height);
    blocked->copies = blocked->adjoining ? layer->kernel_width : min(stride, layer->kernel_width);
    blocked->pitch = blocked->adjoining
                         ? blocked->width
                         : round_up(blocked->columns, lanes) + (layer->kernel_width - 1) / stride;
    ptrdiff_t rows = blocked->rows + (layer->kernel_height - 1) / stride;
    blocked->copy_size = rows * blocked->pitch;
    blocked->phase_size = blocked->copies * blocked->copy_size;
    blocked->channel_size = blocked->row_phases * blocked->phase_size;
    // A vector may begin at the last element.
    blocked->line = layer->channels * blocked->channel_size + lanes;
}

// An estimate of the time for a plane, in vector instructions.
static double cost(const struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                   int lanes)
{
    double rows = blocked->rows, columns = blocked->columns;
    double taps = (double)layer->channels * layer->kernel_height * layer->kernel_width;
    double vectors = blocked->adjoining ? rows * columns / lanes + 0.5
                                        : rows * (round_up(blocked->columns, lanes) / lanes);
    // Copying a vector costs about as much as three taps.
    double copied = (double)layer->channels * (double)blocked->channel_size / lanes;
    return (vectors * taps * layer->maps + 3 * copied) / (rows * columns);
}

// The largest block whose copy is small enough, with all columns if they are adjoining.
static void choose_block(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                         int lanes)
{
    blocked->columns = blocked->width;
    for (;;) {
        int blocks = 1; // that a plane's rows are shared among, about evenly
        do {
            blocked->rows = (blocked->height + blocks - 1) / blocks;
            lay_out(blocked, layer, lanes);
            blocks++;
        } while (blocked->rows > 1 && blocked->line * (ptrdiff_t)sizeof(float) > MOST_COPIED);
        // Rows that share much of their input are worth more than long rows.
        bool small = blocked->line * (ptrdiff_t)sizeof(float) <= MOST_COPIED &&
                     blocked->rows >= min(blocked->height, 4);
        if (small || blocked->adjoining || blocked->columns <= 8 * lanes)
            return;
        blocked->columns = round_up(blocked->columns / 2, 4 * lanes);
    }
}

static void choose_copy(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                        int lanes)
{
    struct conv_layer_blocked adjoining = *blocked;
    adjoining.adjoining = true;
    choose_block(&adjoining, layer, lanes);
    choose_block(blocked, layer, lanes);
    bool fits = adjoining.line * (ptrdiff_t)sizeof(float) <= 4 * MOST_COPIED;
    if (fits && cost(&adjoining, layer, lanes) < cost(blocked, layer, lanes))
        *blocked = adjoining;
}

static void pack(struct conv_layer_plan *plan, const struct conv_layer_blocked *blocked)
{
    const struct conv_layer *layer = plan->layer;
    int32_t *offsets = plan->packed;
    for (int u = 0; u < layer->kernel_height; u++) {
        for (int v = 0; v < layer->kernel_width; v++) {
            ptrdiff_t at = u % layer->stride * blocked->phase_size +
                           (ptrdiff_t)(u / layer->stride) * blocked->pitch;
            if (blocked->adjoining)
                at += v * blocked->copy_size;
            else
                at += v % layer->stride * blocked->copy_size + v / layer->stride;
            *offsets++ = (int32_t)at;
        }
    }
    size_t taps =
        (size_t)layer->channels * (size_t)layer->kernel_height * (size_t)layer->kernel_width;
    float *packed = (float *)plan->packed + conv_layer_blocked_offsets(layer);
    int first = 0;
    for (int g = 0; g < blocked->groups; g++) {
        int maps = conv_layer_blocked_maps(blocked, g);
        for (int m = first; m < first + maps; m++)
            *packed++ = layer->bias ? layer->bias[m] : 0;
        for (size_t k = 0; k < taps; k++)
            for (int m = first; m < first + maps; m++)
                *packed++ = layer->weights[(size_t)m * taps + k];
        first += maps;
    }
}

size_t conv_layer_blocked_packed_bytes(const struct conv_layer *layer,
                                       const struct conv_layer_shape *shape)
{
    (void)shape;
    size_t taps =
        (size_t)layer->channels * (size_t)layer->kernel_height * (size_t)layer->kernel_width;
    return conv_layer_blocked_offsets(layer) * sizeof(int32_t) +
           (size_t)layer->maps * (taps + 1) * sizeof(float);
}

void conv_layer_blocked_plan(struct conv_layer_plan *plan, int lanes, int most_maps)
{
    const struct conv_layer *layer = plan->layer;
    struct conv_layer_blocked *blocked = (struct conv_layer_blocked *)(void *)plan->constants;
    *blocked = (struct conv_layer_blocked){
        .height = conv_layer_out_height(layer, plan->shape.height),
        .width = conv_layer_out_width(layer, plan->shape.width),
        .groups = (layer->maps + most_maps - 1) / most_maps,
    };
    blocked->most_maps = (layer->maps + blocked->groups - 1) / blocked->groups;
    blocked->short_groups = blocked->groups * blocked->most_maps - layer->maps;
    choose_copy(blocked, layer, lanes);
    size_t line =
        (size_t)(blocked->columns - 1) * (size_t)layer->stride + (size_t)layer->kernel_width;
    plan->scratch = ((size_t)blocked->line + line) * sizeof(float);
    pack(plan, blocked);
}
