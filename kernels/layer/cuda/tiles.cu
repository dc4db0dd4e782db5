// SPDX-License-Identifier: MIT
// cuda_layer_tiles: the choice of an instance of tiles.cuh for a layer, and its launch.
#include <string.h>

#include "kernels/layer/cuda/tiles.cuh"

// Shared memory of a block: the limit of compute capability 7.5; three blocks fit on 9.0. Instances
// of 128 threads need less for large kernels and strides.
#define MOST_SHARED (64 << 10)
#define MOST_MAPS 64                 // of a chunk, whose weights a block reads
#define MOST_WEIGHT_BYTES (20 << 10) // of a stage

static const struct tiles_shape shapes[] = {
    tiles_uniform<5, 1, 10, 8, 1, 256, 2>(),
    tiles_uniform<5, 1, 8, 8, 4, 256, 2>(),
    tiles_uniform<3, 1, 10, 8, 1, 256, 2>(),
    tiles_uniform<3, 1, 8, 8, 4, 256, 2>(),
    tiles_uniform<7, 1, 10, 8, 1, 128, 4>(),
    tiles_uniform<1, 1, 8, 8, 1, 256, 2>(),
    tiles_uniform<5, 2, 8, 8, 1, 128, 4>(),
    tiles_uniform<3, 2, 8, 8, 1, 128, 4>(),
    tiles_uniform<7, 2, 8, 8, 1, 128, 4>(),
    tiles_uniform<11, 1, 8, 8, 1, 128, 4>(),
    tiles_uniform<9, 1, 8, 8, 1, 128, 4>(),
    // Weights from shared memory: layers with more than fit into kernel parameters.
    tiles_instance<3, 1, 8, 8, 1, 256, 2>(),
    tiles_instance<5, 1, 8, 8, 1, 256, 2>(),
    tiles_instance<1, 1, 8, 8, 1, 256, 2>(),
    tiles_instance<3, 2, 8, 8, 1, 256, 2>(),
};

// How an instance does a layer.
struct tiles_config {
    int shape;         // of shapes
    int tiles, groups; // of a row; of a chunk
    int chunks;
    int strip_rows, image_strips, block_strips, in_rows, in_width, pitch, strip_floats, step;
    int dense; // no padding, no 8-bit input: rows are contiguous if the batch's are
    int weight_floats, stage_floats, shared_bytes;
    float cost; // instructions per multiply-add that counts
};

static int pad4(int n)
{
    return (n + 3) / 4 * 4;
}

static void fill_strip(const struct conv_layer *layer, const struct tiles_shape *s, int rows,
                       int out_height, int out_width, int width, struct tiles_config *c)
{
    c->strip_rows = rows;
    c->image_strips = ceil_div(out_height, rows);
    c->in_rows = (rows - 1) * s->stride + layer->kernel_height;
    c->in_width = (out_width - 1) * s->stride + s->kernel_width;
    c->pitch = ceil_div(c->dense ? width : c->in_width, s->vector) * s->vector;
    // Columns beyond the row are read for outputs that are not stored.
    int beyond = (c->tiles * s->columns - 1) * s->stride + s->kernel_width - c->pitch;
    if (beyond < 0)
        beyond = 0;
    c->strip_floats = pad4(c->in_rows * c->pitch + 3 + beyond);
    int units = c->groups * rows * c->tiles;
    c->block_strips = s->threads % units == 0   ? s->threads / units
                      : units % s->threads == 0 ? 1
                                                : (s->threads - 2) / units + 2;
}

// Shared memory and cost with `step` channels a stage; false if it does not fit.
static bool fill_step(const struct conv_layer *layer, const struct tiles_shape *s, int step,
                      int out_height, int out_width, struct tiles_config *c)
{
    int64_t plane = (int64_t)c->block_strips * c->strip_floats;
    int64_t stage = (step * (plane + c->weight_floats) + 3) / 4 * 4;
    int64_t bytes = stage * 4 * (layer->channels > step ? 2 : 1);
    int64_t epilogue = (int64_t)s->threads / 32 * s->epilogue_bytes;
    int64_t tables = (c->block_strips * c->in_rows * 8 + c->in_width * 4 + 15) / 16 * 16;
    bytes = tables + (bytes > epilogue ? bytes : epilogue);
    if (bytes > MOST_SHARED || (step > 1 && step * c->weight_floats * 4 > MOST_WEIGHT_BYTES))
        return false;
    c->step = step;
    c->stage_floats = (int)stage;
    c->shared_bytes = (int)bytes;
    float taps = (float)(layer->kernel_height * s->kernel_width);
    float work = taps * (float)(s->columns * s->maps); // of a thread and channel
    float reads = (float)layer->kernel_height *
                  ((float)((s->columns - 1) * s->stride + s->kernel_width) / (float)s->vector +
                   (float)(s->kernel_width * s->maps) / (s->uniform ? 2 : 4) + 6);
    if (!s->uniform)
        reads += work * 0.5f; // waiting for the register file
    float loads = (float)(c->block_strips * c->strip_floats) / (float)s->threads *
                      (c->dense ? 2.5f : 40 / (float)step + 20) +
                  (float)(40 * c->block_strips) + 40 / (float)step;
    float useful = (float)out_width / (float)(c->tiles * s->columns) * (float)out_height /
                   (float)(c->strip_rows * c->image_strips) * (float)layer->maps /
                   (float)(c->chunks * c->groups * s->maps);
    c->cost = (work + reads + loads) / (work * useful);
    return true;
}

