// SPDX-License-Identifier: MIT
// Chooses how a layer's input is copied and in which blocks, and packs its weights.
#include "kernels/layer/cpu/blocked.h"

// Bytes of the copy. It shares the level 2 cache with weights and outputs: x86 processors have had
// at least 256 KiB since 2008.
#define MOST_COPIED (256 << 10)
// Of the channels that are copied at a time. Weights are read once for each block of outputs, which
// has the more rows the fewer channels are copied; but between two copies sums are stored and read.
#define MOST_TAPS 512

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
    blocked->pitch =
        (blocked->adjoining ? blocked->columns : round_up(blocked->columns, lanes)) + more;
    ptrdiff_t rows = blocked->rows + (reach_y - 1) / layer->stride_y;
    blocked->copy_size = rows * blocked->pitch;
    blocked->phase_size = blocked->copies * blocked->copy_size;
    blocked->channel_size = blocked->row_phases * blocked->phase_size;
    // A vector read may begin at the last element.
    blocked->line = blocked->channels * blocked->channel_size + lanes;
}

// An estimate of the time for a group of a plane, in vector instructions.
static double cost(const struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                   int lanes)
{
    bool whole = blocked->direct && blocked->adjoining && !blocked->across;
    double rows = whole ? blocked->height : blocked->rows, columns = blocked->columns;
    double taps = (double)conv_layer_taps(layer);
    double vectors = blocked->adjoining ? ceil(rows * columns / lanes)
                                        : rows * (round_up(blocked->columns, lanes) / lanes);
    if (!blocked->adjoining && blocked->columns <= lanes)
        vectors *= 1.5; // tiles of one vector load more than they compute
    // Copying a vector costs about as much as six taps.
    double copied =
        blocked->direct ? 0 : group_channels(layer) * (double)blocked->channel_size / lanes;
    if (blocked->across) // transposing a vector as much as twelve
        return (taps + 12) * blocked->packed_maps / lanes + 6 * copied / (rows * columns);
    return (vectors * taps * layer->maps / layer->groups + 6 * copied) / (rows * columns);
}

// Rows of blocks that share `height` rows about evenly, at most `most` each, or 1.
static int share_rows(int height, int most)
{
    int blocks = most < 1 ? height : (int)(((int64_t)height + most - 1) / most);
    return (height + blocks - 1) / blocks;
}

// Sets the rows of a block so that its copy has at most MOST_COPIED bytes (or to 1).
static void choose_rows(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                        int lanes)
{
    blocked->rows = 1;
    lay_out(blocked, layer, lanes);
    ptrdiff_t row = (ptrdiff_t)blocked->channels * blocked->row_phases * blocked->copies *
                    blocked->pitch * (ptrdiff_t)sizeof(float);
    ptrdiff_t more = (MOST_COPIED - blocked->line * (ptrdiff_t)sizeof(float)) / row;
    if (more <= 0)
        return;
    blocked->rows = share_rows(blocked->height, more < INT32_MAX ? 1 + (int)more : INT32_MAX);
    lay_out(blocked, layer, lanes);
}

// The largest block whose copy has at most MOST_COPIED bytes, with all columns if they are
// adjoining, and with fewer channels if most of the rows of the copy would be those of the next
// block, too. False if there is none; the block is then the smallest.
static bool choose_block(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                         int lanes)
{
    blocked->columns = blocked->width;
    for (;;) {
        choose_rows(blocked, layer, lanes);
        if (blocked->rows < min(blocked->height, conv_layer_reach_y(layer) / layer->stride_y) &&
            blocked->channels >= 16 && layer->output == CONV_ELEMENT_F32) {
            blocked->channels = (blocked->channels + 1) / 2;
            continue;
        }
        // Several rows, which share much of their input, are worth more than long rows.
        bool small = blocked->line * (ptrdiff_t)sizeof(float) <= MOST_COPIED;
        if ((small && blocked->rows >= min(blocked->height, 4)) || blocked->adjoining ||
            blocked->columns <= 8 * lanes)
            return small;
        blocked->columns = round_up(blocked->columns / 2, 4 * lanes);
    }
}

// Computes vectors across maps, two of each output, if that is faster.
static void choose_across(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                          int lanes)
{
    struct conv_layer_blocked across = *blocked;
    across.across = across.adjoining = true;
    across.packed_maps = round_up(across.maps, lanes);
    across.most_maps = 2 * lanes;
    across.sets = (across.maps + across.most_maps - 1) / across.most_maps;
    across.short_sets = 0;
    if (choose_block(&across, layer, lanes) &&
        cost(&across, layer, lanes) < 0.97 * cost(blocked, layer, lanes))
        *blocked = across;
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
    float *packed = (float *)plan->packed + conv_layer_blocked_weights(plan);
    offsets = (int32_t *)plan->packed + conv_layer_blocked_offsets(layer);
    for (int c = 0; c < (blocked->direct ? group_channels(layer) : 0); c++)
        offsets[c] = c * blocked->height * blocked->width;
    for (int first = 0, s = 0; first < layer->maps; s = (s + 1) % blocked->sets) {
        int maps = conv_layer_blocked_first(blocked, s + 1) - conv_layer_blocked_first(blocked, s);
        int unused = s == blocked->sets - 1 ? blocked->packed_maps - blocked->maps : 0; // 0
        for (int m = first; m < first + maps; m++)
            *packed++ = layer->bias ? layer->bias[m] : 0;
        packed += unused;
        for (size_t k = 0; k < taps; k++, packed += unused)
            for (int m = first; m < first + maps; m++)
                *packed++ = layer->weights[(size_t)m * taps + k];
        first += maps;
    }
}

