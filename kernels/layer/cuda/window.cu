// SPDX-License-Identifier: MIT
// cuda_layer_window: the choice of an instance of layer_window.cuh for a layer, and its launch.
#include <stdio.h>

#include "kernels/layer/cuda/depthwise_planes.cuh"

#define MOST_COLUMNS 128       // of a tile
#define MOST_ALL (60 << 10)    // bytes of all channels of a tile, with which three blocks fit
#define MOST_CHUNK (36 << 10)  // of some of them
#define MOST_STAGED (8 << 10)  // of weights
#define MOST_SHARED (64 << 10) // that a block can have with compute capability 7.5

struct window_shape {
    int kernel, stride, maps, threads; // kernel 0: any
    void (*function)(window_launch), (*dilated)(window_launch);
};

template <int K, int S, int MT, int THREADS, int BLOCKS> static window_shape shape_of()
{
    return {K, S, MT, THREADS, window<K, S, MT, THREADS, BLOCKS>, NULL};
}

// With a stride of 1, taps may be apart.
template <int K, int MT, int THREADS, int BLOCKS> static window_shape dilated_of()
{
    window_shape shape = shape_of<K, 1, MT, THREADS, BLOCKS>();
    shape.dilated = window<K, 1, MT, THREADS, BLOCKS, true>;
    return shape;
}

static const struct window_shape shapes[] = {
    dilated_of<3, 1, 256, 5>(),
    shape_of<3, 2, 1, 256, 5>(),
    dilated_of<5, 1, 256, 4>(),
    shape_of<5, 2, 1, 256, 4>(),
    dilated_of<7, 1, 256, 3>(),
    shape_of<7, 2, 1, 256, 3>(),
    shape_of<3, 1, 4, 128, 5>(),
    shape_of<3, 2, 4, 128, 5>(),
    shape_of<5, 1, 4, 128, 3>(),
    shape_of<5, 2, 4, 128, 3>(),
    shape_of<7, 1, 2, 128, 3>(),
    shape_of<7, 2, 2, 128, 3>(),
    {0, 1, 1, WINDOW_ANY_THREADS, window_any<1, false>, window_any<1, true>},
    {0, 2, 1, WINDOW_ANY_THREADS, window_any<2, false>, NULL},
};

// Depthwise instances.
#define DEPTHWISE_THREADS 224 // 56 columns x 56 rows of two planes, and 28 x 28 of eight

struct depthwise_shape {
    int height, width, stride, rows, warps; // of the kernel; of a thread, of a multiprocessor
    void (*function)(depthwise_launch);
};

template <int H, int K, int S, int R, int WARPS> static depthwise_shape depthwise_of()
{
    const int BLOCKS = WARPS * 32 / DEPTHWISE_THREADS;
    return {H, K, S, R, WARPS, depthwise<H, K, S, R, DEPTHWISE_THREADS, BLOCKS>};
}

// The last ones are for planes of one row.
static const struct depthwise_shape depthwise_shapes[] = {
    depthwise_of<3, 3, 1, 7, 28>(),  depthwise_of<3, 3, 1, 2, 48>(),
    depthwise_of<3, 3, 2, 7, 28>(),  depthwise_of<3, 3, 2, 2, 48>(),
    depthwise_of<5, 5, 1, 7, 28>(),  depthwise_of<5, 5, 1, 2, 36>(),
    depthwise_of<5, 5, 2, 7, 24>(),  depthwise_of<5, 5, 2, 2, 28>(),
    depthwise_of<7, 7, 1, 7, 16>(),  depthwise_of<7, 7, 1, 4, 16>(),
    depthwise_of<7, 7, 1, 2, 36>(),  depthwise_of<7, 7, 2, 7, 24>(),
    depthwise_of<7, 7, 2, 2, 28>(),  depthwise_of<9, 9, 1, 4, 12>(),
    depthwise_of<1, 3, 1, 7, 28>(),  depthwise_of<3, 1, 1, 7, 28>(),
    depthwise_of<1, 7, 1, 7, 28>(),  depthwise_of<7, 1, 1, 7, 28>(),
    depthwise_of<1, 11, 1, 7, 28>(), depthwise_of<11, 1, 1, 7, 28>(),
    depthwise_of<1, 21, 1, 7, 24>(), depthwise_of<21, 1, 1, 7, 24>(),
    depthwise_of<1, 3, 1, 1, 36>(),  depthwise_of<1, 4, 1, 1, 36>(),
    depthwise_of<1, 7, 1, 1, 36>(),  depthwise_of<1, 9, 1, 1, 36>(),
    depthwise_of<1, 15, 1, 1, 36>(), depthwise_of<1, 31, 1, 1, 28>(),
};

