// SPDX-License-Identifier: MIT
// cuda_layer_window: the choice of an instance of layer_window.cuh for a layer, and its launch.
#include <stdio.h>
#include <string.h>

#include "kernels/layer/cuda/depthwise.cuh"

#define MOST_COLUMNS 128       // of a tile
#define MOST_ALL (60 << 10)    // bytes of all channels of a tile, with which three blocks fit
#define MOST_CHUNK (36 << 10)  // of some of them
#define MOST_SHARED (64 << 10) // that a block can have with compute capability 7.5

struct window_shape {
    int kernel, stride, maps, threads; // kernel 0: any
    void (*function)(window_launch);
};

template <int K, int S, int MT, int THREADS, int BLOCKS> static window_shape shape_of()
{
    return {K, S, MT, THREADS, window<K, S, MT, THREADS, BLOCKS>};
}

static const struct window_shape shapes[] = {
    shape_of<3, 1, 1, 256, 5>(),
    shape_of<3, 2, 1, 256, 5>(),
    shape_of<5, 1, 1, 256, 4>(),
    shape_of<5, 2, 1, 256, 4>(),
    shape_of<7, 1, 1, 256, 3>(),
    shape_of<7, 2, 1, 256, 3>(),
    shape_of<3, 1, 4, 128, 5>(),
    shape_of<3, 2, 4, 128, 5>(),

    shape_of<5, 1, 4, 128, 3>(),
    shape_of<5, 2, 4, 128, 3>(),
    shape_of<7, 1, 2, 128, 3>(),
    shape_of<7, 2, 2, 128, 3>(),
    {0, 1, 1, WINDOW_ANY_THREADS, window_any<1>},
    {0, 2, 1, WINDOW_ANY_THREADS, window_any<2>},
};

// Depthwise instances: kernels of side x side.
struct depthwise_shape {
    int side, stride, columns, threads;
    void (*function)(depthwise_launch);
};

template <int K, int S, int C, int THREADS, int BLOCKS> static depthwise_shape depthwise_of()
{
    return {K, S, C, THREADS, depthwise<K, S, C, THREADS, BLOCKS>};
}

static const struct depthwise_shape depthwise_shapes[] = {
    depthwise_of<3, 1, 3, 256, 4>(), depthwise_of<3, 2, 1, 256, 5>(),
    depthwise_of<5, 1, 3, 256, 3>(), depthwise_of<5, 2, 1, 256, 4>(),
    depthwise_of<7, 1, 3, 128, 5>(), depthwise_of<7, 2, 1, 256, 3>(),
};

// The constants of a plan. With `depthwise`, the index of an instance plus 1, only what follows it
// is used.
struct window_plan {
    int depthwise;
    int planes, strips, strip_tiles, rows, gap, row_pitch, columns, threads, bytes;
    int shape, steps, quads;
    int block_planes, unit_columns, unit_rows, tiles_x, tiles_y;
    int in_rows, in_columns, pitch, chunk, shared;
};

// The instance that computes the fewest maps that are not there; each step of maps also reads the
// samples, about as long as half a map takes.
static int choose_shape(const struct conv_layer *layer)
{
    int maps = layer->maps / layer->groups, best = -1;
    float least = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct window_shape *s = &shapes[i];
        bool fits = s->kernel == 0 ||
                    (s->kernel == layer->kernel_height && s->kernel == layer->kernel_width);
        float cost =
            (float)ceil_div(maps, s->maps) * ((float)s->maps + 0.5f) * (s->kernel ? 1.0f : 2.0f);
        if (fits && s->stride == layer->stride_x && (best < 0 || cost < least)) {
            best = (int)i;
            least = cost;
        }
    }
    return best;
}

static int at_least(int a, int least)
{
    return a < least ? least : a;
}

