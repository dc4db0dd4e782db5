// SPDX-License-Identifier: MIT
// cuda_layer_rows: the choice of an instance of rows.cuh for a layer, and its launch.
#include <string.h>

#include "kernels/layer/cuda/rows.cuh"

#define MOST_SHARED (64 << 10) // of a block: the limit of compute capability 7.5

// Blocks of 4n warps, so that all schedulers of a multiprocessor have equally many. 3×3 with 28
// columns: 48→48, 56², 100 images: 0.449 ms, 0.384 with 8 × 8; 64→64, 58²: 0.753 and 0.632. Its
// cost is such that it is still chosen for rows of 28 outputs.
static const struct rows_shape shapes[] = {
    rows_instance<5, 1, 15, 6, 1, 256, 2>(), rows_instance<5, 1, 16, 8, 4, 128, 3>(),
    rows_instance<5, 1, 8, 8, 4, 256, 2>(),  rows_instance<3, 1, 28, 4, 4, 128, 3>(1.075f),
    rows_instance<3, 1, 16, 8, 4, 128, 3>(), rows_instance<3, 1, 16, 4, 4, 256, 2>(),
    rows_instance<3, 1, 8, 8, 4, 256, 2>(),  rows_instance<7, 1, 28, 4, 4, 128, 3>(),
    rows_instance<7, 1, 20, 4, 4, 128, 4>(), rows_instance<7, 1, 8, 8, 4, 256, 2>(),
    rows_instance<1, 1, 16, 8, 4, 128, 3>(), rows_instance<1, 1, 8, 8, 4, 256, 2>(),
    rows_instance<9, 1, 8, 8, 4, 256, 2>(),  rows_instance<11, 1, 8, 8, 4, 256, 2>(),
    rows_instance<3, 2, 8, 8, 4, 256, 2>(),  rows_instance<5, 2, 8, 8, 4, 256, 2>(),
    rows_instance<7, 2, 8, 8, 4, 256, 2>(),  rows_instance<1, 2, 8, 8, 4, 256, 2>(),
    rows_instance<3, 1, 12, 8, 4, 128, 3>(), rows_instance<2, 1, 8, 8, 4, 256, 2>(),
    rows_instance<4, 1, 8, 8, 4, 256, 2>(),  rows_instance<6, 1, 8, 8, 4, 256, 2>(),
    rows_instance<8, 1, 8, 8, 4, 256, 2>(),  rows_instance<0, 1, 8, 8, 4, 256, 2>(),
};

// How an instance does a layer.
struct rows_config {
    int shape; // of shapes
    int panels, tiles, chunks, groups, block_units;
    int image_rows, in_rows, columns, pitch, plane_floats, step;
    int weight_floats, stage_floats, shared_bytes;
    int block_images; // from which a block's samples come, at most
    float cost;       // instructions per multiply-add that counts
};