// The constants of a plan: launches without what depends on the batch.
struct window_plan {
    int depthwise; // the index of an instance plus 1; or 0, and
    int planes;    // the same of one for small planes
    int shape;
    int threads, bytes, blocks; // blocks: of a multiprocessor
    union {
        struct depthwise_launch tile;
        struct window_launch window;
    };
};

static bool is_dilated(const struct conv_layer *layer)
{
    return layer->dilation_y > 1 || layer->dilation_x > 1;
}

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
        if (fits && s->stride == layer->stride_x && (!is_dilated(layer) || s->dilated) &&
            (best < 0 || cost < least)) {
            best = (int)i;
            least = cost;
        }
    }
    return best;
}

// Weights of a kernel row.
static int row_taps(const struct conv_layer *layer, const struct window_plan *c)
{
    return c->depthwise || shapes[c->shape].kernel
               ? layer->kernel_width
               : ceil_div(layer->kernel_width, WINDOW_COLUMNS) * WINDOW_COLUMNS;
}

// The tile of a block: one thread for each unit. Units of taps that are apart come in as many as
// the taps are.
static bool choose_tile(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                        struct window_plan *plan)
{
    const struct window_shape *s = &shapes[plan->shape];
    struct window_launch *c = &plan->window;
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int unit_width = s->kernel ? 1 : WINDOW_COLUMNS, unit_height = s->kernel ? WINDOW_ROWS : 1;
    int step_x = s->kernel ? 1 : layer->dilation_x, step_y = s->kernel ? layer->dilation_y : 1;
    int most = s->threads / (step_x * step_y) * step_x * unit_width;
    if (most == 0)
        return false;
    // Planes of few rows need long ones for all threads, of which there is room for some.
    int wide = s->kernel ? 0 : s->threads / out_height * unit_width;
    int room = MOST_CHUNK / 5 / conv_layer_reach_y(layer);
    wide = max(max(MOST_COLUMNS, wide < room ? wide : room), step_x * unit_width);
    most = min(most, wide);
    int across = ceil_div(out_width, ceil_div(out_width, most));
    c->unit_columns = ceil_div(across, unit_width * step_x) * step_x;
    c->unit_rows = s->threads / c->unit_columns / step_y * step_y;
    // Tiles of equal heights.
    int all_rows = ceil_div(out_height, unit_height * step_y);
    c->unit_rows = ceil_div(all_rows, ceil_div(all_rows, c->unit_rows / step_y)) * step_y;
    c->block_planes = c->unit_rows * unit_height >= out_height && across == out_width
                          ? max(s->threads / (c->unit_columns * c->unit_rows), 1)
                          : 1;
    // Planes of one group, whose weights are the same, and a warp of them.
    if (!s->kernel && shape->images > 0 && shape->images < c->block_planes)
        c->block_planes =
            min(c->block_planes, (int)shape->images + 32 / (c->unit_columns * c->unit_rows));
    c->in_columns =
        (c->unit_columns * unit_width - 1) * layer->stride_x + conv_layer_reach_x(layer);
    // Of padding, window_any copies what units read that meet the plane.
    if (!s->kernel) {
        int side = (WINDOW_COLUMNS - 1) * layer->stride_x;
        int skipped = max(layer->pad_left / step_x - side, 0) / WINDOW_COLUMNS;
        int meets = shape->width + layer->pad_left + (side - skipped * WINDOW_COLUMNS) * step_x;
        c->in_columns = min(c->in_columns, meets);
    }
    // Pieces of four samples lie in a row or in the padding.
    c->piece =
        s->kernel && shape->width % 4 == 0 && c->unit_columns * layer->stride_x % 4 == 0 ? 4 : 1;
    c->lead = c->piece == 4 ? -layer->pad_left & 3 : 0;
    c->in_columns = ceil_div(c->in_columns + c->lead, c->piece) * c->piece;
    int skew = s->kernel ? 0 : c->in_columns / (WINDOW_COLUMNS * step_x) * step_x;
    c->pitch = s->kernel ? c->in_columns : (c->in_columns + skew) | 1; // lanes are rows
    int64_t channel;                                                   // bytes of samples
    for (;; c->unit_rows = max(c->unit_rows / 2 / step_y, 1) * step_y) {
        c->in_rows = (c->unit_rows * unit_height - 1) * layer->stride_x + conv_layer_reach_y(layer);
        c->in_rows = s->kernel ? c->in_rows : min(c->in_rows, shape->height);
        channel = (int64_t)c->in_rows * c->pitch * 4;
        if (channel <= MOST_CHUNK || c->unit_rows == step_y)
            break;
        c->block_planes = 1;
    }
    while (c->block_planes > 1 && c->block_planes * channel > MOST_CHUNK)
        c->block_planes /= 2;
    channel *= c->block_planes;
    c->tiles_x = ceil_div(out_width, c->unit_columns * unit_width);
    c->tiles_y = ceil_div(out_height, c->unit_rows * unit_height);
    int channels = layer->channels / layer->groups;
    c->chunk = channel * channels <= MOST_ALL ? channels : max((int)(MOST_CHUNK / channel), 1);
    // Lanes that are planes, and then rows, read different banks.
    c->lane_planes = !s->kernel && layer->pad_top >= WINDOW_COLUMNS ? c->block_planes : 1;
    int64_t floats = (int64_t)c->in_rows * c->pitch * c->chunk;
    if (c->lane_planes > 1)
        floats += (ceil_div(32, c->lane_planes) * layer->stride_x * c->pitch + layer->stride_x - 1 -
                   floats) &
                  31;
    int64_t lines = c->in_rows * (int)sizeof(window_line);
    c->steps = ceil_div(layer->maps / layer->groups, s->maps);
    c->quads = ceil_div(layer->kernel_height * row_taps(layer, plan) * s->maps, 4);
    int64_t staged = s->kernel ? (int64_t)c->steps * channels * c->quads : 0;
    c->staged = staged * c->block_planes * 16 <= MOST_STAGED ? (int)staged : 0;
    int64_t bytes =
        c->block_planes * (floats * 4 + lines + c->staged * 16) + (s->kernel ? 0 : c->pitch * 4);
    c->plane_floats = (int)floats;
    plan->bytes = (int)bytes;
    // An image's tiles are numbered by ints.
    return bytes <= MOST_SHARED &&
           (int64_t)c->tiles_x * c->tiles_y <= INT32_MAX / 4 / layer->groups;
}

