// SPDX-License-Identifier: MIT
// cuda_layer_wgmma and cuda_layer_wgmma_half: the choice of an instance and a tile of
// layer_wgmma.cuh, the weights as it reads them, and its launch.
#include <math.h>
#include <string.h>

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/layer_wgmma.cuh"
#include "tensor/element.h"

// Without machine code for 9.0a, no device can run it.
#define NEEDS (CONV_HAVE_WGMMA ? CONV_CUDA_ONLY + 90 : CONV_CUDA_ONLY)

#define SHARED (227 << 10) // of a multiprocessor, for a block
// compute-sanitizer assumes that the 64 rows of 32 bytes of a matrix are contiguous; ours overlap.
#define MATRIX_BYTES 2048
#define PROCESSORS 132 // assumed for the choice of a tile

struct wgmma_shape {
    int blocks, products, matrices;   // of 8 maps; matrices that a warpgroup has at a time
    void (*kernels[2])(wgmma_launch); // matrices of 64 positions, of 8 x 8
};

#define SHAPE(blocks, products, matrices)                                                          \
    {                                                                                              \
        blocks, products, matrices,                                                                \
        {                                                                                          \
            wgmma_layer<blocks, products, matrices, false>,                                        \
                wgmma_layer<blocks, products, matrices, true>                                      \
        }                                                                                          \
    }
static const struct wgmma_shape shapes[] = {
    SHAPE(8, 3, 1), SHAPE(6, 3, 1), SHAPE(4, 3, 1), SHAPE(3, 3, 1), SHAPE(2, 3, 1), SHAPE(1, 3, 1),
    SHAPE(8, 1, 1), SHAPE(6, 1, 1), SHAPE(4, 1, 2), SHAPE(3, 1, 2), SHAPE(2, 1, 2), SHAPE(1, 1, 2),
};

// Values derived from a layer; a plan's constants.
struct wgmma_config {
    int shape, chunks, group, tile_rows, tile_columns, down, across, in_rows, pitch;
    int planes, plane_bytes, last_pixels, atoms, steps;
    int m_tiles, m_across, m_row, m_column, square;
    int buffer_bytes, shared_bytes;
    float cost; // cycles, roughly
};

// Atoms of a kernel row in the last plane.
static int last_row_atoms(const struct conv_layer *layer, const struct wgmma_config *c)
{
    return ceil_div(layer->kernel_width, c->last_pixels);
}

// The matrices of a tile: 64 positions that follow each other, or 8 rows of 8 columns.
static void choose_matrices(struct wgmma_config *c)
{
    int row_tiles = ceil_div((c->tile_rows - 1) * c->pitch + c->tile_columns, 64);
    int across = ceil_div(c->tile_columns, 8), squares = ceil_div(c->tile_rows, 8) * across;
    bool square = squares < row_tiles;
    c->square = square;
    c->m_tiles = c->m_across = square ? squares : row_tiles;
    c->m_column = square ? 8 : 64;
    c->m_row = 0;
    if (square) {
        c->m_across = across;
        c->m_row = 8 * c->pitch;
    }
}

// Cycles of a task's matrices and of reading its samples. A step reads 2 KB of samples and 256
// bytes of weights for 8 maps, 128 bytes a cycle, and multiplies 8 maps in 4 cycles, in each
// product.
static float task_cost(const struct wgmma_config *c, const struct wgmma_shape *s)
{
    float maps = (float)s->blocks, reads, products;
    if (s->products == 1) {
        reads = 16 + 2 * maps;
        products = 4 * maps;
    } else {
        reads = s->blocks > 6 ? 48 + 6 * maps : 32 + 6 * maps;
        products = 12 * maps;
    }
    float step = reads > products ? reads : products;
    float positions = (float)(c->group * c->in_rows * c->pitch * c->planes);
    int matrices = ceil_div(c->group * c->m_tiles, s->matrices) * s->matrices;
    float multiply = (float)matrices * ((float)c->steps * step + 150.0f);
    float fill = positions * 4.0f + 2000.0f;
    return multiply > fill ? multiply : fill;
}

