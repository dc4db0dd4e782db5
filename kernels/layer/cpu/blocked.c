// SPDX-License-Identifier: MIT
// Chooses how a layer's input is copied and in which blocks, and packs its weights.
#include "kernels/layer/cpu/blocked.h"

// Bytes of the copy. It shares the level 2 cache with weights and outputs: x86 processors have had
// at least 256 KiB since 2008.
#define MOST_COPIED (256 << 10)
#define MOST_SUMS (512 << 10) // of all maps of a block, if vectors are across maps: 2 MiB
// Of the channels that are copied at a time. Weights are read once for each block of outputs, which
// has the more rows the fewer channels are copied; but between two copies sums are stored and read.
#define MOST_TAPS 576

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
    blocked->pitch = more + round_up(blocked->columns, blocked->adjoining ? 1 : lanes);
    ptrdiff_t rows = blocked->rows + (reach_y - 1) / layer->stride_y;
    blocked->copy_size = rows * blocked->pitch + lanes; // vectors are stored after the last one
    blocked->phase_size = blocked->copies * blocked->copy_size;
    blocked->channel_size = blocked->row_phases * blocked->phase_size;
    blocked->lines = blocked->channels * blocked->channel_size;
}

// An estimate of the time for a group of a plane, in vector instructions; `outputs`: of a tile of
// two vectors across maps.
static double cost(const struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                   int lanes, int outputs)
{
    bool whole = blocked->direct && !blocked->across;
    double rows = blocked->rows, columns = whole ? blocked->width : blocked->columns;
    double taps = blocked->kept * (double)conv_layer_taps(layer), each = layer->kernel_width;
    // Taps that read the same cache lines of a copy: the others come from the level 2 cache.
    double shared = blocked->adjoining && each > 1 ? 1 : each / layer->stride_x;
    if (taps > 64 && (!blocked->flat || blocked->across))
        taps *= 1 + 0.25 / (shared < 1 ? 1 : shared);
    // Copying a vector costs about as much as six taps.
    double copied =
        blocked->direct ? 0 : 6 * group_channels(layer) * (double)blocked->channel_size / lanes;
    if (blocked->across) {
        double tile = columns / ceil(columns / outputs); // small ones wait for their weights
        tile *= 2 * tile <= outputs && rows > 1 ? 2 : 1;
        taps *= tile < 0.55 * outputs ? 1.35 : tile < 0.7 * outputs ? 1.08 : 1;
        taps *= blocked->packed_maps == lanes ? 1.2 : 1; // of a vector each: more loads
        // Transposing a vector costs as much as twelve taps.
        return (taps + 12) * blocked->packed_maps / lanes + copied / (rows * columns);
    }
    double vectors =
        blocked->adjoining ? ceil(rows * columns / lanes) : rows * ceil(columns / lanes);
    // Tiles of one or two vectors load more; in planes, vectors may cross cache lines.
    double most = min(8, 2 * outputs / blocked->most_maps), all = ceil(columns / lanes);
    if (whole ? blocked->width % lanes != 0 : !blocked->adjoining && all <= 1)
        vectors *= 1.4;
    else if (!whole && !blocked->adjoining && all / ceil(all / most) < 2.5)
        vectors *= taps > 64 ? 1.08 : 1.15;
    return (vectors * taps * layer->maps / layer->groups + copied) / (rows * columns);
}

// The size of parts that share n about evenly, at most `most` each.
static int share(int n, int64_t most)
{
    int parts = (int)((n + most - 1) / most);
    return (n + parts - 1) / parts;
}

// Sets the rows of a block so that its copy has at most MOST_COPIED bytes, and its sums are few (or
// to 1).
static void choose_rows(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                        int lanes)
{
    blocked->rows = 1;
    lay_out(blocked, layer, lanes);
    ptrdiff_t row = (ptrdiff_t)blocked->channels * blocked->row_phases * blocked->copies;
    ptrdiff_t more = (MOST_COPIED / 4 - blocked->lines) / (row * blocked->pitch); // rows
    ptrdiff_t sums = MOST_SUMS / ((ptrdiff_t)blocked->columns * blocked->packed_maps) - 1;
    more = blocked->across && sums < more ? sums : more;
    blocked->rows = share(blocked->height, more < 0 ? 1 : 1 + more);
    lay_out(blocked, layer, lanes);
}

