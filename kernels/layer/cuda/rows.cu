// SPDX-License-Identifier: MIT
// cuda_layer_rows: the exact order by register tiles: a thread computes T neighbouring outputs of a
// row for MT maps. Input samples and weights of a few channels at a time are in shared memory; the
// next ones arrive while a block computes. Sums are sequential in c, u, v: only outputs and maps
// run in parallel.
#include <cuda_pipeline.h>
#include <string.h>

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

// --- the kernel ----------------------------------------------------------------------------------

// A launch. A unit is a tile of T columns of one row. Units are numbered consecutively by image,
// row, tile. A block takes `block_units` consecutive ones, even of several images, for each of
// `groups` groups of MT maps. Its input rows are consecutive if the images are stacked.
struct rows_launch {
    const void *src;
    struct store_target to;
    const float *weights;                  // [chunk][channel][kernel row][group][kernel column][MT]
    const float *bias;                     // [chunk][group][MT]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t images;
    struct layer_divider by_tiles, by_out_height, by_image_rows, by_columns;
    int height, width, out_height, out_width;
    int channels, maps, kernel_height, kernel_width, pad_top, pad_left, pad_bottom, pad_right,
        border;
    float border_value, divisor;
    int bytes;                   // 8-bit input
    int tiles;                   // of a panel's row: wide images are cut into panels, blockIdx.z
    int image_rows;              // of input, padded, that outputs depend on
    int block_units, groups;     // block_units: a multiple of 32
    int in_rows, columns, pitch; // of a block's plane in shared memory; columns: loaded
    int plane_floats;            // in_rows * pitch
    int step;                    // channels loaded at a time
    int weight_floats;           // of a channel of this chunk
    int stage_floats;            // half of all stages: the second one, if any, begins there
};

// The source of a sample, in samples from the block's first image, and its place in a plane of
// shared memory.
struct rows_sample {
    int from; // -1: padding, which is already in place
    int to;
};

// Shared memory after 12 bytes of each thread: one or two stages of [channel][in_rows][pitch]
// samples and [channel][kernel row][group][kernel column][MT] weights, values of 8-bit samples, and
// samples [in_rows][columns]. The epilogue reuses all of it.
struct rows_memory {
    struct rows_sample *samples;
    float *values;
    float *stages;
};

// Where a block begins.
struct rows_block {
    int64_t row, image; // of the batch; of the batch
    int tile, i;        // of that row; the row in its image
};

// Lists the samples of a channel and fills in the padding of all stages.
template <int S>
__device__ inline void rows_prepare(const rows_launch &p, const rows_memory &memory,
                                    const rows_block &block, int panel_columns)
{
    int shift = p.bytes ? 0 : 2;
    int images = (int)min(p.images - block.image, (int64_t)INT32_MAX);
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < p.in_rows * p.columns; e += (int)blockDim.x) {
        int line = layer_divide(e, p.by_columns), x = e - line * p.columns;
        int below = line + block.i * S, image = layer_divide(below, p.by_image_rows);
        int y = below - image * p.image_rows;
        image = min(image, images - 1); // rows beyond the batch: for outputs that are not stored
        int column = (int)blockIdx.z * panel_columns + x;
        column = min(column, p.width + p.pad_left + p.pad_right - 1) - p.pad_left;
        column = conv_border_index((enum conv_border)p.border, column, p.width);
        y = conv_border_index((enum conv_border)p.border, y - p.pad_top, p.height);
        struct rows_sample sample;
        sample.to = line * p.pitch + x;
        sample.from = -1;
        if (y >= 0 && column >= 0)
            sample.from = (int)((image * p.src_image + y * p.src_row) >> shift) + column;
        memory.samples[e] = sample;
        if (sample.from >= 0)
            continue;
#pragma unroll 1
        for (int c = 0; c < p.step; c++) {
            memory.stages[c * p.plane_floats + sample.to] = p.border_value;
            if (p.channels > p.step)
                memory.stages[p.stage_floats + c * p.plane_floats + sample.to] = p.border_value;
        }
    }
    if (p.bytes)
        for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x)
            memory.values[i] = __fdiv_rn((float)i, p.divisor);
}

