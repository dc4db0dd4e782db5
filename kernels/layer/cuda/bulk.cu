// SPDX-License-Identifier: MIT
// cuda_layer_bulk: the choice of an instance of bulk_tiles.cuh and of a strip for a layer, and its
// launch.

#include "kernels/layer/cuda/bulk_tiles.cuh"

#define SHARED (227 << 10)  // of a multiprocessor, whose only block takes it
#define PROCESSORS 132      // assumed for the choice
#define MOST_PROCESSORS 256 // that a launch uses
#define MOST_ITEMS (1 << 24)
#define MOST_UNITS (1 << 30) // of a block

struct bulk_shape {
    int kernel_width, columns, maps, vector, threads;
    float suited; // it is fastest if at least this share of its multiply-adds is needed
    int score;
    float cost; // of a multiply-add relative to the first instance, measured
    void (*kernel)(bulk_launch);
};

static const struct bulk_shape shapes[] = {
    {5, 29, 3, 1, 384, 0.8f, 89, 1, bulk_rows<5, 29, 3, 1, false, 384>},
    {5, 15, 3, 1, 384, 0.85f, 87, 1.07f, bulk_rows<5, 15, 3, 1, false, 384>},
    {5, 11, 8, 1, 384, 0.6f, 87, 1.15f, bulk_rows<5, 11, 8, 1, false, 384>},
    {5, 17, 4, 1, 512, 0.6f, 87, 1.08f, bulk_rows<5, 17, 4, 1, true, 512>},
    {7, 20, 4, 4, 512, 0.75f, 89, 1.1f, bulk_rows<7, 20, 4, 4, true, 512>},
    {9, 20, 4, 4, 384, 0.75f, 89, 1.1f, bulk_rows<9, 20, 4, 4, true, 384>},
};

// Those of vectors were measured with few channels. Cycles of a multiprocessor that a copied byte
// takes and nothing hides, since neighbouring strips overlap.
#define MOST_VECTOR_CHANNELS 4
#define VECTOR_LOAD 0.21f

// Values derived from a layer; a plan's constants.
struct bulk_config {
    int shape, tiles, groups, strips, strip_rows, slots;
    int pad, copy_rows;
    int plane_floats, slot_floats, weight_floats, shared_bytes;
    float cost;   // cycles of a multiprocessor
    float useful; // share of the multiply-adds that are needed
};

// Floats of the biases and weights of a group of maps.
static int group_floats(const struct conv_layer *layer, const struct bulk_shape *s)
{
    return bulk_pad(s->maps) +
           layer->channels * layer->kernel_height * bulk_pad(s->kernel_width * s->maps);
}

// Units of one item for one group of maps.
static int group_units(const struct bulk_config *c)
{
    return c->strip_rows * c->tiles;
}

// True if every image begins at a multiple of 16 bytes when images follow each other without gaps.
static bool always_aligned(const struct bulk_config *c, const struct conv_layer *layer)
{
    return c->strips == 1 && (int64_t)layer->channels * c->plane_floats % 4 == 0;
}