// The largest block whose copy has at most MOST_COPIED bytes, with all columns if they are
// adjoining, and with fewer channels if most of the rows of the copy would be those of the next
// block, too. False if there is none; the block is then the smallest.
static bool choose_block(struct conv_layer_blocked *blocked, const struct conv_layer *layer,
                         int lanes)
{
    int most = MOST_TAPS / (layer->kernel_height * layer->kernel_width);
    blocked->channels = group_channels(layer);
    if (layer->output == CONV_ELEMENT_F32) // dst holds sums between two copies
        blocked->channels = share(blocked->channels, most < 1 ? 1 : most);
    blocked->columns = blocked->width;
    for (;;) {
        choose_rows(blocked, layer, lanes);
        if (blocked->rows < min(blocked->height, conv_layer_reach_y(layer) / layer->stride_y) &&
            blocked->channels >= 16 && layer->output == CONV_ELEMENT_F32) {
            blocked->channels = (blocked->channels + 1) / 2;
            continue;
        }
        // Several rows, which share much of their input, are worth more than long rows.
        bool small = blocked->lines <= MOST_COPIED / 4;
        if ((small && blocked->rows >= min(blocked->height, 4)) ||
            (blocked->adjoining && blocked->height > 1) || blocked->columns <= 8 * lanes)
            return small;
        blocked->columns = round_up(blocked->columns / 2, 4 * lanes);
    }
}

// Chooses between copies of rows and of adjoining outputs, and between vectors of outputs and
// across maps, two of each output.
static void choose_kind(struct conv_layer_blocked *blocked, const struct conv_layer_plan *plan,
                        int lanes, int outputs)
{
    const struct conv_layer *layer = &plan->layer;
    double least = INFINITY;
    const struct conv_layer_blocked given = *blocked;
    // Rows of taps that meet only padding: the first row of outputs has the most.
    double pads =
        layer->output == CONV_ELEMENT_F32 ? (double)layer->pad_top + layer->pad_bottom : 0;
    double padded = pads * (pads / 2 / layer->dilation_y + 1) / (2 * layer->stride_y);
    bool one_tap = layer->kernel_height * layer->kernel_width == 1; // one copy of either kind
    for (int kind = 0; kind < 3; kind++) {
        struct conv_layer_blocked tried = given;
        tried.across = kind == 2;
        tried.adjoining = !given.flat && (kind == 1 || (kind == 2 && one_tap));
        if (tried.across) {
            tried.packed_maps = round_up(given.maps, lanes);
            tried.most_maps = 2 * lanes;
            tried.sets = (given.maps + tried.most_maps - 1) / tried.most_maps;
            tried.short_sets = 0;
        }
        bool fits = choose_block(&tried, layer, lanes) || tried.direct;
        tried.kept -= tried.adjoining ? 0 : fmin(padded / given.height / layer->kernel_height, 0.7);
        double time = cost(&tried, layer, lanes, outputs);
        if (kind > 0 && (!fits || time > (kind > 1 ? 0.97 : 1) * least))
            continue;
        least = time;
        *blocked = tried;
    }
}

// Where the samples of a tap begin in the copy of a channel.
static int32_t offset_of(const struct conv_layer_plan *plan, int u, int v)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    int down = u * layer->dilation_y, across = v * layer->dilation_x;
    ptrdiff_t at = down % layer->stride_y * blocked->phase_size +
                   (ptrdiff_t)(down / layer->stride_y) * blocked->pitch;
    at += (blocked->adjoining ? v : across % layer->stride_x) * blocked->copy_size;
    return (int32_t)(at + (blocked->adjoining ? 0 : across / layer->stride_x));
}