// The rest of a configuration whose shape, group and tile are set; false if it needs too much
// memory.
static bool fill_config(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                        struct wgmma_config *c)
{
    const struct wgmma_shape *s = &shapes[c->shape];
    int parts = s->products == 3 ? 2 : 1;
    c->chunks = ceil_div(layer->maps, s->blocks * 8);
    c->in_rows = c->tile_rows + layer->kernel_height - 1;
    c->pitch = c->tile_columns + layer->kernel_width - 1;
    c->down = ceil_div(conv_layer_out_height(layer, shape->height), c->tile_rows);
    c->across = ceil_div(conv_layer_out_width(layer, shape->width), c->tile_columns);
    if (c->in_rows < 2 || c->pitch < 2) // wgmma_inverse()
        return false;
    int64_t positions = (int64_t)c->group * c->in_rows * c->pitch;
    if (positions * c->planes * parts * 16 > SHARED)
        return false;
    c->plane_bytes = (int)positions * 16;
    choose_matrices(c);
    // A matrix may end after the last position.
    int last = (c->group - 1) * c->in_rows * c->pitch + (c->m_tiles - 1) / c->m_across * c->m_row +
               (c->m_across - 1) * c->m_column + 7 * (c->square ? c->pitch : 8) + 7 +
               (layer->kernel_height - 1) * c->pitch + layer->kernel_width - 1;
    int after = last + 1 - (int)positions;
    c->buffer_bytes = parts * c->planes * c->plane_bytes;
    c->shared_bytes = c->steps * parts * s->blocks * 256 + s->blocks * 64 + WGMMA_SHARED_BYTES +
                      WGMMA_BUFFERS * c->buffer_bytes + (after > 0 ? after : 0) * 16 + MATRIX_BYTES;
    if (c->shared_bytes > SHARED)
        return false;
    int64_t images = shape->images > 0 ? shape->images : 1000;
    int64_t tasks = ceil_div64(images, c->group) * c->down * c->across * c->chunks;
    c->cost = (float)ceil_div64(tasks, PROCESSORS) * task_cost(c, s);
    return true;
}

static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      int products, struct wgmma_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width), rest = layer->channels % 8;
    bool found = false;
    if (out_height <= 0 || out_width <= 0 || layer->stride_x != 1)
        return false;
    struct wgmma_config c = {};
    c.planes = ceil_div(layer->channels, 8);
    c.last_pixels = rest ? 8 / rest : 1;
    c.atoms = layer->kernel_height *
              (layer->channels / 8 * layer->kernel_width + (rest ? last_row_atoms(layer, &c) : 0));
    c.steps = ceil_div(c.atoms, 4) * 2; // even
    if (c.atoms < 2 || c.steps > WGMMA_MOST_STEPS)
        return false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (shapes[i].products != products)
            continue;
        c.shape = (int)i;
        for (int across = 1; across <= 8 && (across == 1 || out_width / across >= 16); across++)
            for (int down = 1; down <= out_height && down <= 64; down++)
                for (int group = 1; group <= (across * down == 1 ? 8 : 1); group *= 2) {
                    c.group = group;
                    c.tile_rows = ceil_div(out_height, down);
                    c.tile_columns = ceil_div(out_width, across);
                    if (fill_config(layer, shape, &c) && (!found || c.cost < best->cost)) {
                        found = true;
                        *best = c;
                    }
                }
    }
    return found;
}

// Bytes of each part of the packed weights.
struct wgmma_parts {
    size_t weights, bias, exact, offsets;
};