// Computes the shared memory for the settings in `c` so far; false if it does not fit.
static bool fill_config(const struct conv_layer *layer, const struct bulk_shape *s,
                        const struct conv_layer_shape *shape, struct bulk_config *c)
{
    int64_t room = SHARED;
    int rows = c->strip_rows + layer->kernel_height - 1;
    c->copy_rows = rows < shape->height ? rows : shape->height; // the rest is padding
    int64_t plane = (int64_t)c->copy_rows * shape->width;
    int64_t weights = ceil_div64((int64_t)c->groups * group_floats(layer, s), 4) * 4;
    if (plane * layer->channels * 4 > room || weights * 4 > room)
        return false;
    // Channels of whole images follow each other without gaps. Copies begin up to 3 floats early,
    // unless all images are aligned. A thread reads beyond the last row for outputs that it does
    // not store.
    c->plane_floats = c->strips == 1 ? (int)plane : ceil_div((int)plane + 3, 4) * 4;
    int window = ceil_div(s->columns + layer->kernel_width - 1, s->vector) * s->vector;
    int beyond = c->pad > 0 ? c->pad : (c->tiles - 1) * s->columns + window - shape->width;
    int samples = (c->pad > 0 ? BULK_MARGIN : 0) + layer->channels * c->plane_floats +
                  (beyond > 0 ? beyond : 0);
    c->slot_floats = ceil_div(samples + (always_aligned(c, layer) ? 0 : 3), 4) * 4;
    c->weight_floats = (int)weights;
    int64_t rest = room - weights * 4 -
                   (int64_t)(s->threads / 32 * bulk_buffer(s->columns, s->vector) * 4) -
                   (c->pad > 0 ? BULK_ZEROS * 4 : 0) - BULK_BARRIER_BYTES;
    int64_t slots = rest < 0 ? 0 : rest / (c->slot_floats * 4);
    c->slots = (int)(slots < BULK_MOST_SLOTS ? slots : BULK_MOST_SLOTS);
    // A warp counts outputs from its first one in 32 bits.
    int64_t item_units = (int64_t)c->groups * group_units(c);
    int64_t images = (31 / item_units + 2) * MOST_PROCESSORS / c->strips + 1;
    if (images * layer->maps * conv_layer_out_height(layer, shape->height) >
        INT32_MAX / conv_layer_out_width(layer, shape->width))
        return false;
    // With fewer slots than a warp computes at a time, it would wait for ever.
    if (c->slots < ceil_div(31, c->groups * group_units(c)) + 1)
        return false;
    c->shared_bytes = (int)(room - rest) + c->slots * c->slot_floats * 4;
    return true;
}

// A scheduler issues an instruction per cycle at best.
static void fill_cost(const struct conv_layer *layer, const struct bulk_shape *s,
                      const struct conv_layer_shape *shape, struct bulk_config *c)
{
    int64_t images = shape->images > 0 ? shape->images : 1000;
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int reads = ceil_div(s->columns + s->kernel_width - 1, s->vector) +
                s->kernel_width * ceil_div(s->maps, 4);
    float step = (float)(s->columns * s->maps * s->kernel_width) * s->cost + 2 * (float)reads + 10;
    float unit = (float)(layer->channels * layer->kernel_height) * step +
                 (float)(s->maps * (s->columns * 2 + 40) + 300);
    int64_t items = ceil_div64(images * c->strips, PROCESSORS);
    int64_t batches = ceil_div64(items * c->groups * group_units(c), 32);
    // The last warps have schedulers to themselves, but do not keep them busy.
    int64_t warps = s->threads / 32, rest = batches % warps;
    float turns = (float)((batches - rest) / 4) + (rest ? rest < 8 ? 2 : (float)(rest + 3) / 4 : 0);
    // Warps wait if there are fewer slots than items that they compute at a time.
    int least = ceil_div(s->threads, c->groups * group_units(c)) + 1;
    turns *= c->slots < least ? 1.45f : 1;
    float bytes = (float)c->slot_floats * 4;
    c->cost = turns * unit + bytes / 16 +
              (float)items * bytes * (s->vector > 1 ? VECTOR_LOAD : 0); // 16: of the first item
    c->useful = (float)out_width / (float)(c->tiles * s->columns) * (float)layer->maps /
                (float)(c->groups * s->maps) * (float)out_height /
                (float)(c->strips * c->strip_rows) * (float)batches / (4 * turns) / s->cost;
}