// --- depthwise -----------------------------------------------------------------------------------

#define PROCESSORS 132     // assumed for the choice
#define SHARED (227 << 10) // of a multiprocessor
#define MOST_BLOCKS 32

static const struct depthwise_shape *depthwise_in(const struct window_plan *c)
{
    return &depthwise_shapes[c->depthwise - 1];
}

// Whether multiply-adds take longer than a copy.
static bool many_products(const struct depthwise_shape *s)
{
    return s->height * s->width > 25 && s->stride == 1;
}

// Rows of a tile's samples in one plane.
static int tile_rows(const struct conv_layer *layer, const struct window_plan *c)
{
    return (c->tile.strips * depthwise_in(c)->rows - 1) * layer->stride_y + layer->kernel_height;
}

// Sets what depends on the planes and strips of a tile. Planes share the zeros between them.
static void size_buffers(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                         struct window_plan *c)
{
    struct depthwise_launch *p = &c->tile;
    int rows = tile_rows(layer, c), below = rows - layer->pad_top - shape->height;
    int shared = below < layer->pad_top ? below : layer->pad_top;
    const struct depthwise_shape *s = depthwise_in(c);
    int strips = ceil_div(conv_layer_out_height(layer, shape->height), s->rows);
    p->tiles = ceil_div(strips, p->strips);
    p->units = p->block_planes * p->strips * p->columns;
    p->plane_floats = (p->tiles == 1 && shared > 0 ? rows - shared : rows) * p->pitch;
    // Eight threads read at a time: those of two planes from different banks, where reads are the
    // limit. With 7x7, fewer blocks cost more than that saves.
    if (p->units / p->block_planes % 8 && s->height * s->width < 49)
        p->plane_floats += (4 * p->columns - p->plane_floats) & 31;
    int floats = (p->block_planes - 1) * p->plane_floats + (rows - 1) * p->pitch +
                 max(4 * p->columns, p->pitch) + depthwise_window(s->width, s->stride);
    int outputs = p->block_planes * p->strips * s->rows * conv_layer_out_width(layer, shape->width);
    p->samples = ceil_div(floats, 4) * 4;
    p->room = p->samples + p->block_planes * p->quads * 4;
    c->bytes = (p->room * 2 + (p->direct ? 0 : outputs + 4)) * 4;
    // Copying several planes takes long with few threads.
    int least = many_products(s) && p->block_planes == 1 ? 32 : 128;
    c->threads = max(ceil_div(p->units, 32) * 32, least);
    // As registers and shared memory allow, and multiprocessors can have.
    int blocks = min(s->warps * 32 / c->threads, MOST_BLOCKS);
    c->blocks = min(SHARED / (c->bytes + 1024), blocks);
}