// Computes shared memory and cost for the settings in `c` so far; false if it does not fit.
static bool fill_config(const struct conv_layer *layer, const struct rows_shape *s,
                        const struct conv_layer_shape *shape, struct rows_config *c)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int stride = s->stride, taps = layer->kernel_height * layer->kernel_width;
    c->block_units = s->threads / c->groups;
    c->image_rows = (out_height - 1) * stride + layer->kernel_height;
    int rows = (c->block_units + c->tiles - 2) / c->tiles + 1; // of outputs, at most
    int crossings = ceil_div(rows - 1, out_height);
    int more = layer->kernel_height > stride ? layer->kernel_height - stride : 0;
    c->block_images = crossings + 1;
    int64_t in_rows =
        (int64_t)(rows - 1) * stride + layer->kernel_height + (int64_t)crossings * more;
    int window = (s->columns - 1) * stride + layer->kernel_width;
    int columns = (c->tiles - 1) * s->columns * stride + window;
    int read = (c->tiles - 1) * s->columns * stride + ceil_div(window, s->vector) * s->vector;
    int padded = shape->width + layer->pad_left + layer->pad_right;
    c->columns = columns < padded ? columns : padded;
    c->pitch = ceil_div(read, 4) * 4;
    if (c->pitch % 8 == 0)
        c->pitch += 4; // rows begin at different banks
    if (in_rows * c->pitch > MOST_SHARED / 4)
        return false;
    c->in_rows = (int)in_rows;
    c->plane_floats = c->in_rows * c->pitch;
    c->weight_floats = taps * c->groups * s->maps;
    // If all channels are loaded at once, there is one stage. Weights are copied 16 bytes at a
    // time.
    int stages = layer->channels > c->step ? 2 : 1;
    int64_t stage = ((int64_t)c->step * (c->plane_floats + c->weight_floats) + 7) / 8 * 8;
    int samples = c->in_rows * c->columns;
    if ((stages > 1 && c->step * c->weight_floats % 4) ||
        (c->chunks > 1 && layer->channels * c->weight_floats % 4))
        return false; // the weights of a stage or a chunk would begin between 16 bytes
    int64_t bytes = stages * stage * 4 + (layer->input == CONV_ELEMENT_U8 ? 1024 : 0) +
                    (int64_t)samples * (int64_t)sizeof(struct rows_sample);
    int64_t epilogue =
        (int64_t)(s->threads / 32 * rows_batch(s->columns, s->maps) * STORE_ROOM(s->columns)) * 4;
    bytes = (bytes > epilogue ? bytes : epilogue) + s->threads * 12;
    if (bytes > MOST_SHARED)
        return false;
    c->stage_floats = (int)stage * stages / 2;
    c->shared_bytes = (int)bytes;
    float work = (float)(taps * s->columns * s->maps); // of a thread and channel
    int parts = s->kernel_width > 0 ? 1 : ceil_div(layer->kernel_width, 4); // that a row is read in
    float reads = (float)layer->kernel_height *
                  ((float)ceil_div((parts - 1) * (s->columns - 1) + window, s->vector) +
                   (float)(layer->kernel_width * s->maps) / 4 + 6 * (float)parts);
    float own = (float)samples / (float)s->threads; // samples to load
    float loads = own * (layer->input == CONV_ELEMENT_U8 ? 9.0f : 6.0f) +
                  (float)c->weight_floats / (float)s->threads + 20 + 100 / (float)c->step;
    float once = own * 40 + (float)(s->columns * s->maps) * 5 + 400;
    float useful = (float)out_width / (float)(c->tiles * c->panels * s->columns) *
                   (float)layer->maps / (float)(c->chunks * c->groups * s->maps);
    c->cost = (work + reads + loads + once / (float)layer->channels) * s->cost / (work * useful);
    return true;
}

static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct rows_config *best)
{
    int out_width = conv_layer_out_width(layer, shape->width);
    bool found = false;
    struct rows_config c = {};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct rows_shape *s = &shapes[i];
        if ((s->kernel_width > 0 && s->kernel_width != layer->kernel_width) ||
            s->stride != layer->stride)
            continue;
        c.shape = (int)i;
        int tiles = ceil_div(out_width, s->columns), groups = ceil_div(layer->maps, s->maps);
        for (c.panels = 1; c.panels <= tiles; c.panels *= 2) {
            c.tiles = ceil_div(tiles, c.panels);
            if ((c.tiles > 1 && s->columns * s->stride % s->vector) ||
                (c.panels - 1) * c.tiles >= tiles)
                continue;
            for (c.groups = 1; c.groups <= s->threads / 32; c.groups++) {
                if (s->threads % (32 * c.groups))
                    continue;
                c.chunks = ceil_div(groups, c.groups);
                for (c.step = 1; c.step <= 8 && c.step <= layer->channels; c.step *= 2) {
                    if (fill_config(layer, s, shape, &c) && (!found || c.cost < best->cost)) {
                        *best = c;
                        found = true;
                    }
                }
            }
        }
    }
    return found && best->chunks < 65536;
}

static size_t packed_floats(const struct conv_layer *layer, const struct rows_config *c)
{
    return (size_t)c->chunks * ((size_t)layer->channels * (size_t)c->weight_floats +
                                (size_t)(c->groups * shapes[c->shape].maps));
}

static bool plan_rows(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    struct rows_config *c = layer_constants<struct rows_config>(plan);
    if (conv_layer_out_height(layer, shape->height) <= 0 ||
        conv_layer_out_width(layer, shape->width) <= 0 || !configure(layer, shape, c))
        return false;
    plan->packed_bytes = packed_floats(layer, c) * sizeof(float);
    return true;
}

// The samples of a block are listed first, which takes long for few channels; after that, padding
// and 8-bit samples cost nothing extra.
static int score_rows(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    bool pads = layer->pad_top || layer->pad_bottom || layer->pad_left || layer->pad_right;
    if (layer->input != CONV_ELEMENT_F32)
        return 85;
    if (layer->stride > 1)
        return 75;
    // 1→8, 128², 11×11 takes 2.380 ms, 0.726 from tiles of outputs; 1→32, 96², 9×9 1.194 and
    // 1.270.
    // 3→32, 64², 7×7, where a block computes whole rows: 0.79 instead of 0.87; 3→64, 112², 7×7, in
    // panels of 28 columns: 0.84 instead of 0.59.
    bool whole = layer->kernel_width == 7 && layer_constants<struct rows_config>(plan)->panels == 1;
    bool faster = (layer->channels == 1 && layer->kernel_width <= 9) || layer->kernel_width == 1 ||
                  (!pads && (layer->channels > 4 || whole));
    return faster ? 85 : 75;
}

