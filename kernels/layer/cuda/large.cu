// SPDX-License-Identifier: MIT
// cuda_layer_large: the exact order for large kernels: the samples of a channel that a block needs
// stay in shared memory while the weights of a few kernel rows at a time arrive. A thread computes
// T neighbouring outputs of a row for MT maps. Sums are sequential in c, u, v.
#include <cuda_pipeline.h>
#include <string.h>

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

// --- the kernel ----------------------------------------------------------------------------------

#define LARGE_PART 8  // taps of a kernel row that are computed at a time
#define LARGE_LEAST 4 // the last part has LARGE_LEAST to LARGE_LEAST + LARGE_PART - 1 taps
#define LARGE_BATCH 2 // maps that are stored at a time

// A launch. A unit is a tile of T columns of one row. Units of an image's panel are numbered by
// row, then tile. A block takes `block_units` consecutive ones for each of `groups` groups of MT
// maps.
struct large_launch {
    const void *src;
    struct store_target to;
    const float *weights;                  // [chunk][channel][kernel row][group][kernel column][MT]
    const float *bias;                     // [chunk][group][MT]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t first_image;
    struct layer_divider by_tiles, by_blocks;
    int height, width, padded_width, out_height, out_width;
    int channels, maps, kernel_height, pad_top, pad_left, border;
    float border_value, divisor;
    int bytes;                   // 8-bit input
    int parts;                   // of LARGE_PART taps, before the last part
    int tiles;                   // of a panel's row: wide images are cut into panels, blockIdx.z
    int blocks;                  // of an image's panel
    int block_units, groups;     // threads: at least their product
    int in_rows, columns, pitch; // of a plane in shared memory; columns: loaded at most
    int planes, plane_floats;    // planes: 2 if a channel arrives while the one before is computed
    int row_floats;              // weights of a kernel row, a multiple of four
    int stage_rows;              // kernel rows whose weights arrive at a time
};

// Where a block begins.
struct large_block {
    int64_t image;
    int row, unit, column; // of outputs; of the panel; of padded input
    int in_rows, columns;  // of padded input
};

// Starts loading a channel's samples, one row per warp. 8-bit samples are in place on return.
template <int THREADS>
__device__ inline void large_load_samples(const large_launch &p, const large_block &block,
                                          const float *values, float *plane, int channel)
{
    int lane = (int)threadIdx.x % 32, first = block.column - p.pad_left;
    int begin = min(max(-first, 0), block.columns); // of the columns inside the image
    int end = max(min(p.width - first, block.columns), begin);
    const char *src =
        (const char *)p.src + block.image * p.src_image + (int64_t)channel * p.src_plane;
#pragma unroll 1
    for (int line = (int)threadIdx.x / 32; line < block.in_rows; line += THREADS / 32) {
        int y =
            conv_border_index((enum conv_border)p.border, block.row + line - p.pad_top, p.height);
        const char *row = src + y * p.src_row;
        float *to = plane + line * p.pitch;
        int inside = y < 0 ? begin : end;
        if (p.bytes) {
#pragma unroll 4
            for (int x = begin + lane; x < inside; x += 32)
                to[x] = values[__ldg((const uint8_t *)row + first + x)];
        } else {
            const float *from = (const float *)(const void *)row + first;
#pragma unroll 4
            for (int x = begin + lane; x < inside; x += 32)
                __pipeline_memcpy_async(to + x, from + x, 4);
        }
        // Padding: the columns outside, or all of them.
#pragma unroll 1
        for (int k = lane; k < block.columns - (inside - begin); k += 32) {
            int x = k < begin ? k : k + inside - begin;
            int column = conv_border_index((enum conv_border)p.border, first + x, p.width);
            float value = p.border_value;
            if (y >= 0 && column >= 0)
                value = p.bytes ? values[__ldg((const uint8_t *)row + column)]
                                : __ldg((const float *)(const void *)row + column);
            to[x] = value;
        }
    }
}

