// SPDX-License-Identifier: MIT
// cuda_layer_few: the choice of an instance of few.cuh for a layer, and its launch.

#include "kernels/layer/cuda/few.cuh"

// Weights of a launch: [group][1 + taps][padded], the bias first, then `maps` maps.
static void fill_weights(const struct conv_layer *layer, int maps, int padded, int groups,
                         float *to)
{
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    for (int g = 0; g < groups; g++, to += (1 + taps) * padded)
        for (int m = 0; m < padded; m++) {
            int map = g * maps + m;
            bool is = m < maps && map < layer->maps;
            to[m] = layer->bias && is ? layer->bias[map] : 0;
            for (int t = 0; t < taps; t++)
                to[(1 + t) * padded + m] =
                    is ? layer->weights[(size_t)map * (size_t)taps + (size_t)t] : 0;
        }
}

struct few_shape {
    int channels; // 0: any number, read for each group of maps
    int kernel, columns, rows, maps, vector, threads;
    int padded;      // floats of a tap's weights in a group
    int most_groups; // of weights in parameters; 0: any number
    few_form form;
    float cost; // of a multiply-add, measured: 1 is the best
    void (*launch)(const struct conv_layer *layer, const few_launch &p, unsigned blocks,
                   cudaStream_t stream);
};

static few_output output_of(const struct conv_layer *layer, int maps)
{
    if (layer->output != CONV_ELEMENT_F32 || layer->maps % maps)
        return FEW_ANY;
    return layer->activation == CONV_ACTIVATION_NONE   ? FEW_PLAIN
           : layer->activation == CONV_ACTIVATION_RELU ? FEW_RELU
                                                       : FEW_ANY;
}

template <int C, int K, int T, int R, int MT, int G, int VX, few_form FORM, int THREADS, int BLOCKS>
static void launch_fixed(const struct conv_layer *layer, const few_launch &p, unsigned blocks,
                         cudaStream_t stream)
{
    struct few_fixed_launch<G * MT *(1 + C * K * K)> launch;
    launch.p = p;
    fill_weights(layer, MT, MT, G, launch.weights);
    few_output output = output_of(layer, MT);
    auto kernel =
        output == FEW_PLAIN  ? few_fixed<C, K, T, R, MT, G, VX, FORM, THREADS, BLOCKS, FEW_PLAIN>
        : output == FEW_RELU ? few_fixed<C, K, T, R, MT, G, VX, FORM, THREADS, BLOCKS, FEW_RELU>
                             : few_fixed<C, K, T, R, MT, G, VX, FORM, THREADS, BLOCKS, FEW_ANY>;
    kernel<<<blocks, THREADS, 0, stream>>>(launch);
}

template <int C, int K, int T, int R, int MT, int VX, few_form FORM, int THREADS, int BLOCKS>
static void launch_looped(const struct conv_layer *, const few_launch &p, unsigned blocks,
                          cudaStream_t stream)
{
    auto kernel = few_looped<C, K, T, R, MT, VX, FORM, THREADS, BLOCKS>;
    size_t bytes =
        (size_t)((p.block_groups * (1 + C * K * K) * few_padded(MT) + 6) / 4 * 4) * sizeof(float);
    if (FORM == FEW_RUNS)
        bytes += (size_t)(THREADS / 32 * MT * STORE_ROOM(T)) * sizeof(float);
    dim3 grid(blocks, (unsigned)ceil_div(p.groups, p.block_groups));
    kernel<<<grid, THREADS, bytes, stream>>>(p);
}

template <int C, int K, int T, int R, int MT, int VX, few_form FORM, int THREADS>
static few_shape shape_of(int padded, int most_groups, float cost,
                          decltype(few_shape::launch) launch)
{
    return {C, K, T, R, MT, VX, THREADS, padded, most_groups, FORM, cost, launch};
}

template <int C, int K, int T, int R, int MT, int G, int VX, few_form FORM, int THREADS, int BLOCKS>
static few_shape fixed(float cost)
{
    return shape_of<C, K, T, R, MT, VX, FORM, THREADS>(
        MT, G, cost, launch_fixed<C, K, T, R, MT, G, VX, FORM, THREADS, BLOCKS>);
}

template <int C, int K, int T, int R, int MT, int VX, few_form FORM, int THREADS, int BLOCKS>
static few_shape looped(float cost)
{
    return shape_of<C, K, T, R, MT, VX, FORM, THREADS>(
        few_padded(MT), 0, cost, launch_looped<C, K, T, R, MT, VX, FORM, THREADS, BLOCKS>);
}