static struct wgmma_parts parts_of(const struct conv_layer *layer, const struct wgmma_config *c)
{
    const struct wgmma_shape *s = &shapes[c->shape];
    struct wgmma_parts parts;
    parts.weights =
        (size_t)c->chunks * (size_t)c->steps * (s->products == 3 ? 2 : 1) * (size_t)s->blocks * 256;
    parts.bias = (size_t)(c->chunks * s->blocks * 8) * 2 * sizeof(float);
    parts.exact = (size_t)layer->maps * layer_tap_count(layer) * sizeof(float);
    parts.offsets = (size_t)c->steps * sizeof(uint32_t);
    return parts;
}

template <int PRODUCTS> static bool plan_products(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    struct wgmma_config *c = layer_constants<struct wgmma_config>(plan);
    if (!configure(layer, shape, PRODUCTS, c) ||
        (int64_t)shape->height * shape->width > 1 << 27 || // 6 planes of outputs: int
        (int64_t)c->group * layer->maps * shape->height * shape->width > INT32_MAX ||
        !half_scales_exist(layer))
        return false;
    struct wgmma_parts parts = parts_of(layer, c);
    plan->packed_bytes = parts.weights + parts.bias + parts.exact + parts.offsets;
    return true;
}

// Atom `index` of the layer, in the order plane, row, column: its place, and the tap of each of its
// 8 numbers (-1: none).
static int find_atom(const struct conv_layer *layer, const struct wgmma_config *c, int index,
                     int (&taps)[8])
{
    int full = layer->channels / 8 * layer->kernel_height * layer->kernel_width;
    bool is_last = index >= full;
    int across = is_last ? last_row_atoms(layer, c) : layer->kernel_width;
    int row = (is_last ? index - full : index) / across;
    int plane = is_last ? layer->channels / 8 : row / layer->kernel_height;
    int u = is_last ? row : row % layer->kernel_height;
    int channels = is_last ? layer->channels % 8 : 8, pixels = is_last ? c->last_pixels : 1;
    int v = (is_last ? index - full : index) % across * pixels;
    for (int i = 0; i < 8; i++) {
        int pixel = i / channels, k = i % channels;
        bool is_tap = pixel < pixels && v + pixel < layer->kernel_width;
        taps[i] =
            is_tap ? ((plane * 8 + k) * layer->kernel_height + u) * layer->kernel_width + v + pixel
                   : -1;
    }
    return plane * c->plane_bytes + (u * c->pitch + v) * 16;
}

// The weights of an atom, or of none, as half `half` of a step.
static void pack_atom(const struct conv_layer *layer, const struct wgmma_config *c,
                      const int (&taps)[8], int step, int half, const float *unscale,
                      uint16_t *weights)
{
    const struct wgmma_shape *s = &shapes[c->shape];
    size_t all = layer_tap_count(layer), maps = (size_t)s->blocks * 8,
           parts = s->products == 3 ? 2 : 1;
    for (size_t m = 0; m < (size_t)layer->maps; m++) {
        size_t at = ((m / maps * (size_t)c->steps + (size_t)step) * 2 + (size_t)half) * parts;
        uint16_t *to = weights + (at * maps + m % maps) * 8;
        for (int i = 0; i < 8; i++) {
            if (taps[i] < 0)
                continue;
            float w = layer->weights[m * all + (size_t)taps[i]] / unscale[m];
            to[i] = conv_half_from_float(w);
            if (parts == 2)
                to[(size_t)i + maps * 8] =
                    conv_half_from_float((w - conv_half_to_float(to[i])) * WGMMA_LO);
        }
    }
}