// The cycles that all tiles take: those of the busiest multiprocessor's four schedulers and, for
// each tile that a block computes after another, of a warp by itself. With 7x7, schedulers with
// fewer warps than others are idle.
static float depthwise_cycles(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                              const struct window_plan *c)
{
    const struct depthwise_launch *p = &c->tile;
    int64_t planes = (shape->images > 0 ? shape->images : 1 << 16) * layer->channels;
    int64_t tiles = ceil_div64(planes, p->block_planes) * p->tiles;
    float products = (float)(layer->kernel_height * layer->kernel_width * depthwise_in(c)->rows) *
                     (float)DEPTHWISE_COLUMNS(layer->stride_x);
    // Warps with units; a copy takes 16 instructions.
    float warps = (float)ceil_div(p->units, 32);
    int vector = shape->width % 4 == 0 ? 4 : shape->width % 2 == 0 ? 2 : 1;
    int rows = p->tiles == 1 ? shape->height : tile_rows(layer, c);
    float copies = (float)(p->block_planes * rows) * (float)(shape->width / vector) / 32;
    bool many = many_products(depthwise_in(c));
    float warp = many ? products + 300 : products * 1.2f + 150;
    float alone = (many ? 1000 : 1500) + warp + (many ? 16 : 8) * copies * 32 / (float)c->threads;
    int64_t each = ceil_div64(tiles, PROCESSORS);
    float present = warps * (float)(each < c->blocks ? each : c->blocks);
    float idle = many ? ceilf(present / 4) * 4 / present : 1;
    return (float)each * (warps * warp + 16 * copies) / 4 * idle +
           (float)ceil_div64(tiles, PROCESSORS * c->blocks) * alone;
}

// Tries all tiles of an instance. *best: 0, or the cycles of what has been chosen.
static void choose_block(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                         struct window_plan tried, struct window_plan *chosen, float *best)
{
    struct depthwise_launch *p = &tried.tile;
    int out_height = conv_layer_out_height(layer, shape->height);
    int strips = ceil_div(out_height, depthwise_in(&tried)->rows);
    int most_units = DEPTHWISE_THREADS / p->columns;
    for (p->strips = strips < most_units ? strips : most_units; p->strips > 0; p->strips--)
        for (p->block_planes = p->strips == strips ? most_units / strips : 1; p->block_planes > 0;
             p->block_planes--) {
            size_buffers(layer, shape, &tried);
            if (tried.bytes > MOST_SHARED)
                continue;
            float cycles = depthwise_cycles(layer, shape, &tried);
            if (*best == 0 || cycles < *best) {
                *best = cycles;
                *chosen = tried;
            }
        }
}

// Fewer planes are a few warps with much to do each. The emulated device has few processors.
#ifndef LEAST_PLANES
#define LEAST_PLANES (PROCESSORS * 64)
#endif