void conv_layer_blocked_pack(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_blocked *blocked = conv_layer_blocked_of(plan);
    struct conv_layer_tap_list *all = plan->packed;
    int width = layer->kernel_width;
    for (int k = 0; k < layer->kernel_height * width; k++)
        all->taps[k] = (struct conv_layer_tap){offset_of(plan, k / width, k % width), k};
    size_t taps = conv_layer_taps(layer);
    all->may_skip = layer->border == CONV_BORDER_CONSTANT && layer->border_value == 0;
    for (size_t k = 0; k < (size_t)layer->maps * taps && all->may_skip; k++)
        all->may_skip = isfinite(layer->weights[k]); // else products of padding are not 0
    float *packed = (float *)plan->packed + blocked->weights;
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

// Whether tiles read the planes, of `bytes` each, instead of a copy. Samples that are large powers
// of 2 apart share few places in a cache, and where planes are not whole lines of it, vectors read
// two lines from the level 2 cache: both cost time for each set of maps.
static bool reads_planes(const struct conv_layer_blocked *blocked, int64_t bytes, int lanes)
{
    if ((bytes & -bytes) * blocked->channels > 1 << 20)
        return blocked->sets <= 4;
    return bytes % (lanes * (int64_t)sizeof(float)) == 0 || bytes < 1280 || blocked->sets < 8;
}

bool conv_layer_blocked_plan(struct conv_layer_plan *plan, int lanes, int most_maps, int outputs)
{
    const struct conv_layer *layer = &plan->layer;
    int maps = layer->maps / layer->groups, channels = group_channels(layer);
    if (!offsets_fit(layer))
        return false;
    size_t taps = conv_layer_taps(layer);
    int pads = layer->pad_top + layer->pad_bottom + layer->pad_left + layer->pad_right;
    bool flat = layer->kernel_height * layer->kernel_width == 1 && pads == 0 &&
                layer->stride_y * layer->stride_x == 1 &&
                plan->shape.height <= INT32_MAX / 2 / layer->channels / plan->shape.width;
    struct conv_layer_blocked *blocked = (struct conv_layer_blocked *)(void *)plan->constants;
    *blocked = (struct conv_layer_blocked){
        .height = flat ? 1 : conv_layer_out_height(layer, plan->shape.height),
        .width = flat ? plan->shape.height * plan->shape.width
                      : conv_layer_out_width(layer, plan->shape.width),
        .channels = share(channels, MOST_TAPS),
        .maps = maps,
        .packed_maps = maps,
        .sets = (maps + most_maps - 1) / most_maps,
        .flat = flat,
        .kept = 1,
        .weights = (size_t)round_up(2 + 2 * layer->kernel_height * layer->kernel_width, 16),
    };
    blocked->direct = flat && layer->input == CONV_ELEMENT_F32 &&
                      reads_planes(blocked, blocked->width * (int64_t)sizeof(float), lanes);
    blocked->most_maps = (maps + blocked->sets - 1) / blocked->sets;
    blocked->short_sets = blocked->sets * blocked->most_maps - maps;
    choose_kind(blocked, plan, lanes, outputs);
    // Sums of some channels stay in a cache until the next ones are added.
    int span = round_up(share(blocked->width, CONV_LAYER_BLOCKED_SPAN * lanes), lanes);
    blocked->direct_columns = blocked->across ? blocked->columns : span;
    // After the copy, padded rows of a channel.
    int columns = (blocked->columns - 1) * layer->stride_x + conv_layer_reach_x(layer);
    columns = columns > CONV_LAYER_BLOCKED_LINES ? columns : CONV_LAYER_BLOCKED_LINES;
    blocked->results = (blocked->lines + columns + 6 * lanes) / lanes * lanes;
    ptrdiff_t sums =
        blocked->across ? (ptrdiff_t)blocked->rows * blocked->columns * blocked->packed_maps : 0;
    plan->scratch = (size_t)(blocked->results + sums) * sizeof(float);
    plan->sets = layer->groups > 1 ? layer->groups : blocked->sets;
    // A line of 16 samples takes about 8 cycles, in which two units do 16 products for each of
    // them; to copy a row 30 cycles and, as above, six products for each of its samples.
    double row = flat ? plan->shape.width : blocked->pitch;
    double copying = blocked->row_phases * blocked->copies * (1440 + 9.0 * row);
    plan->reading = 16.0 * layer->stride_y * plan->shape.width + (blocked->direct ? 0 : copying);
    plan->packed_bytes =
        blocked->weights * sizeof(float) +
        (size_t)(layer->groups * blocked->packed_maps) * (taps + 1) * sizeof(float);
    return true;
}
