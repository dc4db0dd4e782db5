// SPDX-License-Identifier: MIT
// cuda_layer_slices: the choice of an instance of slices.cuh and of a block's share of the outputs
// for a layer, and its launch.
#include <string.h>

#include "kernels/layer/cuda/slices_cost.cuh"

#define MOST_BLOCKS (1 << 30) // of a launch
#define MOST_ROWS (1 << 30)   // of outputs, so that sums have 32 bits
#define MOST_TURNS 24         // blocks of a multiprocessor, one after the other

static const struct slices_shape shapes[] = {
    // Kernel width, rows, maps, threads at most; registers.
    slices_instance<5, 2, 4, 768>(80),  slices_instance<5, 1, 4, 1024>(64),
    slices_instance<5, 2, 2, 1024>(64), slices_instance<5, 1, 2, 1024>(56),
    slices_instance<5, 1, 1, 1024>(56), slices_instance<3, 2, 4, 768>(80),
    slices_instance<3, 1, 4, 1024>(64), slices_instance<3, 2, 2, 1024>(64),
    slices_instance<3, 1, 2, 1024>(56), slices_instance<3, 1, 1, 1024>(56),
};

static void try_share(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct slices_config *c, bool *found, struct slices_config *best)
{
    const struct slices_shape *s = &shapes[c->shape];
    if (!slices_fill_memory(layer, s, c))
        return;
    slices_fill_cost(layer, s, shape, c);
    if (!*found || c->cost < best->cost) {
        *best = *c;
        *found = true;
    }
}

// The difference to the next number of parts to try: every number up to 127, then about one in 64.
static int next_step(int parts)
{
    return parts < 64 ? 1 : parts / 64;
}

// Tries all shares with which each multiprocessor has equally many units, and those of whole groups
// with which a block needs one item.
static void try_shares(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                       struct slices_config *c, bool *found, struct slices_config *best)
{
    const struct slices_shape *s = &shapes[c->shape];
    c->groups = ceil_div(layer->maps, s->maps);
    int64_t units = slices_images(shape) * c->strips * c->groups * c->positions;
    for (int quarters = 1; quarters <= 4 * MOST_TURNS; quarters += quarters < 4 ? 1 : 4) {
        int64_t share = ceil_div64(units * 4, (int64_t)quarters * SLICES_PROCESSORS);
        if (share > s->threads)
            continue;
        c->share = (int)(share < 32 ? 32 : share);
        try_share(layer, shape, c, found, best);
        if (share <= 32)
            break;
    }
    int groups = c->groups, previous = 0, most = s->threads / c->positions;
    if (most < 1)
        return;
    for (int chunks = ceil_div(groups, most); chunks <= groups; chunks += next_step(chunks)) {
        int together = ceil_div(groups, chunks);
        if (together == previous)
            continue;
        previous = together;
        c->groups = chunks * together; // the last ones may be empty
        c->share = together * c->positions;
        try_share(layer, shape, c, found, best);
    }
}

// Tries all instances and numbers of strips.
static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct slices_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    bool found = false;
    if (layer->stride != 1 || layer->kernel_width != layer->kernel_height || out_height <= 0 ||
        out_width <= 0)
        return false;
    int most_rows = slices_most_rows(layer, shape);
    if (most_rows < 1 || out_height > MOST_ROWS)
        return false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct slices_shape *s = &shapes[i];
        if (s->kernel_width != layer->kernel_width || s->maps > layer->maps)
            continue;
        struct slices_config c = {};
        c.shape = (int)i;
        c.tiles = ceil_div(out_width, SLICES_COLUMNS);
        int previous = 0;
        int least = ceil_div(out_height, most_rows);
        for (int strips = least; strips <= out_height; strips += next_step(strips)) {
            c.strip_rows = ceil_div(out_height, strips);
            c.strips = ceil_div(out_height, c.strip_rows);
            if (c.strip_rows == previous)
                continue;
            previous = c.strip_rows;
            if (slices_fill_item(layer, s, shape, &c))
                try_shares(layer, shape, &c, &found, best);
        }
    }
    return found;
}

// Floats of the weights, and of the biases.
static size_t weight_floats(const struct conv_layer *layer, const struct slices_config *c)
{
    const struct slices_shape *s = &shapes[c->shape];
    return (size_t)c->groups * (size_t)layer->channels *
           (size_t)slices_weight_group(s->kernel_width, s->maps);
}

