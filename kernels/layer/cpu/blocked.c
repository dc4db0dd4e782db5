// SPDX-License-Identifier: MIT
// Chooses how a layer's input is copied and in which blocks, and packs its weights.
#include "kernels/layer/cpu/blocked.h"

// Bytes of the copy. It shares the level 2 cache with weights and outputs: x86 processors have had
// at least 256 KiB since 2008. If larger blocks waste less, 768 KiB, which fit those since 2017.
#define MOST_COPIED (256 << 10)
#define MOST_COPIED_LARGE (768 << 10)
#define MOST_LANES 16 // of any variant
#define IN_FLIGHT 8

// Outputs bypass the caches if those of a launch have more bytes than a core's part of the caches,
// because a normal store first reads the line that it changes.
#define LEAST_STREAMED ((double)(8 << 20))
// With more taps per output, arithmetic is the limit, and the lines arrive meanwhile (3->64 on
// 224x224, one core: 3x3, 27 taps, 1.37 ms, streamed 1.23 ms; 7x7, 147 taps, 5.6 ms, streamed 6.1
// ms).
#define MOST_STREAMED_TAPS 100
// Only adjoining rows form whole cache lines. Storing a vector of other rows then costs as much as
// this many taps more.
#define STORED_TAPS 4.0

static int min(int a, int b)
{
    return a < b ? a : b;
}

static int group_channels(const struct conv_layer *layer)
{
    return layer->channels / layer->groups;
}

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

// Sets everything about the copy that follows from the kind of copy, `rows` and `columns`.
static void lay_out(struct conv_layer_blocked *blocked, const struct conv_layer *layer, int lanes)
{
    int reach_y = conv_layer_reach_y(layer), reach_x = conv_layer_reach_x(layer);
    blocked->row_phases = min(layer->stride_y, reach_y);
    blocked->copies = blocked->adjoining ? layer->kernel_width : min(layer->stride_x, reach_x);
    int more = blocked->adjoining ? 0 : (reach_x - 1) / layer->stride_x;
    bool whole = !blocked->adjoining && !blocked->spaced; // vectors
    blocked->pitch = (whole ? round_up(blocked->columns, lanes) : blocked->columns) + more;
    ptrdiff_t rows = blocked->rows + (reach_y - 1) / layer->stride_y;
    blocked->copy_size = rows * blocked->pitch;
    blocked->phase_size = blocked->copies * blocked->copy_size;
    blocked->channel_size = blocked->row_phases * blocked->phase_size;
    // A vector read may begin at the last element.
    blocked->results = group_channels(layer) * blocked->channel_size + lanes;
    blocked->line = blocked->results;
    if (blocked->spaced)
        blocked->line +=
            (ptrdiff_t)(layer->maps / layer->groups) * blocked->rows * blocked->pitch + lanes;
}

// An estimate of the time for a group of a plane, in vector instructions.
static double cost(const struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                   int lanes)
{
    double rows = blocked->rows, columns = blocked->columns;
    double taps = (double)conv_layer_taps(layer);
    // The last tile is rarely full, and a vector across a row's end partly unused. A tile with
    // fewer sums than multiply-adds that a processor has in flight (two units, four cycles) takes
    // as long as if it had them.
    double row_vectors = round_up(blocked->columns, lanes) / lanes;
    double vectors = blocked->adjoining ? rows * columns / lanes + 1
                     : blocked->spaced  ? rows * blocked->pitch / lanes + 1
                                        : rows * row_vectors;
    bool whole = !blocked->adjoining && !blocked->spaced;
    double sums = blocked->most_maps * (whole ? row_vectors : vectors);
    double waits = sums < IN_FLIGHT ? IN_FLIGHT / sums : 1;
    // Copying a vector costs about as much as six taps, and moving a result as three.
    double copied = (double)group_channels(layer) * (double)blocked->channel_size / lanes;
    double moved = blocked->spaced ? 3 : 0;
    return (vectors * (taps * waits + moved) * layer->maps / layer->groups + 6 * copied) /
           (rows * columns);
}