// Starts loading the weights of `rows` kernel rows.
template <int THREADS>
__device__ inline void large_load_weights(float *to, const float *from, int floats)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x * 4; i < floats; i += THREADS * 4)
        __pipeline_memcpy_async(to + i, from + i, 16);
}

// Adds N taps of a kernel row. Every other map is computed from its last output to its first, so
// that a new weight meets the sample that was read last (see bulk_tiles.cuh).
template <int N, int T, int MT>
__device__ inline void large_taps(float (&sum)[MT][T], const float *in, const float *weight)
{
    float x[T + N - 1];
    layer_read<T + N - 1, 4>(x, in);
    layer_await<T + N - 1>(x);
#pragma unroll
    for (int v = 0; v < N; v++) {
        float w[MT];
        layer_read<MT, (MT % 4 ? 2 : 4)>(w, weight + v * MT);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < T; i++) {
                int t = (v * MT + m) % 2 ? T - 1 - i : i;
                sum[m][t] = fmaf(w[m], x[t + v], sum[m][t]);
            }
    }
}

// Adds the kernel rows of a stage.
template <int LAST, int T, int MT>
__device__ inline void large_add(const large_launch &p, float (&sum)[MT][T], const float *in,
                                 const float *weight, int rows)
{
    int next_row = p.pitch - p.parts * LARGE_PART;
    int next_weights = p.row_floats - p.parts * LARGE_PART * MT;
#pragma unroll 1
    for (int u = 0; u < rows; u++) {
#pragma unroll 1
        for (int part = p.parts; part > 0; part--) {
            large_taps<LARGE_PART, T, MT>(sum, in, weight);
            in += LARGE_PART;
            weight += LARGE_PART * MT;
        }
        large_taps<LAST, T, MT>(sum, in, weight);
        in += next_row;
        weight += next_weights;
    }
}

// blockIdx.x: blocks of images; blockIdx.y: chunk of maps; blockIdx.z: panel. Shared memory: two
// stages of weights, `planes` planes of samples, and values of 8-bit samples. The epilogue reuses
// it.
template <int LAST, int T, int MT, int THREADS, int BLOCKS>
static __global__ __launch_bounds__(THREADS,
                                    BLOCKS) void large(const __grid_constant__ large_launch p)
{
    extern __shared__ float4 large_shared[];
    float *stages = (float *)large_shared;
    int stage_floats = p.stage_rows * p.row_floats;
    float *planes = stages + 2 * stage_floats, *values = planes + p.planes * p.plane_floats;

    int image = layer_divide((int)blockIdx.x, p.by_blocks);
    large_block block;
    block.image = p.first_image + image;
    block.unit = ((int)blockIdx.x - image * p.blocks) * p.block_units;
    block.row = layer_divide(block.unit, p.by_tiles);
    block.column = (int)blockIdx.z * p.tiles * T;
    block.in_rows = min(p.in_rows, p.out_height + p.kernel_height - 1 - block.row);
    block.columns = min(p.columns, p.padded_width - block.column);
    int64_t chunk_floats = (int64_t)p.channels * p.kernel_height * p.row_floats;
    const float *weights = p.weights + (int64_t)blockIdx.y * chunk_floats;

    if (p.bytes) {
        for (int i = (int)threadIdx.x; i < 256; i += THREADS)
            values[i] = __fdiv_rn((float)i, p.divisor);
        __syncthreads(); // the values are complete
    }
    large_load_samples<THREADS>(p, block, values, planes, 0);
    large_load_weights<THREADS>(stages, weights, min(p.stage_rows, p.kernel_height) * p.row_floats);
    __pipeline_commit();

    // What this thread computes. Threads without a unit compute the last one and store nothing.
    int group = min((int)threadIdx.x / p.block_units, p.groups - 1);
    int unit =
        min(block.unit + (int)threadIdx.x - group * p.block_units, p.out_height * p.tiles - 1);
    unit = min(unit, block.unit + p.block_units - 1);
    int i = layer_divide(unit, p.by_tiles), tile = unit - i * p.tiles;
    int in = (i - block.row) * p.pitch + tile * T;
    int weight = group * (p.parts * LARGE_PART + LAST) * MT;
    float sum[MT][T];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float b = __ldg(p.bias + ((int)blockIdx.y * p.groups + group) * MT + m);
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[m][t] = b;
    }

    int stage = 0, plane = 0;