static void pack_rows(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct rows_config *c = layer_constants<struct rows_config>(plan);
    int own = shapes[c->shape].maps, maps = c->groups * own; // of a group; of a chunk
    int taps = layer->kernel_height * layer->kernel_width;
    float *packed = (float *)plan->packed;
    float *bias = packed + (size_t)c->chunks * (size_t)layer->channels * (size_t)c->weight_floats;
    for (int m = 0; m < layer->maps; m++) {
        if (layer->bias)
            bias[m] = layer->bias[m];
        for (int k = 0; k < layer->channels; k++) {
            const float *from =
                layer->weights + ((size_t)m * (size_t)layer->channels + (size_t)k) * (size_t)taps;
            float *to = packed + ((size_t)(m / maps) * (size_t)layer->channels + (size_t)k) *
                                     (size_t)c->weight_floats;
            for (int t = 0; t < taps; t++) {
                int u = t / layer->kernel_width, v = t - u * layer->kernel_width;
                to[((u * c->groups + m % maps / own) * layer->kernel_width + v) * own + m % own] =
                    from[t];
            }
        }
    }
}

static enum conv_status launch(const struct rows_config *c, struct rows_launch *p,
                               cudaStream_t stream)
{
    const struct rows_shape *s = &shapes[c->shape];
    int64_t units = p->images * p->out_height * p->tiles;
    dim3 grid((unsigned)ceil_div64(units, p->block_units), (unsigned)c->chunks,
              (unsigned)c->panels);
    void (*kernel)(rows_launch) = s->kernel;
    kernel<<<grid, s->threads, (size_t)c->shared_bytes, stream>>>(*p);
    return layer_launch_status();
}

static void fill_launch(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        const struct rows_config *c, struct rows_launch *p)
{
    const struct conv_layer *layer = &plan->layer;
    layer_set_sizes(p, plan, batch);
    layer_set_border(p, layer);
    p->weights = (const float *)plan->d_packed;
    p->bias = p->weights + (size_t)c->chunks * (size_t)layer->channels * (size_t)c->weight_floats;
    p->images = batch->images;
    p->to = store_target_of(layer, batch->dst, p->out_height, p->out_width);
    p->pad_bottom = layer->pad_bottom;
    p->pad_right = layer->pad_right;
    p->kernel_width = layer->kernel_width;
    p->bytes = layer->input == CONV_ELEMENT_U8;
    p->tiles = c->tiles;
    p->image_rows = c->image_rows;
    p->block_units = c->block_units;
    p->groups = c->groups;
    p->in_rows = c->in_rows;
    p->columns = c->columns;
    p->pitch = c->pitch;
    p->plane_floats = c->plane_floats;
    p->step = c->step;
    p->weight_floats = c->weight_floats;
    p->stage_floats = c->stage_floats;
    p->by_tiles = layer_divider_of(p->tiles);
    p->by_out_height = layer_divider_of(p->out_height);
    p->by_image_rows = layer_divider_of(p->image_rows);
    p->by_columns = layer_divider_of(p->columns);
}

static enum conv_status run_rows(const struct conv_layer_plan *plan,
                                 const struct conv_layer_batch *batch)
{
    const struct rows_config *c = layer_constants<struct rows_config>(plan);
    if (batch->images <= 0)
        return CONV_OK;
    struct rows_launch p;
    fill_launch(plan, batch, c, &p);
    cudaStream_t stream = (cudaStream_t)batch->stream;
    if (layer_allow_shared_memory((const void *)shapes[c->shape].kernel))
        return CONV_ERR_DEVICE;
    // A block counts samples from its first image in 32 bits.
    int64_t most = INT32_MAX / c->block_images * (int64_t)(p.bytes ? 1 : 4);
    if (batch->images == 1 || p.src_image <= most)
        return launch(c, &p, stream);
    enum conv_status status = CONV_OK;
    p.images = 1;
    for (int64_t b = 0; b < batch->images && !status; b++) {
        p.src = (const char *)batch->src + b * p.src_image;
        p.to.dst = (char *)batch->dst +
                   b * p.maps * p.to.plane * (int64_t)conv_element_size(plan->layer.output);
        status = launch(c, &p, stream);
    }
    return status;
}

const struct conv_layer_variant conv_cuda_layer_rows = {
    "cuda_layer_rows",
    "register tiles of columns and maps, channels streamed through shared memory",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    true,
    plan_rows,
    score_rows,
    pack_rows,
    run_rows,
};