// The instance for planes of this size plus 1, or 0.
static int choose_planes(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    int side = shape->height, pad = layer->kernel_height / 2, stride = layer->stride_x;
    int most = (int)(sizeof planes_shapes / sizeof planes_shapes[0]);
    if (side != shape->width || layer->kernel_height != layer->kernel_width ||
        layer->pad_top != pad || layer->pad_left != pad ||
        conv_layer_out_height(layer, side) != ceil_div(side, stride) ||
        conv_layer_out_width(layer, side) != ceil_div(side, stride) ||
        (shape->images > 0 && shape->images * layer->channels < LEAST_PLANES))
        return 0;
    for (const struct planes_shape *s = planes_shapes; s < planes_shapes + most; s++)
        if (s->kernel == layer->kernel_height && s->stride == stride && s->side == side)
            return (int)(s - planes_shapes) + 1;
    return 0;
}

static bool choose_depthwise(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                             struct window_plan *c)
{
    struct depthwise_launch *p = &c->tile;
    int stride = layer->stride_x;
    if (stride > 2 || layer->groups != layer->channels || layer->maps != layer->channels ||
        is_dilated(layer))
        return false;
    int columns = DEPTHWISE_COLUMNS(stride), out_width = conv_layer_out_width(layer, shape->width);
    int gap = layer->pad_left > layer->pad_right ? layer->pad_left : layer->pad_right;
    p->columns = ceil_div(out_width, columns);
    if (p->columns > DEPTHWISE_THREADS) // bounds the sizes below, too
        return false;
    p->pitch = ceil_div(shape->width + gap, 4) * 4;
    p->direct = layer->output == CONV_ELEMENT_F32 && layer->activation != CONV_ACTIVATION_TANH &&
                out_width % columns == 0;
    p->quads = ceil_div(layer->kernel_height * layer->kernel_width + 1, 4);
    struct window_plan tried = *c;
    float best = 0;
    for (size_t i = 0; i < sizeof depthwise_shapes / sizeof depthwise_shapes[0]; i++) {
        const struct depthwise_shape *s = &depthwise_shapes[i];
        tried.depthwise = (int)i + 1;
        if (s->height == layer->kernel_height && s->width == layer->kernel_width &&
            s->stride == stride)
            choose_block(layer, shape, tried, c, &best);
    }
    // An image's tiles are numbered by ints.
    c->planes = choose_planes(layer, shape);
    return best > 0 && p->tiles <= INT32_MAX / 4 / layer->groups;
}