static bool plan_slices(struct conv_layer_plan *plan)
{
    struct slices_config *c = layer_constants<struct slices_config>(plan);
    if (!configure(&plan->layer, &plan->shape, c))
        return false;
    size_t floats = weight_floats(&plan->layer, c) + (size_t)(c->groups * shapes[c->shape].maps);
    plan->packed_bytes = floats * sizeof(float);
    return true;
}

// Microseconds that other exact variants take, from what they were measured to do. They compute
// tiles of about 8 columns x 8 maps; with few of them, warps or multiprocessors are idle. 0 with so
// many that this kernel gains nothing or was not measured.
static float others_cost(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    float images = (float)shape->images, outputs = (float)out_height * (float)out_width;
    float tiles = images * (float)out_height * (float)ceil_div(out_width, 8) *
                  (float)ceil_div(layer->maps, 8) / SLICES_PROCESSORS;
    float multiply_adds = images * outputs * (float)layer->maps * (float)taps;
    bool whole = out_width % SLICES_COLUMNS == 0;
    bool uniform = whole && layer->kernel_width == 5 && layer->channels <= 12;
    float full = !whole ? 250 : uniform ? 400 : 600; // tiles that keep all warps busy
    if (tiles > (uniform ? full / 2 : full * 2))
        return 0;
    // With so few channels `uniform` needs less: 6→16, 12², 1,000 images: 0.0149 ms, here 0.0154.
    if (uniform && layer->channels <= 6 && multiply_adds > 100e6f)
        return 0;
    float floats = images * (outputs * (float)layer->maps +
                             (float)layer->channels * (float)shape->height * (float)shape->width);
    float rate = uniform ? 20e6f : taps < 150 ? 10e6f : 16e6f;
    float compute = multiply_adds / rate / (tiles < full ? tiles / full : 1);
    float memory = floats * 4 / 3e6f;
    return 3.5f + (compute > memory ? compute : memory);
}

// Layers with so few taps are limited by writing, which `few` does as well: 1→50, 28², 5×5, 100
// images: 0.0090 ms, here 0.0125. But it takes 6 microseconds at least: 1→12, 64², 5×5, one image:
// 0.0067 ms, here 0.0049.
#define LEAST_TAPS 30
#define FEW_COST 6
// Microseconds. `strips` and `wgmma` take more, even for one image: 6→16, 12²: 0.0079 ms, here
// 0.0054.
#define TENSOR_CORES_COST 7.5f

// Padded and 8-bit input was not measured.
#define SINGLE_COPIES_MARGIN 1.25f