template <int K, int T, int R, int MT, int VX, few_form FORM, int THREADS, int BLOCKS>
static void launch_channels(const struct conv_layer *, const few_launch &p, unsigned blocks,
                            cudaStream_t stream)
{
    auto kernel = few_channels<K, T, R, MT, VX, FORM, THREADS, BLOCKS>;
    size_t bytes = (size_t)((1 + p.channels * K * K) * MT) * sizeof(float);
    if (few_has_runs(FORM))
        bytes += (size_t)(THREADS / 32 * 2 * STORE_ROOM(T)) * sizeof(float);
    dim3 grid(blocks, (unsigned)p.groups);
    kernel<<<grid, THREADS, bytes, stream>>>(p);
}

// Their costs are above those of kernels that read samples once.
template <int K, int T, int R, int MT, int VX, few_form FORM, int THREADS, int BLOCKS>
static few_shape channels()
{
    return shape_of<0, K, T, R, MT, VX, FORM, THREADS>(
        MT, 0, 2 + 1 / (float)(T * R) + 0.3f / (float)MT + (few_has_runs(FORM) ? 0.1f : 0),
        launch_channels<K, T, R, MT, VX, FORM, THREADS, BLOCKS>);
}

static const struct few_shape shapes[] = {
    // Channels, kernel, columns, rows, maps of a group, groups at most, vector, form; threads of a
    // block, blocks of a multiprocessor.
    fixed<1, 5, 4, 2, 1, 6, 4, FEW_WHOLE, 192, 5>(0.97f),
    fixed<1, 5, 4, 1, 2, 8, 4, FEW_WHOLE, 256, 4>(1),
    looped<1, 5, 4, 2, 4, 4, FEW_WHOLE, 128, 4>(1.06f),
    looped<1, 5, 4, 1, 4, 4, FEW_WHOLE, 128, 5>(1.04f),
    fixed<1, 5, 6, 1, 1, 16, 2, FEW_ROWS, 128, 5>(1.05f),
    fixed<1, 5, 4, 1, 1, 16, 2, FEW_FLAT, 128, 6>(1.1f),
    looped<1, 5, 6, 1, 8, 2, FEW_RUNS, 128, 4>(1.4f),
    looped<1, 5, 5, 1, 8, 1, FEW_RUNS, 128, 5>(1.7f),
    looped<1, 4, 5, 1, 8, 1, FEW_RUNS, 128, 5>(1.7f),
    fixed<1, 3, 4, 1, 4, 4, 4, FEW_WHOLE, 256, 5>(1),
    looped<1, 3, 4, 1, 8, 4, FEW_WHOLE, 256, 4>(1.1f),
    fixed<1, 3, 4, 1, 2, 8, 2, FEW_FLAT, 256, 5>(1.1f),
    looped<1, 3, 6, 1, 8, 2, FEW_RUNS, 128, 5>(1.4f),
    looped<1, 3, 5, 1, 8, 1, FEW_RUNS, 128, 5>(1.7f),
    looped<3, 3, 4, 1, 8, 4, FEW_WHOLE, 128, 4>(1.1f),
    looped<3, 3, 4, 1, 8, 2, FEW_FLAT, 128, 4>(1.15f),
    looped<3, 3, 6, 1, 4, 2, FEW_RUNS, 128, 4>(1.3f),
    looped<3, 3, 5, 1, 8, 1, FEW_RUNS, 128, 4>(1.7f),
    looped<1, 7, 4, 1, 8, 4, FEW_WHOLE, 128, 4>(1.1f),
    looped<1, 7, 6, 1, 4, 2, FEW_RUNS, 128, 4>(1.3f),
    looped<1, 7, 5, 1, 4, 1, FEW_RUNS, 128, 4>(1.7f),
    fixed<1, 5, 4, 1, 2, 8, 4, FEW_SAME, 256, 4>(1),
    looped<1, 5, 4, 1, 4, 4, FEW_SAME, 128, 5>(1.04f),
    looped<1, 3, 4, 1, 8, 4, FEW_SAME, 256, 4>(1.1f),
    looped<3, 3, 4, 1, 8, 4, FEW_SAME, 128, 4>(1.1f),
    channels<5, 4, 2, 8, 4, FEW_WHOLE, 128, 4>(),
    channels<5, 4, 2, 4, 4, FEW_WHOLE, 128, 6>(),
    // For few images: many threads with few outputs each.
    channels<5, 4, 1, 4, 4, FEW_WHOLE, 64, 12>(),
    channels<5, 4, 1, 12, 4, FEW_WHOLE, 128, 5>(),
    channels<5, 6, 1, 8, 2, FEW_RUNS, 128, 4>(),
    channels<5, 5, 1, 8, 1, FEW_RUNS, 128, 5>(),
    channels<3, 6, 1, 8, 2, FEW_RUNS, 128, 5>(),
    channels<3, 5, 1, 8, 1, FEW_RUNS, 128, 6>(),
    channels<3, 4, 1, 8, 4, FEW_WHOLE, 128, 8>(),
    channels<3, 4, 2, 8, 4, FEW_WHOLE, 128, 4>(),
    channels<5, 4, 2, 8, 4, FEW_SAME, 128, 3>(),
    channels<5, 4, 2, 4, 4, FEW_SAME, 128, 5>(),
    channels<3, 4, 2, 8, 4, FEW_SAME, 128, 4>(),
    channels<3, 4, 1, 8, 4, FEW_SAME, 128, 7>(),
    channels<5, 4, 1, 12, 1, FEW_ZEROS, 128, 4>(),
    channels<5, 4, 1, 8, 1, FEW_ZEROS, 128, 5>(),
    channels<3, 4, 1, 8, 1, FEW_ZEROS, 128, 7>(),
};

