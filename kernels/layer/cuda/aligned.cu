// SPDX-License-Identifier: MIT
// cuda_layer_aligned: the choice of stages for a layer, and the launch of aligned.cuh.
#include <string.h>

#include "kernels/layer/cuda/aligned.cuh"

#define SHARED (227 << 10) // of a block
#define PROCESSORS 132     // assumed for the choice
#define KERNEL 5           // rows and columns
#define COLUMNS 29
#define MAPS 3
#define THREADS 384
#define LEAST_WIDTH (COLUMNS - ALIGNED_MOST_IDLE + KERNEL - 1) // of rows
#define WIDTHS (ALIGNED_MOST_IDLE + 1)
#define PITCH aligned_pitch(COLUMNS, KERNEL)
#define MOST_UNITS (1 << 30) // of a block
#define MOST_IMAGES 4000     // for which it is chosen: see score_aligned()
#define LEAST_USEFUL 0.6f
#define ROW_CYCLES 500 // of a scheduler for an input row and a kernel row of a warp, measured

static void (*const kernels[WIDTHS])(aligned_launch) = {
    aligned<KERNEL, COLUMNS, MAPS, LEAST_WIDTH, THREADS>,
    aligned<KERNEL, COLUMNS, MAPS, LEAST_WIDTH + 1, THREADS>,
    aligned<KERNEL, COLUMNS, MAPS, LEAST_WIDTH + 2, THREADS>,
    aligned<KERNEL, COLUMNS, MAPS, LEAST_WIDTH + 3, THREADS>,
}; // for rows that follow each other, by their width

// Values derived from a layer; a plan's constants.
struct aligned_config {
    int groups, item_units;
    int stage_channels, slots;
    int weight_floats, shared_bytes;
};

static int64_t group_floats(const struct conv_layer *layer)
{
    return aligned_biases(MAPS) + (int64_t)layer->channels * KERNEL * aligned_weights(MAPS, KERNEL);
}

static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct aligned_config *c)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    if (layer->kernel_width != KERNEL || layer->kernel_height != KERNEL || layer->stride != 1 ||
        layer->input != CONV_ELEMENT_F32 || layer->maps < MAPS || layer->pad_top ||
        layer->pad_bottom || layer->pad_left || layer->pad_right ||
        out_height < ALIGNED_LEAST_ROWS || shape->width < LEAST_WIDTH ||
        shape->width >= LEAST_WIDTH + WIDTHS)
        return false;
    c->slots = 0;
    c->groups = ceil_div(layer->maps, MAPS);
    int64_t weights = (int64_t)c->groups * group_floats(layer) * 4;
    int64_t buffers = THREADS / 32 * ALIGNED_BUFFER(COLUMNS) * 4;
    int64_t room = SHARED - weights - buffers - ALIGNED_BARRIER_BYTES;
    int64_t plane = (int64_t)shape->height * PITCH * 4;
    if (weights > SHARED || plane > SHARED)
        return false;
    c->item_units = c->groups * out_height;
    // As many images as possible, less the stage that is being loaded, and few stages.
    float best = 0;
    for (int stages = 1; stages <= layer->channels; stages++) {
        if (layer->channels % stages != 0)
            continue;
        int64_t stage = layer->channels / stages * plane, slots = room / stage;
        slots = slots < ALIGNED_MOST_SLOTS ? slots : ALIGNED_MOST_SLOTS;
        // A warp between two images waits for a stage of the second with all of the first.
        float images = (float)(slots - 1) / (float)stages;
        if (slots < stages + 1 || (c->slots > 0 && images < best + 0.1f))
            continue;
        best = images;
        c->stage_channels = layer->channels / stages;
        c->slots = (int)slots;
        c->weight_floats = (int)(weights / 4);
        c->shared_bytes = (int)(weights + buffers + ALIGNED_BARRIER_BYTES + slots * stage);
    }
    return c->slots > 0;
}

// The share of the time in which schedulers issue the multiply-adds that are needed.
static float find_useful(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                         const struct aligned_config *c)
{
    float images = shape->images > 0 ? (float)shape->images : 1000;
    int64_t units = ceil_div64((int64_t)images * c->item_units, PROCESSORS);
    int64_t batches = ceil_div64(units, 32), rest = batches % (THREADS / 32);
    // The last warps have schedulers to themselves, but do not keep them busy.
    float turns = (float)((batches - rest) / 4) + (rest ? (float)((rest + 3) / 4) + 0.3f : 0);
    float needed = images * (float)conv_layer_out_height(layer, shape->height) *
                   (float)(conv_layer_out_width(layer, shape->width) * KERNEL) *
                   (float)layer->maps / (PROCESSORS * 128.0f);
    return needed / (turns * ROW_CYCLES);
}

static bool plan_aligned(struct conv_layer_plan *plan)
{
    struct aligned_config *c = layer_constants<struct aligned_config>(plan);
    if (!configure(&plan->layer, &plan->shape, c))
        return false;
    plan->packed_bytes = (size_t)c->weight_floats * sizeof(float);
    return true;
}