static bool is_small(const struct conv_layer_blocked *blocked, ptrdiff_t most)
{
    return blocked->line * (ptrdiff_t)sizeof(float) <= most;
}

// Sets the rows of a block so that its copy has at most `most` bytes (or to 1), and so that blocks
// share the rows of a plane about evenly.
static void choose_rows(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                        int lanes, ptrdiff_t most)
{
    blocked->rows = 1;
    lay_out(blocked, layer, lanes);
    ptrdiff_t row = (ptrdiff_t)group_channels(layer) * blocked->row_phases * blocked->copies *
                    blocked->pitch * (ptrdiff_t)sizeof(float);
    if (blocked->spaced)
        row += (ptrdiff_t)(layer->maps / layer->groups) * blocked->pitch * (ptrdiff_t)sizeof(float);
    ptrdiff_t more = (most - blocked->line * (ptrdiff_t)sizeof(float)) / row;
    if (more <= 0)
        return;
    int rows = more < blocked->height - 1 ? 1 + (int)more : blocked->height;
    int blocks = (blocked->height + rows - 1) / rows;
    blocked->rows = (blocked->height + blocks - 1) / blocks;
    lay_out(blocked, layer, lanes);
}

// The largest block whose copy has at most `most` bytes, with all columns if they are adjoining.
// False if there is none; the block is then the smallest.
static bool choose_block(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                         int lanes, ptrdiff_t most)
{
    blocked->columns = blocked->width;
    for (;;) {
        choose_rows(blocked, layer, lanes, most);
        // Several rows, which share much of their input, are worth more than long rows.
        bool small = is_small(blocked, most) && blocked->rows >= min(blocked->height, 4);
        if (small || blocked->adjoining || blocked->columns <= 8 * lanes)
            return is_small(blocked, most);
        blocked->columns = round_up(blocked->columns / 2, 4 * lanes);
    }
}

static void choose_copy(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                        int lanes, double stored_taps)
{
    struct conv_layer_blocked adjoining = *blocked, spaced = *blocked;
    adjoining.adjoining = true;
    spaced.spaced = true;
    double gain = 1 + stored_taps / (double)conv_layer_taps(layer);
    choose_block(blocked, layer, lanes, MOST_COPIED);
    if (choose_block(&adjoining, layer, lanes, MOST_COPIED) &&
        cost(&adjoining, layer, lanes) < gain * cost(blocked, layer, lanes))
        *blocked = adjoining;
    if (choose_block(&adjoining, layer, lanes, MOST_COPIED_LARGE) &&
        cost(&adjoining, layer, lanes) < 0.97 * cost(blocked, layer, lanes))
        *blocked = adjoining;
    if (choose_block(&spaced, layer, lanes, MOST_COPIED) &&
        cost(&spaced, layer, lanes) < cost(blocked, layer, lanes))
        *blocked = spaced;
}

// Where the samples of a tap begin in the copy.
static ptrdiff_t offset_of(const struct conv_layer_plan *plan, int c, int u, int v)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    int down = u * layer->dilation_y, across = v * layer->dilation_x;
    ptrdiff_t at = c * blocked->channel_size + down % layer->stride_y * blocked->phase_size +
                   (ptrdiff_t)(down / layer->stride_y) * blocked->pitch;
    if (blocked->adjoining)
        return at + v * blocked->copy_size;
    return at + across % layer->stride_x * blocked->copy_size + across / layer->stride_x;
}