static enum conv_status run_depthwise(const struct conv_layer_plan *plan,
                                      const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct window_plan *c = layer_constants<struct window_plan>(plan);
    const struct depthwise_shape *s = depthwise_in(c);
    int64_t row = plan->shape.width * (int64_t)sizeof(float);
    bool adjacent = batch->src_row == row && batch->src_plane == row * plan->shape.height &&
                    batch->src_image == batch->src_plane * layer->channels;
    const struct planes_shape *small = c->planes && adjacent ? &planes_shapes[c->planes - 1] : NULL;
    void (*function)(depthwise_launch) = small ? small->function : s->function;
    int threads = small ? small->threads : c->threads;
    size_t bytes = small ? 0 : (size_t)c->bytes;
    struct depthwise_launch p = c->tile;
    int device, processors;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        (bytes > LAYER_USUAL_SHARED && layer_allow_shared_memory((const void *)function)))
        return CONV_ERR_DEVICE;
    layer_set_sizes(&p, plan, batch);
    p.weights = (const float *)plan->d_packed;
    p.pad_top = layer->pad_top;
    p.first = layer->pad_left + depthwise_offset(s->width); // a window then begins at 0
    p.copy_rows = tile_rows(layer, c);
    if (p.tiles == 1) {
        p.skip = p.pad_top;
        p.copy_rows -= p.skip;
        p.copy_rows = p.copy_rows < p.height ? p.copy_rows : p.height;
    }
    int64_t steps = p.src_row | p.src_plane | p.src_image | (int64_t)p.first * 4;
    p.piece = p.width % 4 == 0 && steps % 16 == 0 ? 4 : p.width % 2 == 0 && steps % 8 == 0 ? 2 : 1;
    p.row_pieces = p.width / p.piece;
    p.across = p.row_pieces < c->threads ? p.row_pieces : c->threads;
    p.down = c->threads / p.across;
    p.turn_planes = p.copy_rows > 0 ? p.down / p.copy_rows : 0;
    p.down = p.turn_planes > 0 ? p.copy_rows : p.down;
    p.turn_bytes = p.turn_planes > 0 ? p.turn_planes * p.src_plane : p.down * p.src_row;
    p.turn_floats = p.turn_planes > 0 ? p.turn_planes * p.plane_floats : p.down * p.pitch;
    bool even = p.src_image == p.channels * p.src_plane;
    p.by_channels = layer_divider_of(p.channels);
    p.by_tiles = layer_divider_of(p.tiles);
    p.by_across = layer_divider_of(p.across);
    p.by_down = layer_divider_of(p.down);
    p.by_quads = layer_divider_of(p.quads);
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    // Planes and tiles are numbered by ints; launches begin at multiples of four planes.
    int64_t most = (INT32_MAX / 2) / ((int64_t)p.channels * p.tiles) / 4 * 4;
    int64_t image = (int64_t)layer->maps * p.out_height * p.out_width;
    enum conv_status status = CONV_OK;
    for (int64_t first = 0; first < batch->images && status == CONV_OK; first += most) {
        int64_t images = batch->images - first < most ? batch->images - first : most;
        p.src = (const char *)batch->src + first * p.src_image;
        p.dst = (char *)batch->dst + first * image * (int64_t)conv_element_size(layer->output);
        p.part_planes = (even ? (int)images : 1) * p.channels;
        p.part_step = p.src_image;
        p.part_tiles = ceil_div(p.part_planes, p.block_planes) * p.tiles;
        p.by_part_tiles = layer_divider_of(p.part_tiles);
        p.count = p.part_tiles * (even ? 1 : (int)images);
        int blocks = p.count < processors * c->blocks ? p.count : processors * c->blocks;
        if (small) {
            p.count = (int)images * p.channels;
            blocks = ceil_div(p.count, small->planes);
        }
        function<<<(unsigned)blocks, threads, bytes, (cudaStream_t)batch->stream>>>(p);
        status = layer_launch_status();
    }
    return status;
}

// -------------------------------------------------------------------------------------------------

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
        *c = {};
    } else {
        snprintf(plan->tile, sizeof plan->tile, "%dx%dx%d", c->tile.block_planes, c->tile.strips,
                 depthwise_in(c)->rows);
        plan->packed_bytes = (size_t)layer->maps * (size_t)c->tile.quads * 4 * sizeof(float);
        return true;
    }
    c->shape = choose_shape(layer);
    if (c->shape < 0 || !choose_tile(layer, shape, c))
        return false;
    int maps = shapes[c->shape].maps;
    struct window_launch *p = &c->window;
    size_t steps = (size_t)layer->groups * (size_t)p->steps;
    size_t channels = (size_t)(layer->channels / layer->groups);
    plan->packed_bytes = steps * (channels * (size_t)p->quads * 4 + (size_t)maps) * sizeof(float);
    // window_any reads the weights after the last ones, too.
    plan->packed_bytes += (size_t)(row_taps(layer, c) + WINDOW_COLUMNS) * sizeof(float);
    return true;
}

static int score_window(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    // Long sums of samples that no other output needs.
    bool alone = layer->kernel_height * layer->kernel_width >= 16 &&
                 (layer->kernel_width <= layer->stride_x ||
                  conv_layer_out_width(layer, plan->shape.width) == 1) &&
                 (layer->kernel_height <= layer->stride_y ||
                  conv_layer_out_height(layer, plan->shape.height) == 1);
    if (layer->groups == layer->channels && layer->groups > 1)
        return alone ? 50 : 130;
    // Too few blocks for a GPU, of long sums or many channels, which blocks wait for.
    const struct window_plan *c = layer_constants<struct window_plan>(plan);
    int maps = layer->maps / layer->groups, channels = layer->channels / layer->groups;
    int64_t planes = plan->shape.images * layer->groups;
    int products = channels * maps * layer->kernel_height * layer->kernel_width;
    bool idle = planes > 0 && (channels >= 8 || products > 2000) && maps > 2 && !c->depthwise &&
                ceil_div64(planes, c->window.block_planes) * c->window.tiles_x * c->window.tiles_y <
                    PROCESSORS;
    // Kernels of any size do less at a time.
    idle |= !c->depthwise && shapes[c->shape].kernel == 0 && channels >= 32;
    return maps < 16 && (maps <= 4 || channels <= 16) && !idle ? 75 : 50;
}