// The tile of a block: one thread for each unit.
static bool choose_tile(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                        struct window_plan *c)
{
    const struct window_shape *s = &shapes[c->shape];
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int unit_width = s->kernel ? 1 : WINDOW_COLUMNS, unit_height = s->kernel ? WINDOW_ROWS : 1;
    int across = ceil_div(out_width, ceil_div(out_width, MOST_COLUMNS));
    c->unit_columns = ceil_div(across, unit_width);
    c->unit_rows = at_least(s->threads / c->unit_columns, 1);
    if (c->unit_rows > ceil_div(out_height, unit_height))
        c->unit_rows = ceil_div(out_height, unit_height);
    c->block_planes = c->unit_rows * unit_height >= out_height && across == out_width
                          ? at_least(s->threads / (c->unit_columns * c->unit_rows), 1)
                          : 1;
    c->in_columns = (c->unit_columns * unit_width - 1) * layer->stride_x + layer->kernel_width;
    c->pitch = s->kernel ? c->in_columns : c->in_columns | 1; // lanes are rows
    int64_t channel;                                          // bytes of samples
    for (;; c->unit_rows = (c->unit_rows + 1) / 2) {
        c->in_rows = (c->unit_rows * unit_height - 1) * layer->stride_x + layer->kernel_height;
        channel = (int64_t)c->in_rows * c->pitch * 4;
        if (channel <= MOST_CHUNK || c->unit_rows == 1)
            break;
        c->block_planes = 1;
    }
    while (c->block_planes > 1 && c->block_planes * channel > MOST_CHUNK)
        c->block_planes /= 2;
    channel *= c->block_planes;
    c->tiles_x = ceil_div(out_width, c->unit_columns * unit_width);
    c->tiles_y = ceil_div(out_height, c->unit_rows * unit_height);
    int channels = layer->channels / layer->groups;
    c->chunk = channel * channels <= MOST_ALL ? channels : at_least((int)(MOST_CHUNK / channel), 1);
    int64_t bytes =
        channel * c->chunk + (int64_t)c->block_planes * c->in_rows * (int)sizeof(window_line);
    c->shared = (int)bytes;
    // An image's tiles are numbered by ints.
    return bytes <= MOST_SHARED &&
           (int64_t)c->tiles_x * c->tiles_y <= INT32_MAX / 4 / layer->groups;
}

// --- depthwise -----------------------------------------------------------------------------------

#define DEPTHWISE_BYTES (16 << 10)      // of samples of a block
#define DEPTHWISE_MOST_BYTES (46 << 10) // with outputs, if rows are long
#define DEPTHWISE_BLOCKS (132 * 2)      // enough for a GPU: smaller ones take longer to begin

// The part of a block's threads that have something to do.
static float filled(int units, int most_threads, int *threads)
{
    int rounds = ceil_div(units, most_threads);
    *threads = ceil_div(ceil_div(units, rounds), 32) * 32;
    return (float)units / (float)(rounds * *threads);
}

// Sets how many rows and planes a block computes.
static void choose_block(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                         struct window_plan *c)
{
    const struct depthwise_shape *s = &depthwise_shapes[c->depthwise - 1];
    int out_height = conv_layer_out_height(layer, shape->height);
    int strips = ceil_div(out_height, WINDOW_ROWS), most = DEPTHWISE_BYTES / 4 / c->row_pitch;
    int64_t planes = (shape->images > 0 ? shape->images : 1 << 16) * layer->channels;
    for (;; most /= 2) { // fewer rows if that leaves too few blocks
        c->strips = most / (WINDOW_ROWS * s->stride);
        c->strips = c->strips < 1 ? 1 : c->strips < strips ? c->strips : strips;
        c->strip_tiles = ceil_div(strips, c->strips);
        c->strips = ceil_div(strips, c->strip_tiles);
        c->rows = (c->strips * WINDOW_ROWS - 1) * s->stride + s->side;
        c->planes = c->strip_tiles == 1 && most > c->rows ? most / c->rows : 1;
        if (planes / c->planes * c->strip_tiles >= DEPTHWISE_BLOCKS ||
            (c->planes == 1 && c->strips == 1))
            break;
    }
    // Planes that use the threads well and begin at multiples of four samples and outputs.
    int best = c->planes, units = c->strips * c->columns;
    float most_filled = 0;
    for (int n = c->planes; n > 0 && n > c->planes / 2; n--) {
        bool whole = (int64_t)n * shape->height * shape->width % 4 == 0 &&
                     (int64_t)n * out_height * conv_layer_out_width(layer, shape->width) % 4 == 0;
        float part = filled(n * units, s->threads, &c->threads) - (whole ? 0 : 0.5f);
        if (n == c->planes || part > most_filled) {
            most_filled = part;
            best = n;
        }
    }
    c->planes = best;
    (void)filled(best * units, s->threads, &c->threads);
}