void conv_layer_blocked_pack(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    int32_t *offsets = plan->packed;
    for (int c = 0; c < group_channels(layer); c++)
        for (int u = 0; u < layer->kernel_height; u++)
            for (int v = 0; v < layer->kernel_width; v++)
                *offsets++ = (int32_t)offset_of(plan, c, u, v);
    size_t taps = conv_layer_taps(layer);
    float *packed = (float *)plan->packed + conv_layer_blocked_offsets(layer);
    for (int first = 0, s = 0; first < layer->maps; s = (s + 1) % blocked->sets) {
        int maps = conv_layer_blocked_maps(blocked, s);
        for (int m = first; m < first + maps; m++)
            *packed++ = layer->bias ? layer->bias[m] : 0;
        for (size_t k = 0; k < taps; k++)
            for (int m = first; m < first + maps; m++)
                *packed++ = layer->weights[(size_t)m * taps + k];
        first += maps;
    }
}

// Offsets in the smallest block, of 8 vectors, are int32_t.
static bool offsets_fit(const struct conv_layer *layer)
{
    int height = conv_layer_reach_y(layer), width = conv_layer_reach_x(layer);
    int64_t rows = (int64_t)min(layer->stride_y, height) * (1 + (height - 1) / layer->stride_y);
    int64_t columns =
        (int64_t)min(layer->stride_x, width) * (8 * MOST_LANES + (width - 1) / layer->stride_x);
    return group_channels(layer) <= INT32_MAX / (rows * columns);
}

// True if outputs bypass the caches, provided that their rows adjoin.
static bool is_streamed(const struct conv_layer_plan *plan,
                        const struct conv_layer_blocked *blocked)
{
    const struct conv_layer *layer = &plan->layer;
    double outputs = (double)plan->shape.images * layer->maps * blocked->height * blocked->width;
    return layer->output == CONV_ELEMENT_F32 && layer->activation <= CONV_ACTIVATION_RELU &&
           conv_layer_taps(layer) <= MOST_STREAMED_TAPS &&
           outputs * sizeof(float) >= LEAST_STREAMED;
}

// Floats of the padded input: with a stride one row of it, otherwise that of a block.
static size_t padded_size(const struct conv_layer *layer, const struct conv_layer_blocked *blocked,
                          int lanes)
{
    size_t columns = (size_t)(blocked->columns - 1) * (size_t)layer->stride_x +
                     (size_t)conv_layer_reach_x(layer);
    size_t rows = (size_t)(blocked->rows + conv_layer_reach_y(layer) - 1);
    if (layer->stride_y > 1 || layer->stride_x > 1)
        return columns;
    bool is_padded = layer->input != CONV_ELEMENT_F32 || layer->pad_top || layer->pad_bottom ||
                     layer->pad_left || layer->pad_right;
    // A vector read may begin at the last element.
    return is_padded && blocked->adjoining ? rows * columns + (size_t)lanes : 0;
}

bool conv_layer_blocked_plan(struct conv_layer_plan *plan, int lanes, int most_maps, bool streams)
{
    const struct conv_layer *layer = &plan->layer;
    int maps = layer->maps / layer->groups;
    if (!offsets_fit(layer))
        return false;
    struct conv_layer_blocked *blocked = (struct conv_layer_blocked *)(void *)plan->constants;
    *blocked = (struct conv_layer_blocked){
        .height = conv_layer_out_height(layer, plan->shape.height),
        .width = conv_layer_out_width(layer, plan->shape.width),
        .sets = (maps + most_maps - 1) / most_maps,
    };
    blocked->most_maps = (maps + blocked->sets - 1) / blocked->sets;
    blocked->short_sets = blocked->sets * blocked->most_maps - maps;
    streams = streams && is_streamed(plan, blocked);
    choose_copy(blocked, layer, lanes, streams ? STORED_TAPS : 0);
    plan->scratch = ((size_t)blocked->line + padded_size(layer, blocked, lanes)) * sizeof(float);
    if (streams && blocked->adjoining) {
        size_t vector = (size_t)lanes * sizeof(float);
        blocked->kept = (plan->scratch + vector - 1) / vector * vector;
        plan->scratch = blocked->kept + (size_t)maps * vector;
    }
    plan->packed_bytes = conv_layer_blocked_offsets(layer) * sizeof(int32_t) +
                         (size_t)layer->maps * (conv_layer_taps(layer) + 1) * sizeof(float);
    return true;
}