static void pack_window(const struct conv_layer_plan *plan)
{
    const struct window_plan *c = layer_constants<struct window_plan>(plan);
    const struct conv_layer *layer = &plan->layer;
    int step_maps = c->depthwise ? 1 : shapes[c->shape].maps, maps = layer->maps / layer->groups;
    int channels = layer->channels / layer->groups;
    int row = row_taps(layer, c);
    int quads = c->depthwise ? c->tile.quads : c->window.quads;
    size_t step_floats = (size_t)channels * (size_t)quads * 4;
    float *packed = (float *)plan->packed;
    int steps = c->depthwise ? 1 : c->window.steps;
    // Of a depthwise layer, after a channel's taps.
    float *bias = packed + (c->depthwise ? (size_t)(layer->kernel_height * layer->kernel_width)
                                         : (size_t)layer->groups * (size_t)steps * step_floats);
    size_t step_biases = c->depthwise ? step_floats : (size_t)step_maps;
    const float *from = layer->weights;
    for (int m = 0; m < layer->maps; m++) {
        size_t step = (size_t)(m / maps) * (size_t)steps + (size_t)(m % maps / step_maps);
        int lane = m % maps % step_maps;
        float *to = packed + step * step_floats + lane;
        for (int channel = 0; channel < channels; channel++, to += quads * 4)
            for (int u = 0; u < layer->kernel_height; u++)
                for (int v = 0; v < layer->kernel_width; v++)
                    to[(u * row + v) * step_maps] = *from++;
        if (layer->bias)
            bias[step * step_biases + (size_t)lane] = layer->bias[m];
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
    struct window_launch p = c->window;
    layer_set_sizes(&p, plan, batch);
    p.weights = (const float *)plan->d_packed;
    p.groups = layer->groups;
    p.channels = layer->channels / layer->groups;
    p.maps = layer->maps / layer->groups;
    p.bias =
        p.weights + (size_t)p.groups * (size_t)p.steps * (size_t)p.channels * (size_t)p.quads * 4;
    p.pad_top = layer->pad_top;
    p.pad_left = layer->pad_left;
    p.kernel_width = layer->kernel_width;
    p.stride = layer->stride_x;
    p.dilation_y = layer->dilation_y;
    p.dilation_x = layer->dilation_x;
    p.by_lane_planes = layer_divider_of(p.lane_planes);
    p.by_tiles = layer_divider_of(p.tiles_x * p.tiles_y);
    p.by_tiles_x = layer_divider_of(p.tiles_x);
    p.by_unit_columns = layer_divider_of(p.unit_columns);
    p.by_unit_rows = layer_divider_of(p.unit_rows);
    if ((p.src_row | p.src_plane | p.src_image) % 16)
        p.piece = 1;
    p.by_in_columns = layer_divider_of(p.in_columns / p.piece);
    p.by_in_rows = layer_divider_of(p.in_rows);
    p.by_dilation = layer_divider_of(s->kernel ? p.dilation_y : p.dilation_x);
    p.by_skew = layer_divider_of(s->kernel ? INT32_MAX / 2 : WINDOW_COLUMNS * p.dilation_x);
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    void (*function)(window_launch) = is_dilated(layer) ? s->dilated : s->function;
    if (c->bytes > LAYER_USUAL_SHARED && layer_allow_shared_memory((const void *)function))
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
        p.inner = s->kernel ? p.groups : (int)images;
        p.by_inner = layer_divider_of(p.inner);
        int blocks = ceil_div(p.planes, p.block_planes) * p.tiles_x * p.tiles_y;
        function<<<(unsigned)blocks, threads, (size_t)c->bytes, (cudaStream_t)batch->stream>>>(p);
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
    CONV_LAYER_PADS | CONV_LAYER_GROUPS | CONV_LAYER_DILATION | CONV_LAYER_LATE,
    plan_window,
    score_window,
    pack_window,
    run_window,
};