#pragma unroll 1
    for (int c = 0; c < p.channels; c++) {
#pragma unroll 1
        for (int u = 0; u < p.kernel_height; u += p.stage_rows, stage ^= 1) {
            __pipeline_wait_prior(0);
            __syncthreads(); // every thread's part of this stage has arrived, the other one is free
            int rows = min(p.stage_rows, p.kernel_height - u);
            weights += rows * p.row_floats;
            int left = u + rows < p.kernel_height ? p.kernel_height - u - rows : p.kernel_height;
            if (u + rows < p.kernel_height || c + 1 < p.channels)
                large_load_weights<THREADS>(stages + (stage ^ 1) * stage_floats, weights,
                                            min(p.stage_rows, left) * p.row_floats);
            if (u == 0 && p.planes > 1 && c + 1 < p.channels)
                large_load_samples<THREADS>(p, block, values, planes + (plane ^ 1) * p.plane_floats,
                                            c + 1);
            __pipeline_commit();
            large_add<LAST, T, MT>(p, sum, planes + plane * p.plane_floats + in + u * p.pitch,
                                   stages + stage * stage_floats + weight, rows);
        }
        if (p.planes > 1) {
            plane ^= 1;
        } else if (c + 1 < p.channels) {
            __syncthreads(); // all threads have used the samples
            large_load_samples<THREADS>(p, block, values, planes, c + 1);
            __pipeline_commit();
        }
    }
    __syncthreads(); // the memory becomes buffers

    activate_outputs<T, MT>(p.to.activation, sum);
    // The last group ends with the maps and may overlap the one before.
    int map = ((int)blockIdx.y * p.groups + group) * MT, j = block.column + tile * T;
    bool stores = (int)threadIdx.x < p.groups * p.block_units && map < p.maps &&
                  block.unit + (int)threadIdx.x - group * p.block_units < p.out_height * p.tiles;
    map = max(min(map, p.maps - MT), 0);
    int64_t at = ((block.image * p.maps + map) * p.out_height + i) * p.out_width + j;
    float *buffer = stages + threadIdx.x / 32 * LARGE_BATCH * STORE_ROOM(T);
    store_runs<T, MT, LARGE_BATCH>(p.to, buffer, at, stores ? max(0, min(T, p.out_width - j)) : 0,
                                   min(MT, p.maps), sum);
}

// Describes an instance to the host.
struct large_shape {
    int last, columns, maps, threads, blocks;
    float cost; // instructions and stalls per multiply-add of the inner loop, measured
    void (*kernel)(large_launch);
};

template <int LAST, int T, int MT, int THREADS, int BLOCKS>
static large_shape large_instance(float cost)
{
    return {LAST, T, MT, THREADS, BLOCKS, cost, large<LAST, T, MT, THREADS, BLOCKS>};
}

// --- the choice and the launch -------------------------------------------------------------------

#define MOST_SHARED (64 << 10)  // of a block: the limit of compute capability 7.5
#define FULL_SHARED (224 << 10) // of a multiprocessor of Hopper, for all of its blocks
#define MOST_STAGE (9 << 10)    // bytes of weights that arrive at a time, if a kernel row has less
#define PROCESSORS 132          // assumed for the choice
#define MOST_Y 65536            // of a grid, in y and z
#define MOST_BLOCKS INT32_MAX   // of a launch, in x

#define INSTANCES(last)                                                                            \
    large_instance<last, 20, 4, 128, 4>(1.14f), large_instance<last, 28, 4, 128, 3>(1.16f),        \
        large_instance<last, 12, 4, 128, 5>(1.2f), large_instance<last, 28, 2, 128, 4>(1.3f)