#define MOST_SHARED (48 << 10)
#define PROCESSORS 132 // assumed for the choice
#define ENOUGH_WARPS (PROCESSORS * 16)
#define SCHEDULERS (PROCESSORS * 4.0f)

struct few_config {
    int shape, tiles, unit_rows, groups, group_images, image_units;
    float cost;
};

// `anywhere`: rows of input may begin at any sample; `same`: with zeros around the input.
static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      bool anywhere, bool same, struct few_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    bool found = false;
    if (layer->stride_x != 1)
        return false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct few_shape *s = &shapes[i];
        struct few_config c = {};
        c.shape = (int)i;
        c.groups = ceil_div(layer->maps, s->maps);
        int64_t plane = (int64_t)out_height * out_width;
        // Units of an image: unit_rows rows of `tiles`. Flat units ignore rows.
        c.tiles = s->form == FEW_FLAT ? (int)(plane / 4) : ceil_div(out_width, s->columns);
        c.unit_rows = s->form == FEW_FLAT ? 1 : ceil_div(out_height, s->rows);
        bool runs = few_has_runs(s->form);
        int64_t held = s->channels ? c.groups : 1; // groups of maps in shared memory
        int64_t bytes = (held * s->padded * (1 + taps) + 6) * 4 +
                        (runs ? s->threads / 32 * s->maps * STORE_ROOM(s->columns) * 4 : 0);
        if ((s->channels && s->channels != layer->channels) || s->kernel != layer->kernel_width ||
            s->kernel != layer->kernel_height || out_height < s->rows ||
            out_width < (s->form == FEW_FLAT ? 2 : s->columns) || (anywhere && s->vector > 1) ||
            few_is_padded(s->form) != same ||
            (!runs && layer->activation == CONV_ACTIVATION_TANH) ||
            ((s->form == FEW_WHOLE || s->form == FEW_ROWS || s->form == FEW_SAME) &&
             out_width % s->columns) ||
            ((s->form == FEW_FLAT || s->form == FEW_ROWS) && plane % 4) || out_width % s->vector ||
            shape->width % s->vector || plane > INT32_MAX / 4 ||
            (s->most_groups ? !layer->weights || c.groups > s->most_groups : bytes > MOST_SHARED))
            continue;
        int64_t units = (int64_t)c.unit_rows * c.tiles;
        if (s->form == FEW_ROWS)
            units = (units + 31) / 32 * 32;
        c.image_units = (int)units;
        c.cost = (float)units * (float)(s->columns * s->rows * c.groups * s->maps) * s->cost;
        // A warp stores every other row first; rows that share sectors of 32 bytes take longer.
        if (s->form == FEW_WHOLE && s->rows > 1 && out_width % 8)
            c.cost *= 1.3f;
        // With fewer warps than schedulers, some schedulers are idle.
        float warps = (float)shape->images * (float)units * (float)c.groups / 32;
        if (s->channels == 0 && shape->images > 0 && warps < SCHEDULERS)
            c.cost *= SCHEDULERS / warps;
        // The number of images with which the last block of a group is nearly full.
        c.group_images = (int)((64 * s->threads + units - 1) / units);
        if (!found || c.cost < best->cost) {
            *best = c;
            found = true;
        }
    }
    return found;
}

static int weight_floats(const struct conv_layer *layer, const struct few_config *c)
{
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    return (c->groups * shapes[c->shape].padded * (1 + taps) + 3) / 4 * 4;
}

// The chosen instance, and the one that handles rows at any sample.
struct few_plan {
    struct few_config at_vectors, anywhere;
    int anywhere_weights; // where its weights begin
};