// Starts loading `count` channels from `channel` on. 8-bit samples are in place on return.
__device__ inline void rows_load(const rows_launch &p, const rows_memory &memory,
                                 const rows_block &block, float *stage, const float *weights,
                                 int channel, int count)
{
    const char *src =
        (const char *)p.src + block.image * p.src_image + (int64_t)channel * p.src_plane;
    int samples = p.in_rows * p.columns;
#pragma unroll 1
    for (int c = 0; c < count; c++, src += p.src_plane) {
        float *to = stage + c * p.plane_floats;
        if (p.bytes) {
#pragma unroll 8
            for (int e = (int)threadIdx.x; e < samples; e += (int)blockDim.x) {
                struct rows_sample sample = memory.samples[e];
                if (sample.from >= 0)
                    to[sample.to] = memory.values[__ldg((const uint8_t *)src + sample.from)];
            }
        } else {
#pragma unroll 4
            for (int e = (int)threadIdx.x; e < samples; e += (int)blockDim.x) {
                struct rows_sample sample = memory.samples[e];
                if (sample.from >= 0)
                    __pipeline_memcpy_async(to + sample.to,
                                            (const float *)(const void *)src + sample.from, 4);
            }
        }
    }
    float *to = stage + p.step * p.plane_floats;
    const float *from = weights + (int64_t)channel * p.weight_floats;
#pragma unroll 1
    for (int i = (int)threadIdx.x * 4; i < count * p.weight_floats; i += (int)blockDim.x * 4)
        __pipeline_memcpy_async(to + i, from + i, 16);
    __pipeline_commit();
}

// Adds N taps of a kernel row. Columns in the inner loop: neighbouring multiply-adds share the
// weight, so that two operands come from the register file and one from the cache in front of it.
template <int N, int S, int T, int MT, int VX>
__device__ inline void rows_taps(float (&sum)[MT][T], const float *in, const float *weight)
{
    float x[(T - 1) * S + N];
    layer_read<(T - 1) * S + N, VX>(x, in);
#pragma unroll
    for (int v = 0; v < N; v++) {
        float w[MT];
        layer_read<MT, MT % 4 ? 2 : 4>(w, weight + v * MT);
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[m][t] = fmaf(w[m], x[t * S + v], sum[m][t]);
        }
    }
}

// Adds one channel.
template <int KW, int S, int T, int MT, int VX>
__device__ inline void rows_add(float (&sum)[MT][T], const float *in, const float *weight,
                                int kernel_height, int pitch, int row_weights)
{
#pragma unroll 1
    for (int u = 0; u < kernel_height; u++) {
        rows_taps<KW, S, T, MT, VX>(sum, in, weight);
        in += pitch;
        weight += row_weights;
    }
}

// The same for kernels of any width, four taps at a time.
template <int T, int MT, int VX>
__device__ inline void rows_add_any(float (&sum)[MT][T], const float *in, const float *weight,
                                    const rows_launch &p)
{
#pragma unroll 1
    for (int u = 0; u < p.kernel_height; u++) {
        int v = 0;
#pragma unroll 1
        for (; v + 4 <= p.kernel_width; v += 4)
            rows_taps<4, 1, T, MT, VX>(sum, in + v, weight + v * MT);
        if (p.kernel_width - v == 1)
            rows_taps<1, 1, T, MT, VX>(sum, in + v, weight + v * MT);
        else if (p.kernel_width - v == 2)
            rows_taps<2, 1, T, MT, VX>(sum, in + v, weight + v * MT);
        else if (p.kernel_width - v == 3)
            rows_taps<3, 1, T, MT, VX>(sum, in + v, weight + v * MT);
        in += p.pitch;
        weight += p.groups * p.kernel_width * MT;
    }
}

// The number of maps stored by way of shared memory at a time.
static constexpr __host__ __device__ int rows_batch(int columns, int maps)
{
    return maps % 4 || columns > 16 ? 1 + (maps % 2 == 0) : 4;
}