static const struct large_shape shapes[] = {
    INSTANCES(4), INSTANCES(5), INSTANCES(6),  INSTANCES(7),
    INSTANCES(8), INSTANCES(9), INSTANCES(10), INSTANCES(11),
};

// How an instance does a layer.
struct large_config {
    int shape; // of shapes
    int panels, tiles, chunks, groups, block_units, blocks;
    int in_rows, columns, pitch, planes, plane_floats, stage_rows, row_floats, shared_bytes;
    float cost;   // instructions per multiply-add that counts
    float useful; // share of the multiply-adds that count
};

// Computes shared memory and cost for the settings in `c` so far; false if it does not fit.
static bool fill_config(const struct conv_layer *layer, const struct large_shape *s,
                        const struct conv_layer_shape *shape, struct large_config *c)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int units = out_height * c->tiles; // of an image's panel
    c->block_units = s->threads / c->groups < units ? s->threads / c->groups : units;
    c->blocks = ceil_div(units, c->block_units);
    int rows = (c->block_units + c->tiles - 2) / c->tiles + 1; // of outputs, at most
    rows = rows < out_height ? rows : out_height;
    c->in_rows = rows + layer->kernel_height - 1;
    // A thread reads whole vectors, also for outputs that it does not store.
    int padded = shape->width + layer->pad_left + layer->pad_right;
    int read = c->tiles * s->columns + ceil_div(layer->kernel_width - 1, 4) * 4;
    c->columns = read < padded ? read : padded;
    // Neighbouring threads are as far apart in the next row as in the same one, so that their reads
    // touch different banks.
    c->pitch = read;
    while (c->pitch % 32 != c->tiles * s->columns % 32)
        c->pitch += 4;
    if ((int64_t)c->in_rows * c->pitch > MOST_SHARED / 4)
        return false;
    c->plane_floats = c->in_rows * c->pitch;
    c->row_floats = ceil_div(c->groups * layer->kernel_width * s->maps, 4) * 4;
    int most = MOST_STAGE / 4 / c->row_floats;
    int stages = ceil_div(layer->kernel_height, most > 1 ? most : 1);
    c->stage_rows = ceil_div(layer->kernel_height, stages);
    int64_t fixed = 2 * c->stage_rows * c->row_floats * 4 +
                    (layer->input == CONV_ELEMENT_U8 ? 256 * (int64_t)sizeof(float) : 0);
    c->planes = layer->channels > 1 ? 2 : 1;
    // Without a second plane, other blocks compute while a channel arrives.
    if (fixed + (int64_t)c->planes * c->plane_floats * 4 > FULL_SHARED / s->blocks - 1024)
        c->planes = 1;
    int64_t bytes = fixed + (int64_t)c->planes * c->plane_floats * 4;
    int64_t epilogue = (int64_t)(s->threads / 32 * LARGE_BATCH * STORE_ROOM(s->columns)) * 4;
    bytes = bytes > epilogue ? bytes : epilogue;
    if (bytes > MOST_SHARED)
        return false;
    c->shared_bytes = (int)bytes;
    int resident = FULL_SHARED / ((int)bytes + 1024);
    resident = resident < s->blocks ? resident : s->blocks;
    float work = (float)(layer->kernel_width * s->columns * s->maps); // of a kernel row
    int parts = (layer->kernel_width - LARGE_LEAST) / LARGE_PART + 1;
    float row = work * s->cost + (float)(parts * (ceil_div(s->columns - 1, 4) + 6)) +
                (float)(layer->kernel_width * ceil_div(s->maps, 4)) + 8;
    float loads = (float)(c->in_rows * c->columns) / (float)s->threads * 14;
    // Outputs of a panel are not adjacent in memory from one row to the next.
    int runs = c->panels > 1 ? 31 / c->tiles + 1 : 1; // of a warp
    float once = (float)(s->columns * s->maps) * 6 + 500 + (float)(runs * s->maps) * 60;
    c->useful = (float)out_width / (float)(c->tiles * c->panels * s->columns) * (float)layer->maps /
                (float)(c->chunks * c->groups * s->maps) * (float)units /
                (float)(c->blocks * c->block_units) * (float)(c->block_units * c->groups) /
                (float)s->threads;
    // Fewer warps than 12 per multiprocessor do not keep it busy, and the last blocks have some to
    // themselves.
    int64_t images = shape->images > 0 ? shape->images : 1000;
    int64_t blocks = images * c->blocks * c->chunks * c->panels;
    int64_t most_blocks = ceil_div64(blocks, PROCESSORS); // of a multiprocessor
    int warps = (int)(most_blocks < resident ? most_blocks : resident) * s->threads / 32;
    float idle = (float)(most_blocks * PROCESSORS) / (float)blocks;
    idle *= warps >= 12 ? 1 : 1 + 0.05f * (float)(12 - warps);
    c->cost = (row * (float)layer->kernel_height + loads + once / (float)layer->channels) * idle /
              (work * (float)layer->kernel_height * c->useful);
    return true;
}