static bool choose_depthwise(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                             struct window_plan *c)
{
    c->depthwise = 0;
    for (size_t i = 0; i < sizeof depthwise_shapes / sizeof depthwise_shapes[0]; i++)
        if (depthwise_shapes[i].side == layer->kernel_height &&
            depthwise_shapes[i].side == layer->kernel_width &&
            depthwise_shapes[i].stride == layer->stride_x)
            c->depthwise = (int)i + 1;
    if (c->depthwise == 0 || layer->groups != layer->channels || layer->maps != layer->channels)
        return false;
    int out_width = conv_layer_out_width(layer, shape->width);
    int columns = depthwise_shapes[c->depthwise - 1].columns;
    int gap = layer->pad_left > layer->pad_right ? layer->pad_left : layer->pad_right;
    int vector = shape->width % 4 == 0 ? 4 : shape->width % 2 == 0 ? 2 : 1;
    c->gap = ceil_div(gap, vector) * vector;
    c->row_pitch = shape->width + c->gap;
    c->columns = ceil_div(out_width, columns);
    c->quads = ceil_div(layer->kernel_height * layer->kernel_width, 4);
    if (c->row_pitch > DEPTHWISE_MOST_BYTES / 4)
        return false;
    choose_block(layer, shape, c);
    int samples = depthwise_room(c->planes * c->rows * c->row_pitch + c->gap, columns);
    int outputs = c->planes * c->strips * WINDOW_ROWS * out_width;
    c->bytes = (samples + outputs + 3) / 4 * 16;
    // An image's tiles are numbered by ints.
    return c->bytes <= DEPTHWISE_MOST_BYTES && c->strip_tiles <= INT32_MAX / 4 / layer->groups;
}

static enum conv_status run_depthwise(const struct conv_layer_plan *plan,
                                      const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct window_plan *c = layer_constants<struct window_plan>(plan);
    void (*function)(depthwise_launch) = depthwise_shapes[c->depthwise - 1].function;
    struct depthwise_launch p = {};
    layer_set_sizes(&p, plan, batch);
    p.weights = (const float *)plan->d_packed;
    p.bias = p.weights + (size_t)p.channels * (size_t)c->quads * 4;
    p.pad_top = layer->pad_top;
    p.pad_left = layer->pad_left;
    p.quads = c->quads;
    p.block_planes = c->planes;
    p.strips = c->strips;
    p.tiles = c->strip_tiles;
    p.in_rows = c->rows;
    p.pitch = c->row_pitch;
    p.gap = c->gap;
    int64_t row = (int64_t)p.width * 4, plane = row * p.height;
    int64_t steps = p.src_row | p.src_plane | p.src_image;
    p.piece = p.width % 4 == 0 && steps % 16 == 0 ? 4 : p.width % 2 == 0 && steps % 8 == 0 ? 2 : 1;
    if (p.piece == 1 && p.tiles == 1 && p.src_row == row && p.src_plane == plane &&
        p.src_image == plane * p.channels && plane * p.block_planes % 16 == 0 &&
        p.in_rows >= p.pad_top + p.height)
        p.piece = 0;
    p.row_pieces = p.piece ? p.width / p.piece : 1;
    p.columns = c->columns;
    p.units = p.block_planes * p.strips * p.columns;
    p.by_channels = layer_divider_of(p.channels);
    p.by_tiles = layer_divider_of(p.tiles);
    p.by_row_pieces = layer_divider_of(p.row_pieces);
    p.by_in_rows = layer_divider_of(p.in_rows);
    p.by_columns = layer_divider_of(p.columns);
    p.by_strips = layer_divider_of(p.strips);
    p.by_width = layer_divider_of(p.width);
    p.by_height = layer_divider_of(p.height);
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    // Planes and blocks are numbered by ints; launches begin at multiples of four planes.
    int64_t most = (INT32_MAX / 2) / ((int64_t)p.channels * p.tiles) / 4 * 4;
    int64_t image = (int64_t)layer->maps * p.out_height * p.out_width;
    enum conv_status status = CONV_OK;
    for (int64_t first = 0; first < batch->images && status == CONV_OK; first += most) {
        int64_t images = batch->images - first < most ? batch->images - first : most;
        p.src = (const char *)batch->src + first * p.src_image;
        p.dst = (char *)batch->dst + first * image * (int64_t)conv_element_size(layer->output);
        p.planes = (int)images * p.channels;
        int blocks = ceil_div(p.planes, p.block_planes) * p.tiles;
        function<<<(unsigned)blocks, c->threads, (size_t)c->bytes, (cudaStream_t)batch->stream>>>(
            p);
        status = layer_launch_status();
    }
    return status;
}