static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct tiles_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    bool found = false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct tiles_shape *s = &shapes[i];
        if (s->kernel_width != layer->kernel_width || s->stride != layer->stride_x)
            continue;
        struct tiles_config c;
        c.shape = (int)i;
        c.tiles = ceil_div(out_width, s->columns);
        if (c.tiles > 1 && s->columns * s->stride % s->vector)
            continue; // tiles would begin between vectors
        int groups = ceil_div(layer->maps, s->maps);
        int most = s->uniform ? 1 : MOST_MAPS / s->maps;
        int taps = layer->channels * layer->kernel_height * layer->kernel_width;
        if (s->uniform && taps * s->maps > TILES_FLOATS)
            continue;
        while (most > 1 && layer->kernel_height * s->kernel_width * most * pad4(s->maps) * 4 >
                               MOST_WEIGHT_BYTES)
            most--;
        c.dense = layer->input == CONV_ELEMENT_F32 && !layer->pad_top && !layer->pad_bottom &&
                  !layer->pad_left && !layer->pad_right;
        // Vectors need rows and planes of whole vectors.
        if (s->vector > 1 && c.dense &&
            (shape->width % s->vector || shape->height * shape->width % 4))
            continue;
        c.chunks = ceil_div(groups, most);
        c.groups = ceil_div(groups, c.chunks);
        c.weight_floats =
            s->uniform ? 0 : layer->kernel_height * s->kernel_width * c.groups * pad4(s->maps);
        int previous = 0;
        for (int strips = 1; strips <= out_height; strips++) {
            int rows = ceil_div(out_height, strips);
            if (rows == previous)
                continue;
            previous = rows;
            fill_strip(layer, s, rows, out_height, out_width, shape->width, &c);
            for (int step = 1; step <= 4 && step <= layer->channels; step++) {
                if (fill_step(layer, s, step, out_height, out_width, &c) &&
                    (!found || c.cost < best->cost)) {
                    *best = c;
                    found = true;
                }
            }
        }
    }
    return found;
}

static size_t map_floats(const struct conv_layer *layer, const struct tiles_config *c)
{
    return (size_t)c->chunks * ((size_t)layer->channels * (size_t)c->weight_floats +
                                (size_t)(c->groups * pad4(shapes[c->shape].maps)));
}

static bool plan_tiles(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    struct tiles_config *c = layer_constants<struct tiles_config>(plan);
    if (conv_layer_out_height(layer, shape->height) <= 0 ||
        conv_layer_out_width(layer, shape->width) <= 0 || !configure(layer, shape, c))
        return false;
    plan->packed_bytes = map_floats(layer, c) * sizeof(float);
    return true;
}

static int score_tiles(const struct conv_layer_plan *)
{
    return 80;
}

static void pack_tiles(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct tiles_config *c = layer_constants<struct tiles_config>(plan);
    const struct tiles_shape *s = &shapes[c->shape];
    int padded = pad4(s->maps), taps = layer->kernel_height * layer->kernel_width;
    float *packed = (float *)plan->packed;
    float *bias = packed + (size_t)c->chunks * (size_t)layer->channels * (size_t)c->weight_floats;
    for (int m = 0; m < layer->maps; m++) {
        int chunk = m / (c->groups * s->maps), group = m / s->maps - chunk * c->groups;
        int at = group * padded + m % s->maps;
        if (layer->bias)
            bias[chunk * c->groups * padded + at] = layer->bias[m];
        if (s->uniform)
            continue;
        for (int k = 0; k < layer->channels; k++) {
            const float *from =
                layer->weights + ((size_t)m * (size_t)layer->channels + (size_t)k) * (size_t)taps;
            float *to = packed + ((size_t)chunk * (size_t)layer->channels + (size_t)k) *
                                     (size_t)c->weight_floats;
            for (int t = 0; t < taps; t++)
                to[t * c->groups * padded + at] = from[t];
        }
    }
}