// Tries all panels and chunks for an instance.
static bool configure_shape(const struct conv_layer *layer, const struct large_shape *s,
                            const struct conv_layer_shape *shape, struct large_config *c,
                            struct large_config *best)
{
    int all_tiles = ceil_div(conv_layer_out_width(layer, shape->width), s->columns);
    int all_groups = ceil_div(layer->maps, s->maps), tiles = 0;
    bool found = false;
    for (int panels = 1; panels <= all_tiles; panels++) {
        c->tiles = ceil_div(all_tiles, panels);
        c->panels = ceil_div(all_tiles, c->tiles);
        if (c->tiles == tiles || c->tiles > s->threads || c->panels >= MOST_Y)
            continue;
        tiles = c->tiles;
        int groups = 0;
        for (int chunks = 1; chunks <= all_groups; chunks++) {
            c->groups = ceil_div(all_groups, chunks);
            c->chunks = ceil_div(all_groups, c->groups);
            if (c->groups == groups || c->groups > s->threads / 4 || c->chunks >= MOST_Y)
                continue;
            groups = c->groups;
            if (fill_config(layer, s, shape, c) && (best->cost == 0 || c->cost < best->cost)) {
                *best = *c;
                found = true;
            }
        }
    }
    return found;
}

static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct large_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    *best = {};
    if (layer->kernel_width < LARGE_LEAST || layer->stride_x != 1 || out_height <= 0 ||
        out_width <= 0 || (int64_t)out_height * out_width > INT32_MAX / 2)
        return false;
    bool found = false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct large_config c = {};
        c.shape = (int)i;
        if ((layer->kernel_width - shapes[i].last) % LARGE_PART == 0)
            found |= configure_shape(layer, &shapes[i], shape, &c, best);
    }
    return found;
}

static size_t weight_floats(const struct conv_layer *layer, const struct large_config *c)
{
    return (size_t)c->chunks * (size_t)layer->channels * (size_t)layer->kernel_height *
           (size_t)c->row_floats;
}

static bool plan_large(struct conv_layer_plan *plan)
{
    struct large_config *c = layer_constants<struct large_config>(plan);
    if (!configure(&plan->layer, &plan->shape, c))
        return false;
    size_t biases = (size_t)c->chunks * (size_t)(c->groups * shapes[c->shape].maps);
    plan->packed_bytes = (weight_floats(&plan->layer, c) + biases) * sizeof(float);
    return true;
}

static int score_large(const struct conv_layer_plan *plan)
{
    const struct large_config *c = layer_constants<struct large_config>(plan);
    const struct conv_layer *layer = &plan->layer;
    // `tiles` and `rows` have instances for 11×11: 1→8, 128², 1,000 images: 0.663 ms, `tiles`
    // 0.727; but 3→8, 32²: 0.112, `tiles` 0.086. 9×9: 8→16, 64²: 1.506, `rows` 1.390. Others: 1→8,
    // 64², 17×17: 0.225, `rows` 0.609.
    float least = layer->kernel_width == 11 ? 0.8f : 0.4f;
    return layer->kernel_width >= 10 && c->useful >= least ? 87 : 74;
}