// -------------------------------------------------------------------------------------------------

// Weights of a kernel row.
static int row_taps(const struct conv_layer *layer, const struct window_plan *c)
{
    return c->depthwise || shapes[c->shape].kernel
               ? layer->kernel_width
               : ceil_div(layer->kernel_width, WINDOW_COLUMNS) * WINDOW_COLUMNS;
}

static bool plan_window(struct conv_layer_plan *plan)
{
    struct window_plan *c = layer_constants<struct window_plan>(plan);
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    if (!layer_pads_zeros(layer) || layer->input != CONV_ELEMENT_F32)
        conv_layer_plan_pad(plan);
    int64_t height = conv_layer_out_height(layer, shape->height);
    int64_t width = conv_layer_out_width(layer, shape->width);
    if (height <= 0 || width <= 0 || height * width > INT32_MAX / 2 ||
        (layer->kernel_height == 1 && layer->kernel_width == 1) ||
        layer->channels / layer->groups > INT32_MAX / 2 / (1 << 12))
        return false;
    if (!choose_depthwise(layer, shape, c)) {
        c->depthwise = 0;
    } else {
        snprintf(plan->tile, sizeof plan->tile, "%dx%d", c->planes, c->strips);
        plan->packed_bytes = (size_t)layer->maps * ((size_t)c->quads * 4 + 1) * sizeof(float);
        return true;
    }
    c->shape = choose_shape(layer);
    if (c->shape < 0 || !choose_tile(layer, shape, c))
        return false;
    int taps = layer->kernel_height * row_taps(layer, c), maps = shapes[c->shape].maps;
    c->steps = ceil_div(layer->maps / layer->groups, maps);
    c->quads = ceil_div(taps * maps, 4);
    size_t steps = (size_t)layer->groups * (size_t)c->steps;
    size_t channels = (size_t)(layer->channels / layer->groups);
    plan->packed_bytes = steps * (channels * (size_t)c->quads * 4 + (size_t)maps) * sizeof(float);
    return true;
}

static int score_window(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    if (layer->groups == layer->channels && layer->groups > 1)
        return 130;
    // The other kernels need 16 maps, or few channels.
    return layer->maps / layer->groups < 16 ? 75 : 50;
}