static bool plan_few(struct conv_layer_plan *plan)
{
    struct few_plan *c = layer_constants<struct few_plan>(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    bool same = layer_is_same(layer) && configure(layer, shape, true, true, &c->anywhere) &&
                configure(layer, shape, false, true, &c->at_vectors);
    if (!same && (layer_is_padded(layer) || layer->input != CONV_ELEMENT_F32))
        conv_layer_plan_pad(plan);
    if (conv_layer_out_height(layer, shape->height) <= 0 ||
        conv_layer_out_width(layer, shape->width) <= 0 ||
        (!same && (!configure(layer, shape, true, false, &c->anywhere) ||
                   !configure(layer, shape, false, false, &c->at_vectors))))
        return false;
    c->anywhere_weights = weight_floats(layer, &c->at_vectors);
    plan->packed_bytes =
        (size_t)(c->anywhere_weights + weight_floats(layer, &c->anywhere)) * sizeof(float);
    return true;
}

// Where samples are read for each group of maps.
static int score_channels(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct few_config *c = &layer_constants<struct few_plan>(plan)->at_vectors;
    // With few warps cuda_layer_gemm is faster, with one or two maps cuda_layer_window.
    float warps = (float)plan->shape.images * (float)c->image_units * (float)c->groups / 32;
    bool busy = plan->shape.images <= 0 || warps >= 6 * PROCESSORS;
    if (!busy || !layer_repays_padding(plan) || layer->maps < 3 ||
        layer->maps > (layer->kernel_width == 3 && layer->channels <= 8 ? 128 : 48))
        return layer->channels <= 5 && layer_repays_padding(plan) ? 88 : 55;
    return layer->maps < 32 || layer->channels <= 4 ? 88 : 101;
}

static int score_few(const struct conv_layer_plan *plan)
{
    if (shapes[layer_constants<struct few_plan>(plan)->at_vectors.shape].channels == 0)
        return score_channels(plan);
    return layer_repays_padding(plan) ? 90 : LAYER_SCORE_PADDED;
}

static void pack_few(const struct conv_layer_plan *plan)
{
    const struct few_plan *c = layer_constants<struct few_plan>(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct few_shape *s = &shapes[c->at_vectors.shape];
    fill_weights(layer, s->maps, s->padded, c->at_vectors.groups, (float *)plan->packed);
    s = &shapes[c->anywhere.shape];
    fill_weights(layer, s->maps, s->padded, c->anywhere.groups,
                 (float *)plan->packed + c->anywhere_weights);
}

static enum conv_status run_few(const struct conv_layer_plan *plan,
                                const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct few_plan *plans = layer_constants<struct few_plan>(plan);
    if (batch->images <= 0)
        return CONV_OK;
    int bytes = shapes[plans->at_vectors.shape].vector * 4;
    bool anywhere = batch->src_row % bytes || batch->src_plane % bytes || batch->src_image % bytes;
    const struct few_config *c = anywhere ? &plans->anywhere : &plans->at_vectors;
    const struct few_shape *s = &shapes[c->shape];
    struct few_launch p;
    layer_set_sizes(&p, plan, batch);
    p.weights = (const float *)plan->d_packed + (anywhere ? plans->anywhere_weights : 0);
    p.images = batch->images;
    p.tiles = c->tiles;
    p.groups = c->groups;
    p.to = store_target_of(layer, batch->dst, p.out_height, p.out_width);
    p.group_images = (int)(c->group_images < batch->images ? c->group_images : batch->images);
    p.unit_rows = c->unit_rows;
    p.image_units = c->image_units;
    int across = p.image_units;
    p.group_blocks = (int)ceil_div64((int64_t)p.group_images * across, s->threads);
    p.by_group_blocks = layer_divider_of(p.group_blocks);
    p.by_image = layer_divider_of(across);
    p.by_tiles = layer_divider_of(s->form == FEW_FLAT ? p.out_width : p.tiles);
    int64_t blocks = ceil_div64(batch->images, p.group_images) * p.group_blocks;
    // With few images, multiprocessors are idle or have too few warps unless several blocks share
    // the groups of maps of an image.
    int64_t shares = s->most_groups ? 1 : ceil_div64(ENOUGH_WARPS * 32, blocks * s->threads);
    p.block_groups = ceil_div(p.groups, (int)(shares < p.groups ? shares : p.groups));
    s->launch(layer, p, (unsigned)blocks, (cudaStream_t)batch->stream);
    return layer_launch_status();
}

const struct conv_layer_variant conv_cuda_layer_few = {
    "cuda_layer_few",
    "few channels: samples or sums in registers, weights as operands",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    CONV_LAYER_PADS | CONV_LAYER_LATE,
    plan_few,
    score_few,
    pack_few,
    run_few,
};