static void pack_large(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct large_config *c = layer_constants<struct large_config>(plan);
    int maps = shapes[c->shape].maps, width = layer->kernel_width;
    size_t rows = (size_t)layer->channels * (size_t)layer->kernel_height; // of kernels
    float *packed = (float *)plan->packed, *bias = packed + weight_floats(layer, c);
    for (int g = 0; g < ceil_div(layer->maps, maps); g++)
        for (int m = 0; m < maps && m < layer->maps; m++) {
            // The last group ends with the maps and may overlap the one before.
            int last = layer->maps > maps ? layer->maps - maps : 0;
            int map = (g * maps < last ? g * maps : last) + m;
            bias[g * maps + m] = layer->bias ? layer->bias[map] : 0;
            const float *from = layer->weights + (size_t)map * rows * (size_t)width;
            float *to = packed + (size_t)(g / c->groups) * rows * (size_t)c->row_floats +
                        (size_t)(g % c->groups * width * maps + m);
            for (size_t row = 0; row < rows; row++, to += c->row_floats)
                for (int v = 0; v < width; v++)
                    to[v * maps] = *from++;
        }
}

static void fill_launch(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        const struct large_config *c, struct large_launch *p)
{
    const struct conv_layer *layer = &plan->layer;
    layer_set_sizes(p, plan, batch);
    layer_set_border(p, layer);
    p->weights = (const float *)plan->d_packed;
    p->bias = p->weights + weight_floats(layer, c);
    p->to = store_target_of(layer, batch->dst, p->out_height, p->out_width);
    p->padded_width = p->width + layer->pad_left + layer->pad_right;
    p->bytes = layer->input == CONV_ELEMENT_U8;
    p->parts = (layer->kernel_width - shapes[c->shape].last) / LARGE_PART;
    p->tiles = c->tiles;
    p->blocks = c->blocks;
    p->block_units = c->block_units;
    p->groups = c->groups;
    p->in_rows = c->in_rows;
    p->columns = c->columns;
    p->pitch = c->pitch;
    p->planes = c->planes;
    p->plane_floats = c->plane_floats;
    p->row_floats = c->row_floats;
    p->stage_rows = c->stage_rows;
    p->by_tiles = layer_divider_of(p->tiles);
    p->by_blocks = layer_divider_of(p->blocks);
}

static enum conv_status run_large(const struct conv_layer_plan *plan,
                                  const struct conv_layer_batch *batch)
{
    const struct large_config *c = layer_constants<struct large_config>(plan);
    const struct large_shape *s = &shapes[c->shape];
    if (batch->images <= 0)
        return CONV_OK;
    struct large_launch p;
    fill_launch(plan, batch, c, &p);
    if (layer_allow_shared_memory((const void *)s->kernel))
        return CONV_ERR_DEVICE;
    void (*kernel)(large_launch) = s->kernel;
    int64_t most = MOST_BLOCKS / p.blocks; // images of a launch
    for (p.first_image = 0; p.first_image < batch->images; p.first_image += most) {
        int64_t images = batch->images - p.first_image;
        images = images < most ? images : most;
        dim3 grid((unsigned)(images * p.blocks), (unsigned)c->chunks, (unsigned)c->panels);
        kernel<<<grid, s->threads, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(p);
        enum conv_status status = layer_launch_status();
        if (status != CONV_OK)
            return status;
    }
    return CONV_OK;
}

const struct conv_layer_variant conv_cuda_layer_large = {
    "cuda_layer_large",
    "register tiles of columns and maps, samples stay while kernel rows of weights arrive",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    CONV_LAYER_PADS,
    plan_large,
    score_large,
    pack_large,
    run_large,
};