// Launches as many chunks at a time as fit their weights into the parameters.
static enum conv_status run_uniform(const struct conv_layer *layer, const struct tiles_config *c,
                                    const struct tiles_launch *common, int64_t blocks,
                                    cudaStream_t stream)
{
    const struct tiles_shape *s = &shapes[c->shape];
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    int most = TILES_FLOATS / (taps * s->maps);
    void (*kernel)(tiles_uniform_launch) = s->uniform;
    struct tiles_uniform_launch p;
    p.t = *common;
    if (layer_allow_shared_memory((const void *)kernel))
        return CONV_ERR_DEVICE;
    for (int first = 0; first < c->chunks; first += most) {
        int count = c->chunks - first < most ? c->chunks - first : most;
        p.t.first_chunk = first;
        float *to = &p.weights[0].x;
        for (int chunk = 0; chunk < count; chunk++)
            for (int t = 0; t < taps; t++)
                for (int k = 0; k < s->maps; k++) {
                    int m = (first + chunk) * s->maps + k;
                    *to++ =
                        m < layer->maps ? layer->weights[(size_t)m * (size_t)taps + (size_t)t] : 0;
                }
        dim3 grid((unsigned)blocks, (unsigned)count);
        kernel<<<grid, s->threads, (size_t)c->shared_bytes, stream>>>(p);
        enum conv_status status = layer_launch_status();
        if (status != CONV_OK)
            return status;
    }
    return CONV_OK;
}

static void fill_launch(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        const struct tiles_config *c, struct tiles_launch *p)
{
    const struct conv_layer *layer = &plan->layer;
    const struct tiles_shape *s = &shapes[c->shape];
    layer_set_sizes(p, plan, batch);
    layer_set_border(p, layer);
    p->dst = batch->dst;
    p->weights = (const float *)plan->d_packed;
    p->bias = p->weights + (size_t)c->chunks * (size_t)layer->channels * (size_t)c->weight_floats;
    p->strips = batch->images * c->image_strips;
    p->stride = layer->stride_x;
    p->pad_bottom = layer->pad_bottom;
    p->pad_right = layer->pad_right;
    p->activation = (int)layer->activation;
    p->half = layer->output == CONV_ELEMENT_F16;
    p->bytes = layer->input == CONV_ELEMENT_U8;
    p->strip_rows = c->strip_rows;
    p->image_strips = c->image_strips;
    p->tiles = c->tiles;
    p->groups = c->groups;
    p->strip_units = c->groups * c->strip_rows * c->tiles;
    p->block_strips = c->block_strips;
    p->in_rows = c->in_rows;
    p->in_width = c->in_width;
    p->pitch = c->pitch;
    p->step = c->step;
    p->strip_floats = c->strip_floats;
    p->dense = c->dense && p->src_row == p->width * 4 && p->src_plane % (4 * s->vector) == 0 &&
               p->src_image % (4 * s->vector) == 0;
    p->weight_floats = c->weight_floats;
    p->stage_floats = c->stage_floats;
    p->chunk_maps = c->groups * s->maps;
    p->first_chunk = 0;
}

static enum conv_status run_tiles(const struct conv_layer_plan *plan,
                                  const struct conv_layer_batch *batch)
{
    const struct tiles_config *c = layer_constants<struct tiles_config>(plan);
    const struct tiles_shape *s = &shapes[c->shape];
    if (batch->images <= 0)
        return CONV_OK;
    struct tiles_launch p;
    fill_launch(plan, batch, c, &p);
    int64_t blocks = ceil_div64(p.strips * p.strip_units, s->threads);
    if (s->uniform)
        return run_uniform(&plan->layer, c, &p, blocks, (cudaStream_t)batch->stream);
    if (layer_allow_shared_memory((const void *)s->kernel))
        return CONV_ERR_DEVICE;
    dim3 grid((unsigned)blocks, (unsigned)c->chunks);
    void (*kernel)(tiles_launch) = s->kernel;
    kernel<<<grid, s->threads, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(p);
    return layer_launch_status();
}

const struct conv_layer_variant conv_cuda_layer_tiles = {
    "cuda_layer_tiles",
    "register tiles of columns and maps, channels streamed through shared memory",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    CONV_LAYER_PADS | CONV_LAYER_LATE,
    plan_tiles,
    score_tiles,
    pack_tiles,
    run_tiles,
};