static void pack_products(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct wgmma_config *c = layer_constants<struct wgmma_config>(plan);
    const struct wgmma_shape *s = &shapes[c->shape];
    struct wgmma_parts parts = parts_of(layer, c);
    uint16_t *weights = (uint16_t *)plan->packed;
    float *bias = (float *)(void *)((char *)plan->packed + parts.weights);
    float *exact = (float *)(void *)((char *)bias + parts.bias);
    uint32_t *offsets = (uint32_t *)(void *)((char *)exact + parts.exact);
    size_t all = layer_tap_count(layer);
    int padded = c->chunks * s->blocks * 8;
    memcpy(exact, layer->weights, parts.exact);
    for (int m = 0; m < layer->maps; m++) {
        if (layer->bias)
            bias[m] = layer->bias[m];
        bias[padded + m] = 1 / half_scale(layer->weights + (size_t)m * all, all);
    }
    for (int step = 0; step < c->steps; step++) {
        // At the end, steps may have the last two atoms once more, with weights of 0.
        int first[8], second[8], begin = step * 2 < c->atoms - 2 ? step * 2 : c->atoms - 2;
        int at = find_atom(layer, c, begin, first);
        int distance = find_atom(layer, c, begin + 1, second) - at;
        offsets[step] = (uint32_t)at >> 4 | (uint32_t)distance >> 4 << 16;
        if (begin == step * 2)
            pack_atom(layer, c, first, step, 0, bias + padded, weights);
        if (step * 2 < c->atoms)
            pack_atom(layer, c, second, step, 1, bias + padded, weights);
    }
}

static enum conv_status run_wgmma(const struct conv_layer_plan *plan,
                                  const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct wgmma_config *c = layer_constants<struct wgmma_config>(plan);
    void (*kernel)(wgmma_launch) = shapes[c->shape].kernels[c->square];
    if (batch->images <= 0)
        return CONV_OK;
    struct wgmma_parts parts = parts_of(layer, c);
    wgmma_launch p = {};
    wgmma_set_launch(&p, plan, batch, c);
    p.m_tiles = c->m_tiles;
    p.m_across = c->m_across;
    p.m_row = c->m_row;
    p.m_column = c->m_column;
    p.steps = c->steps;
    const char *packed = (const char *)plan->d_packed;
    p.weights = (const uint16_t *)(const void *)packed;
    p.bias = (const float *)(const void *)(packed + parts.weights);
    p.exact = (const float *)(const void *)(packed + parts.weights + parts.bias);
    memcpy(p.offsets, (const char *)plan->packed + parts.weights + parts.bias + parts.exact,
           parts.offsets);
    int device, processors;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        layer_allow_shared_memory((const void *)kernel))
        return CONV_ERR_DEVICE;
    int64_t most = processors / c->chunks;
    most = most < 1 ? 1 : most;
    dim3 grid((unsigned)(p.tasks < most ? p.tasks : most), (unsigned)c->chunks);
    kernel<<<grid, WGMMA_THREADS, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(p);
    return layer_launch_status();
}

// If a sample has few products, splitting it into float16 parts does not pay off.
static bool is_worth_it(const struct conv_layer *layer)
{
    return layer->channels >= 3 && (double)layer->maps * (double)layer_tap_count(layer) >= 2000;
}

static int score_wgmma(const struct conv_layer_plan *plan)
{
    return is_worth_it(&plan->layer) ? 120 : 25;
}

// With few channels, reading samples is the limit, and three products have the better tiles.
static int score_half(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    return is_worth_it(layer) ? layer->channels >= 8 ? 130 : 115 : 25;
}

// Error in units of 2^-24: 36 from the operands, and 4 for each of at most 128 additions of the
// tensor cores, which truncate.
const struct conv_layer_variant conv_cuda_layer_wgmma = {
    "cuda_layer_wgmma",
    "tensor cores of Hopper, three float16 products of high and low parts",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_FAST,
    36 + 4 * WGMMA_MOST_STEPS,
    0,
    plan_products<3>,
    score_wgmma,
    pack_products,
    run_wgmma,
};

// Operands of 11 bits, like TF32's: an error of 2^-11 each.
const struct conv_layer_variant conv_cuda_layer_wgmma_half = {
    "cuda_layer_wgmma_half",
    "tensor cores of Hopper, one float16 product of scaled operands",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_TF32,
    16400 + 4 * WGMMA_MOST_STEPS,
    0,
    plan_products<1>,
    score_half,
    pack_products,
    run_wgmma,
};