static void pack_window(const struct conv_layer_plan *plan)
{
    const struct window_plan *c = layer_constants<struct window_plan>(plan);
    const struct conv_layer *layer = &plan->layer;
    int step_maps = c->depthwise ? 1 : shapes[c->shape].maps, maps = layer->maps / layer->groups;
    int channels = layer->channels / layer->groups;
    int row = row_taps(layer, c);
    size_t step_floats = (size_t)channels * (size_t)c->quads * 4;
    float *packed = (float *)plan->packed;
    int steps = c->depthwise ? 1 : c->steps;
    float *bias = packed + (size_t)layer->groups * (size_t)steps * step_floats;
    const float *from = layer->weights;
    for (int m = 0; m < layer->maps; m++) {
        size_t step = (size_t)(m / maps) * (size_t)steps + (size_t)(m % maps / step_maps);
        int lane = m % maps % step_maps;
        float *to = packed + step * step_floats + lane;
        for (int channel = 0; channel < channels; channel++, to += c->quads * 4)
            for (int u = 0; u < layer->kernel_height; u++)
                for (int v = 0; v < layer->kernel_width; v++)
                    to[(u * row + v) * step_maps] = *from++;
        if (layer->bias)
            bias[step * (size_t)step_maps + (size_t)lane] = layer->bias[m];
    }
}

static enum conv_status run_window(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct window_plan *c = layer_constants<struct window_plan>(plan);
    if (c->depthwise)
        return run_depthwise(plan, batch);
    const struct window_shape *s = &shapes[c->shape];
    struct window_launch p = {};
    layer_set_sizes(&p, plan, batch);
    p.weights = (const float *)plan->d_packed;
    p.groups = layer->groups;
    p.channels = layer->channels / layer->groups;
    p.maps = layer->maps / layer->groups;
    p.steps = c->steps;
    p.bias =
        p.weights + (size_t)p.groups * (size_t)p.steps * (size_t)p.channels * (size_t)c->quads * 4;
    p.pad_top = layer->pad_top;
    p.pad_left = layer->pad_left;
    p.kernel_width = layer->kernel_width;
    p.stride = layer->stride_x;
    p.quads = c->quads;
    p.block_planes = c->block_planes;
    p.unit_columns = c->unit_columns;
    p.unit_rows = c->unit_rows;
    p.tiles_x = c->tiles_x;
    p.tiles_y = c->tiles_y;
    p.in_rows = c->in_rows;
    p.in_columns = c->in_columns;
    p.pitch = c->pitch;
    p.chunk = c->chunk;
    p.by_groups = layer_divider_of(p.groups);
    p.by_tiles = layer_divider_of(p.tiles_x * p.tiles_y);
    p.by_tiles_x = layer_divider_of(p.tiles_x);
    p.by_unit_columns = layer_divider_of(p.unit_columns);
    p.by_unit_rows = layer_divider_of(p.unit_rows);
    p.by_in_columns = layer_divider_of(p.in_columns);
    p.by_in_rows = layer_divider_of(p.in_rows);
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    void (*function)(window_launch) = s->function;
    if (c->shared > LAYER_USUAL_SHARED && layer_allow_shared_memory((const void *)function))
        return CONV_ERR_DEVICE;
    int threads = ceil_div(p.block_planes * p.unit_rows * p.unit_columns, 32) * 32;
    // Planes and blocks are numbered by ints.
    int64_t most = (INT32_MAX / 2) / ((int64_t)p.groups * p.tiles_x * p.tiles_y);
    int64_t image = (int64_t)layer->maps * p.out_height * p.out_width;
    enum conv_status status = CONV_OK;
    for (int64_t first = 0; first < batch->images && status == CONV_OK; first += most) {
        int64_t images = batch->images - first < most ? batch->images - first : most;
        p.src = (const char *)batch->src + first * p.src_image;
        p.dst = (char *)batch->dst + first * image * (int64_t)conv_element_size(layer->output);
        p.planes = (int)images * p.groups;
        int blocks = ceil_div(p.planes, p.block_planes) * p.tiles_x * p.tiles_y;
        function<<<(unsigned)blocks, threads, (size_t)c->shared, (cudaStream_t)batch->stream>>>(p);
        status = layer_launch_status();
    }
    return status;
}

const struct conv_layer_variant conv_cuda_layer_window = {
    "cuda_layer_window",
    "all samples of a tile in shared memory, some outputs of a column per thread: few channels, "
    "depthwise",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    CONV_LAYER_PADS | CONV_LAYER_GROUPS | CONV_LAYER_LATE,
    plan_window,
    score_window,
    pack_window,
    run_window,
};