static int score_slices(const struct conv_layer_plan *plan)
{
    const struct slices_config *c = layer_constants<struct slices_config>(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    if (shape->images <= 0)
        return CONV_LAYER_SCORE_UNSUITED;
    float others = others_cost(layer, shape);
    if (others <= 0)
        return 60;
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    float margin = slices_loads_singly(layer) ? SINGLE_COPIES_MARGIN : 1;
    if (c->cost * margin > others || (taps < LEAST_TAPS && c->cost > FEW_COST))
        return 60;
    return c->cost < TENSOR_CORES_COST ? 125 : 95;
}

static void pack_slices(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct slices_config *c = layer_constants<struct slices_config>(plan);
    float *packed = (float *)plan->packed;
    int maps = shapes[c->shape].maps, side = layer->kernel_width;
    int row = slices_weight_row(side, maps), group = slices_weight_group(side, maps);
    float *bias = packed + weight_floats(layer, c);
    for (int i = 0; i < c->groups * maps; i++) {
        int g = i / maps, m = i % maps;
        // The last group ends with the maps and may overlap the one before.
        int map = (g * maps < layer->maps - maps ? g * maps : layer->maps - maps) + m;
        if (g * maps >= layer->maps)
            break; // empty groups
        bias[i] = layer->bias ? layer->bias[map] : 0;
        for (int k = 0; k < layer->channels; k++) {
            size_t from =
                ((size_t)map * (size_t)layer->channels + (size_t)k) * (size_t)(side * side);
            float *to =
                packed + ((size_t)g * (size_t)layer->channels + (size_t)k) * (size_t)group + m;
            for (int t = 0; t < side * side; t++)
                to[t / side * row + t % side * maps] = layer->weights[from + (size_t)t];
        }
    }
}

// Samples of a row that are copied at a time.
static int choose_copy(const struct conv_layer *layer, const struct conv_layer_batch *batch,
                       int width)
{
    if (slices_loads_singly(layer))
        return 0;
    int64_t strides = batch->src_row | batch->src_plane | batch->src_image;
    return strides % 16 == 0 && width % 4 == 0 ? 4 : strides % 8 == 0 && width % 2 == 0 ? 2 : 1;
}

static void fill_launch(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        const struct slices_config *c, struct slices_launch *p)
{
    const struct conv_layer *layer = &plan->layer;
    const struct slices_shape *s = &shapes[c->shape];
    layer_set_sizes(p, plan, batch);
    layer_set_border(p, layer);
    p->weights = (const float *)plan->d_packed;
    p->bias = p->weights + weight_floats(layer, c);
    p->bytes = layer->input == CONV_ELEMENT_U8;
    p->whole = slices_stores_directly(layer, &plan->shape);
    p->strips = c->strips;
    p->strip_rows = c->strip_rows;
    p->groups = c->groups;
    p->tiles = c->tiles;
    p->positions = c->positions;
    p->in_rows = c->in_rows;
    p->columns = c->columns;
    p->copy = choose_copy(layer, batch, p->width);
    p->vectors = p->columns / (p->copy > 1 ? p->copy : 1);
    p->row_threads = 1;
    while (p->row_threads < p->vectors && p->row_threads < 32)
        p->row_threads *= 2;
    p->pitch = c->pitch;
    p->item_floats = c->item_floats;
    p->weight_floats = c->weight_floats;
    p->memory_items = c->memory_items;
    p->share = c->share;
    p->first = c->first;
    int group = slices_weight_group(s->kernel_width, s->maps), others = p->channels - p->first;
    p->by_item = layer_divider_of(p->groups * p->positions);
    p->by_positions = layer_divider_of(p->positions);
    p->by_tiles = layer_divider_of(p->tiles);
    p->by_strips = layer_divider_of(p->strips);
    p->by_in_rows = layer_divider_of(p->in_rows);
    p->by_first_weights = layer_divider_of(p->first * group / 4);
    p->by_other_weights = layer_divider_of(others > 0 ? others * group / 4 : 1);
}

static enum conv_status run_slices(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct slices_config *c = layer_constants<struct slices_config>(plan);
    const struct slices_shape *s = &shapes[c->shape];
    struct slices_launch p;
    fill_launch(plan, batch, c, &p);
    if (layer_allow_shared_memory((const void *)s->kernel))
        return CONV_ERR_DEVICE;
    int64_t image_units = (int64_t)p.strips * p.groups * p.positions;
    int64_t plane = (int64_t)p.out_height * p.out_width;
    // Items and blocks have numbers of 31 bits. Each launch begins at a multiple of 16 bytes.
    int64_t image_blocks = ceil_div64(image_units, p.share);
    int64_t most = MOST_BLOCKS / (image_blocks > p.strips ? image_blocks : p.strips) / 4 * 4;
    for (int64_t first = 0; first < batch->images; first += most) {
        int64_t images = batch->images - first < most ? batch->images - first : most;
        p.src = (const char *)batch->src + first * batch->src_image;
        p.to = store_target_of(layer,
                               (char *)batch->dst + first * p.maps * plane *
                                                        (int64_t)conv_element_size(layer->output),
                               p.out_height, p.out_width);
        p.units = images * image_units;
        void (*kernel)(slices_launch) = s->kernel;
        kernel<<<(unsigned)ceil_div64(p.units, p.share), c->threads, (size_t)c->shared_bytes,
                 (cudaStream_t)batch->stream>>>(p);
        enum conv_status status = layer_launch_status();
        if (status != CONV_OK)
            return status;
    }
    return CONV_OK;
}

const struct conv_layer_variant conv_cuda_layer_slices = {
    "cuda_layer_slices",
    "small tiles in registers, blocks with equal shares of the outputs, for few images",
    CONV_ON_CUDA,
    CONV_CUDA_ONLY + 90, // others have less shared memory; the choice was measured there
    CONV_PRECISION_EXACT,
    0,
    true,
    plan_slices,
    score_slices,
    pack_slices,
    run_slices,
};