// Other variants are faster for few images (12→24, 33², 100 images: 0.041 ms instead of 0.047),
// where `useful` is low; as fast for very many (10,000: 2.473 and 2.485); and where output rows are
// multiples of four and channels few (12→24, 32², 1,000 images: 0.259 and 0.267).
static int score_aligned(const struct conv_layer_plan *plan)
{
    const struct aligned_config *c = layer_constants<struct aligned_config>(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    bool whole = conv_layer_out_width(layer, shape->width) % 4 == 0 && layer->channels <= 12;
    bool suits =
        shape->images <= MOST_IMAGES && !whole && find_useful(layer, shape, c) >= LEAST_USEFUL;
    return suits ? 92 : 74;
}

static void pack_aligned(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct aligned_config *c = layer_constants<struct aligned_config>(plan);
    int taps = layer->channels * KERNEL * KERNEL;
    float *to = (float *)plan->packed;
    for (int g = 0; g < c->groups; g++, to += group_floats(layer))
        for (int m = 0; m < MAPS; m++) {
            // The last group ends with the maps and may overlap the one before.
            int map = (g * MAPS < layer->maps - MAPS ? g * MAPS : layer->maps - MAPS) + m;
            const float *from = layer->weights + (size_t)map * (size_t)taps;
            // An odd last map is there twice; any two outputs that follow each other need both.
            for (int t = 0; t < 2; t++) {
                int place = aligned_place(MAPS, m, t);
                to[place ^ 1] = layer->bias ? layer->bias[map] : 0;
                for (int i = 0; i < taps; i++)
                    to[aligned_biases(MAPS) + i / KERNEL * aligned_weights(MAPS, KERNEL) +
                       i % KERNEL * aligned_column(MAPS) + place] = from[i];
            }
        }
}

static void fill_launch(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        struct aligned_launch *p)
{
    const struct conv_layer *layer = &plan->layer;
    const struct aligned_config *c = layer_constants<struct aligned_config>(plan);
    p->weights = (const float *)plan->d_packed;
    p->src_row = batch->src_row;
    p->src_plane = batch->src_plane;
    p->src_image = batch->src_image;
    p->height = plan->shape.height;
    p->width = plan->shape.width;
    p->maps = layer->maps;
    p->out_height = conv_layer_out_height(layer, p->height);
    p->out_width = conv_layer_out_width(layer, p->width);
    p->item_units = c->item_units;
    p->stage_channels = c->stage_channels;
    p->stages = layer->channels / c->stage_channels;
    p->slots = c->slots;
    p->group_floats = (int)group_floats(layer);
    p->weight_floats = c->weight_floats;
    p->by_item_units = layer_divider_of(p->item_units);
    p->by_out_height = layer_divider_of(p->out_height);
    p->by_stages = layer_divider_of(p->stages);
    p->by_slots = layer_divider_of(p->slots);
}

static enum conv_status run_aligned(const struct conv_layer_plan *plan,
                                    const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct aligned_config *c = layer_constants<struct aligned_config>(plan);
    if (batch->images <= 0)
        return CONV_OK;
    struct aligned_launch p;
    fill_launch(plan, batch, &p);
    void (*kernel)(aligned_launch) = p.src_row == p.width * 4
                                         ? kernels[p.width - LEAST_WIDTH]
                                         : aligned<KERNEL, COLUMNS, MAPS, 0, THREADS>;
    int device, processors;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        layer_allow_shared_memory((const void *)kernel))
        return CONV_ERR_DEVICE;
    // 31 bits number the units of a block. Each launch begins at a multiple of 16 bytes.
    int64_t most = (int64_t)MOST_UNITS / p.item_units * processors;
    most = (most < INT32_MAX ? most : INT32_MAX) / 4 * 4;
    for (int64_t first = 0; first < batch->images; first += most) {
        int64_t images = batch->images - first < most ? batch->images - first : most;
        int64_t at = first * p.maps * p.out_height * p.out_width;
        p.src = (const char *)batch->src + first * batch->src_image;
        p.to = store_target_of(layer,
                               (char *)batch->dst + at * (int64_t)conv_element_size(layer->output),
                               p.out_height, p.out_width);
        p.images = (int)images;
        int blocks = processors < images ? processors : (int)images;
        kernel<<<(unsigned)blocks, THREADS, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(
            p);
        enum conv_status status = layer_launch_status();
        if (status != CONV_OK)
            return status;
    }
    return CONV_OK;
}

const struct conv_layer_variant conv_cuda_layer_aligned = {
    "cuda_layer_aligned",
    "register tiles of columns and maps, samples read four at a time",
    CONV_ON_CUDA,
    CONV_CUDA_ONLY + 90, // later devices have as many barriers, but some have less shared memory
    CONV_PRECISION_EXACT,
    0,
    true,
    plan_aligned,
    score_aligned,
    pack_aligned,
    run_aligned,
};