// blockIdx.x: units; blockIdx.y: chunk of maps; blockIdx.z: panel.
template <int KW, int S, int T, int MT, int VX, int THREADS, int BLOCKS>
static __global__ __launch_bounds__(THREADS,
                                    BLOCKS) void rows(const __grid_constant__ rows_launch p)
{
    extern __shared__ float4 rows_shared[];
    rows_memory memory;
    memory.stages = (float *)(void *)((char *)rows_shared + THREADS * 12);
    memory.values = memory.stages + 2 * p.stage_floats;
    memory.samples = (struct rows_sample *)(void *)(memory.values + (p.bytes ? 256 : 0));

    rows_block block;
    int64_t first_unit = (int64_t)blockIdx.x * p.block_units;
    block.row = first_unit / p.tiles;
    block.tile = (int)(first_unit - block.row * p.tiles);
    block.image = block.row / p.out_height;
    block.i = (int)(block.row - block.image * p.out_height);
    rows_prepare<S>(p, memory, block, p.tiles * T * S);

    // What this thread computes.
    int group = (int)threadIdx.x / p.block_units;
    int unit = (int)threadIdx.x - group * p.block_units + block.tile;
    int row = layer_divide(unit, p.by_tiles), tile = unit - row * p.tiles;
    int local = layer_divide(block.i + row, p.by_out_height);
    int i = block.i + row - local * p.out_height;
    int chunk = (int)blockIdx.y, first_map = (chunk * p.groups + group) * MT;
    int64_t image = block.image + local;

    // The addresses of its outputs, derived here since registers are scarce before.
    int64_t *places = (int64_t *)(void *)rows_shared;
    int *counts = (int *)(void *)(places + THREADS);
    int j = ((int)blockIdx.z * p.tiles + tile) * T;
    places[threadIdx.x] = ((image * p.maps + first_map) * p.out_height + i) * p.out_width + j;
    counts[threadIdx.x] = image < p.images ? max(0, min(T, p.out_width - j)) : 0;

    float sum[MT][T];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float b = __ldg(p.bias + first_map + m);
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[m][t] = b;
    }
    int in = (local * p.image_rows + (i - block.i) * S) * p.pitch + tile * T * S;
    int weight = p.step * p.plane_floats + group * (KW > 0 ? KW : p.kernel_width) * MT;
    const float *weights = p.weights + (int64_t)chunk * p.channels * p.weight_floats;
    __syncthreads(); // the list is complete

    rows_load(p, memory, block, memory.stages, weights, 0, min(p.step, p.channels));
#pragma unroll 1
    for (int c = 0, stage = 0; c < p.channels; c += p.step, stage ^= 1) {
        __pipeline_wait_prior(0);
        __syncthreads(); // every thread's part of this stage has arrived, the other one is free
        int next = c + p.step;
        if (next < p.channels)
            rows_load(p, memory, block, memory.stages + (stage ^ 1) * p.stage_floats, weights, next,
                      min(p.step, p.channels - next));
        const float *from = memory.stages + stage * p.stage_floats;
#pragma unroll 1
        for (int k = 0; k < min(p.step, p.channels - c); k++)
            if (KW > 0)
                rows_add<(KW > 0 ? KW : 1), S, T, MT, VX>(
                    sum, from + in + k * p.plane_floats, from + weight + k * p.weight_floats,
                    p.kernel_height, p.pitch, p.groups * KW * MT);
            else
                rows_add_any<T, MT, VX>(sum, from + in + k * p.plane_floats,
                                        from + weight + k * p.weight_floats, p);
    }
    __syncthreads(); // the stages become buffers

    activate_outputs<T, MT>(p.to.activation, sum);
    int maps = p.maps - ((int)blockIdx.y * p.groups + (int)threadIdx.x / p.block_units) * MT;
    const int batch = rows_batch(T, MT);
    float *buffer = memory.stages + threadIdx.x / 32 * batch * STORE_ROOM(T);
    store_runs<T, MT, batch>(p.to, buffer, places[threadIdx.x], counts[threadIdx.x], maps, sum);
}

// Describes an instance to the host.
struct rows_shape {
    int kernel_width; // 0: any
    int stride, columns, maps, vector, threads, blocks;
    float cost; // relative to what counting instructions predicts, measured
    void (*kernel)(rows_launch);
};

template <int KW, int S, int T, int MT, int VX, int THREADS, int BLOCKS>
static rows_shape rows_instance(float cost = 1)
{
    return {KW, S, T, MT, VX, THREADS, BLOCKS, cost, rows<KW, S, T, MT, VX, THREADS, BLOCKS>};
}

// --- the choice and the launch -------------------------------------------------------------------

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
            s->stride != layer->stride_x)
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
    if (layer->stride_x > 1)
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
    CONV_LAYER_PADS,
    plan_rows,
    score_rows,
    pack_rows,
    run_rows,
};