// Offsets in the smallest block, of 8 vectors of at most 16 elements, are int32_t.
static bool offsets_fit(const struct conv_layer *layer)
{
    int height = conv_layer_reach_y(layer), width = conv_layer_reach_x(layer);
    int64_t rows = (int64_t)min(layer->stride_y, height) * (1 + (height - 1) / layer->stride_y);
    int64_t columns =
        (int64_t)min(layer->stride_x, width) * (8 * 16 + (width - 1) / layer->stride_x);
    return group_channels(layer) <= INT32_MAX / (rows * columns);
}

bool conv_layer_blocked_plan(struct conv_layer_plan *plan, int lanes, int most_maps)
{
    const struct conv_layer *layer = &plan->layer;
    int maps = layer->maps / layer->groups, channels = group_channels(layer);
    if (!offsets_fit(layer))
        return false;
    size_t taps = conv_layer_taps(layer);
    int blocks = layer->output == CONV_ELEMENT_F32 && taps > MOST_TAPS
                     ? min((int)((taps + MOST_TAPS - 1) / MOST_TAPS), channels)
                     : 1; // dst holds sums between two copies
    struct conv_layer_blocked *blocked = (struct conv_layer_blocked *)(void *)plan->constants;
    *blocked = (struct conv_layer_blocked){
        .height = conv_layer_out_height(layer, plan->shape.height),
        .width = conv_layer_out_width(layer, plan->shape.width),
        .channels = (channels + blocks - 1) / blocks,
        .maps = maps,
        .packed_maps = maps,
        .sets = (maps + most_maps - 1) / most_maps,
        // A plane is its own copy, whose offsets are int32_t, too.
        .direct = layer->kernel_height * layer->kernel_width == 1 &&
                  layer->stride_y * layer->stride_x == 1 && layer->input == CONV_ELEMENT_F32 &&
                  layer->pad_top + layer->pad_bottom + layer->pad_left + layer->pad_right == 0 &&
                  plan->shape.height <= INT32_MAX / layer->channels / plan->shape.width,
    };
    blocked->most_maps = (maps + blocked->sets - 1) / blocked->sets;
    blocked->short_sets = blocked->sets * blocked->most_maps - maps;
    struct conv_layer_blocked adjoining = *blocked;
    adjoining.adjoining = true;
    choose_block(blocked, layer, lanes);
    if (choose_block(&adjoining, layer, lanes) &&
        cost(&adjoining, layer, lanes) <= cost(blocked, layer, lanes))
        *blocked = adjoining;
    choose_across(blocked, layer, lanes);
    blocked->direct &= blocked->adjoining;
    blocked->direct_rows = blocked->rows;
    if (!blocked->across) // sums of some channels stay in a cache until the next ones are added
        blocked->direct_rows =
            blocks == 1
                ? blocked->height
                : share_rows(blocked->height, CONV_LAYER_BLOCKED_SPAN * lanes / blocked->width);
    // After the copy, a padded row of the input.
    size_t floats = (size_t)(blocked->line + 2 * lanes) +
                    (size_t)(blocked->columns - 1) * (size_t)layer->stride_x +
                    (size_t)conv_layer_reach_x(layer);
    size_t vectors = (floats + (size_t)lanes - 1) / (size_t)lanes * (size_t)lanes; // in floats
    if (blocked->across) {
        blocked->results = (ptrdiff_t)vectors;
        floats =
            vectors + (size_t)(blocked->rows * blocked->columns) * (size_t)blocked->packed_maps;
    }
    plan->scratch = floats * sizeof(float);
    plan->sets = layer->groups > 1 ? layer->groups : blocked->sets;
    // A line of 16 samples takes about 8 cycles, in which two units do 16 products for each of
    // them; to copy a row 30 cycles and, as above, six products for each of its samples.
    double copying = blocked->row_phases * blocked->copies * (1440 + 9.0 * blocked->pitch);
    plan->reading = 16.0 * layer->stride_y * plan->shape.width + (blocked->direct ? 0 : copying);
    plan->packed_bytes =
        conv_layer_blocked_weights(plan) * sizeof(int32_t) +
        (size_t)(layer->groups * blocked->packed_maps) * (taps + 1) * sizeof(float);
    return true;
}