// `same`: with zeros around the input.
static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      bool same, struct bulk_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    bool found = false;
    if (layer->stride_x != 1 || out_height <= 0 || out_width <= 0 || out_height > MOST_ITEMS / 8)
        return false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct bulk_shape *s = &shapes[i];
        if (s->kernel_width != layer->kernel_width || s->maps > layer->maps ||
            shape->width % s->vector ||
            (s->vector > 1 && (same || (int64_t)shape->height * shape->width % s->vector)) ||
            (same && out_width < s->columns))
            continue;
        struct bulk_config c = {};
        c.shape = (int)i;
        c.pad = same ? layer->pad_top : 0;
        c.tiles = ceil_div(out_width, s->columns);
        c.groups = ceil_div(layer->maps, s->maps);
        int previous = 0;
        for (int strips = 1; strips <= out_height; strips++) {
            c.strip_rows = ceil_div(out_height, strips);
            c.strips = ceil_div(out_height, c.strip_rows);
            if (c.strip_rows == previous || !fill_config(layer, s, shape, &c))
                continue;
            previous = c.strip_rows;
            fill_cost(layer, s, shape, &c);
            if (!found || c.cost < best->cost) {
                *best = c;
                found = true;
            }
        }
    }
    return found;
}

static bool plan_bulk(struct conv_layer_plan *plan)
{
    struct bulk_config *c = layer_constants<struct bulk_config>(plan);
    const struct conv_layer *layer = &plan->layer;
    bool same = layer_is_same(layer) && configure(layer, &plan->shape, true, c);
    if (!same && (layer_is_padded(layer) || layer->input != CONV_ELEMENT_F32))
        conv_layer_plan_pad(plan);
    if (!same && !configure(layer, &plan->shape, false, c))
        return false;
    plan->packed_bytes = (size_t)c->weight_floats * sizeof(float);
    return true;
}

static int score_bulk(const struct conv_layer_plan *plan)
{
    // `useful` is also low where threads are idle, or fewer items fit in memory than are computed
    // at a time.
    const struct bulk_config *c = layer_constants<struct bulk_config>(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    const struct bulk_shape *s = &shapes[c->shape];
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    // Units of 8 columns x 8 maps. If they occupy half of the multiprocessors, blocks with an
    // image each are faster.
    int64_t units = shape->images * out_height * ceil_div(out_width, 8) * ceil_div(layer->maps, 8);
    bool small = shape->images > 0 && units < PROCESSORS * 160;
    bool suits = c->useful >= (small ? 0.3f : s->suited) && conv_layer_taps(layer) >= 64 &&
                 (s->vector == 1 || layer->channels <= MOST_VECTOR_CHANNELS);
    // There cuda_layer_gemm is faster.
    if ((plan->pads && (small || layer->maps < 2 * layer->channels)) ||
        layer->kernel_height != layer->kernel_width)
        suits = false;
    // cuda_layer_few reads rows of multiples of four in vectors.
    if (c->pad > 0)
        return suits && !small && out_width % 4 != 0 && layer->maps <= 48 ? 102 : 45;
    return suits ? s->score + (s->columns == 29 && out_width % 4 != 0) : 45;
}

static void pack_bulk(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct bulk_config *c = layer_constants<struct bulk_config>(plan);
    const struct bulk_shape *s = &shapes[c->shape];
    int maps = s->maps, width = layer->kernel_width, taps = (int)conv_layer_taps(layer);
    float *to = (float *)plan->packed;
    for (int g = 0; g < c->groups; g++, to += group_floats(layer, s))
        for (int m = 0; m < maps; m++) {
            // The last group ends with the maps and may overlap the one before.
            int map = (g * maps < layer->maps - maps ? g * maps : layer->maps - maps) + m;
            to[m] = layer->bias ? layer->bias[map] : 0;
            for (int t = 0; t < taps; t++)
                to[bulk_pad(maps) + t / width * bulk_pad(width * maps) + t % width * maps + m] =
                    layer->weights[(size_t)map * (size_t)taps + (size_t)t];
        }
}

// How the samples of an item are loaded: by one bulk copy, by one for each channel, or singly.
static void choose_copies(const struct conv_layer *layer, const struct conv_layer_batch *batch,
                          const struct bulk_config *c, struct bulk_launch *p)
{
    int64_t row = (int64_t)p->width * 4, plane = row * p->copy_rows;
    bool apart = batch->src_row != row ||
                 (batch->src_plane | batch->src_image) % (shapes[c->shape].vector * 4) != 0;
    p->plane_step = 0;
    p->copies = 0;
    p->copy_bytes = 0;
    bool fits = !always_aligned(c, layer) || batch->src_image % 16 == 0;
    if (!apart && c->strips == 1 && batch->src_plane == plane && fits) {
        p->copies = 1;
        p->copy_bytes = (int)plane * p->channels;
    } else if (!apart && c->strips > 1) {
        p->copies = p->channels;
        p->copy_bytes = (int)plane;
        p->plane_step = (int)(batch->src_plane / 4 % 4);
    }
}

static void fill_launch(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        struct bulk_launch *p)
{
    const struct conv_layer *layer = &plan->layer;
    const struct bulk_config *c = layer_constants<struct bulk_config>(plan);
    layer_set_sizes(p, plan, batch);
    p->weights = (const float *)plan->d_packed;
    p->pad = c->pad;
    p->margin = c->pad > 0 ? BULK_MARGIN : 0;
    p->copy_rows = c->copy_rows;
    p->strips = c->strips;
    p->strip_rows = c->strip_rows;
    p->tiles = c->tiles;
    p->group_units = group_units(c);
    p->item_units = c->groups * p->group_units;
    p->plane_floats = c->plane_floats;
    p->slot_floats = c->slot_floats;
    p->slots = c->slots;
    p->group_floats = group_floats(layer, &shapes[c->shape]);
    p->weight_floats = c->weight_floats;
    p->by_item_units = layer_divider_of(p->item_units);
    p->by_group_units = layer_divider_of(p->group_units);
    p->by_tiles = layer_divider_of(p->tiles);
    p->by_strips = layer_divider_of(p->strips);
    choose_copies(layer, batch, c, p);
}

static enum conv_status run_bulk(const struct conv_layer_plan *plan,
                                 const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct bulk_config *c = layer_constants<struct bulk_config>(plan);
    const struct bulk_shape *s = &shapes[c->shape];
    if (batch->images <= 0)
        return CONV_OK;
    int device, processors;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        layer_allow_shared_memory((const void *)s->kernel))
        return CONV_ERR_DEVICE;
    struct bulk_launch p;
    fill_launch(plan, batch, &p);
    void (*kernel)(bulk_launch) = s->kernel;
    // Units of a block are numbered by 31 bits. Each launch begins at a multiple of 16 bytes.
    int64_t most = (int64_t)MOST_UNITS / p.item_units * processors;
    most = (most < MOST_ITEMS ? most : MOST_ITEMS) / p.strips / 4 * 4;
    for (int64_t first = 0; first < batch->images; first += most) {
        int64_t images = batch->images - first < most ? batch->images - first : most;
        int64_t at = first * p.maps * p.out_height * p.out_width;
        p.src = (const char *)batch->src + first * batch->src_image;
        p.to = store_target_of(layer,
                               (char *)batch->dst + at * (int64_t)conv_element_size(layer->output),
                               p.out_height, p.out_width);
        p.to.vectors = p.to.vectors && s->vector > 1;
        p.items = (int)images * p.strips;
        int most_blocks = processors < MOST_PROCESSORS ? processors : MOST_PROCESSORS;
        int blocks = most_blocks < p.items ? most_blocks : p.items;
        kernel<<<(unsigned)blocks, s->threads, (size_t)c->shared_bytes,
                 (cudaStream_t)batch->stream>>>(p);
        enum conv_status status = layer_launch_status();
        if (status != CONV_OK)
            return status;
    }
    return CONV_OK;
}

const struct conv_layer_variant conv_cuda_layer_bulk = {
    "cuda_layer_bulk",
    "register tiles of columns and maps, images by bulk copies, no barrier among warps",
    CONV_ON_CUDA,
    CONV_CUDA_ONLY + 90, // later devices have bulk copies, but some have less shared memory
    CONV_PRECISION_EXACT,
    0,
    CONV_LAYER_PADS | CONV_LAYER_LATE,
    plan_bulk,
    score_bulk,
    pack_bulk,
    run_bulk,
};
