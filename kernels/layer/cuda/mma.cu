// SPDX-License-Identifier: MIT
// cuda_layer_mma_half: the choice of an instance of layer_mma.cuh, the weights as it reads them,
// and its launch.
#include <math.h>
#include <string.h>

#include "kernels/layer/cuda/half_scale.cuh"
#include "kernels/layer/cuda/layer_mma.cuh"
#include "tensor/half.h"

#define MOST_SHARED (98 << 10) // two blocks on compute capability 9.0, one on 8.6 and later

struct mma_shape {
    int outputs, maps; // of a warp, in units of 16 and 8
    void (*kernel)(mma_launch);
};

static const struct mma_shape shapes[] = {
    {4, 4, mma<4, 4>},
    {4, 3, mma<4, 3>},
    {4, 2, mma<4, 2>},
    {4, 1, mma<4, 1>},
};

struct mma_config {
    int shape, chunks, planes, last_pixels, atoms, steps;
    int strip_rows, image_strips, in_rows, in_width, plane_bytes, shared_bytes;
};

// The taps that an atom covers: plane, kernel row and first column, and how many columns.
static int row_atoms(const struct conv_layer *layer, const struct mma_config *c)
{
    int full = layer->channels / 8 * layer->kernel_width;
    return full + (layer->channels % 8 ? ceil_div(layer->kernel_width, c->last_pixels) : 0);
}

static bool fill_config(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                        int index, struct mma_config *c)
{
    const struct mma_shape *s = &shapes[index];
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width), rest = layer->channels % 8;
    c->shape = index;
    c->chunks = ceil_div(layer->maps, s->maps * 8);
    c->planes = ceil_div(layer->channels, 8);
    c->last_pixels = rest ? 8 / rest : 1;
    c->atoms = row_atoms(layer, c) * layer->kernel_height;
    c->steps = ceil_div(c->atoms, 2);
    c->in_width = (out_width - 1) * layer->stride + layer->kernel_width;
    int64_t weights = (int64_t)c->steps * s->maps * 256;
    for (int strips = 1; strips <= out_height; strips++) {
        c->strip_rows = ceil_div(out_height, strips);
        c->image_strips = ceil_div(out_height, c->strip_rows);
        c->in_rows = (c->strip_rows - 1) * layer->stride + layer->kernel_height;
        int64_t plane = (int64_t)c->planes * c->in_rows * c->in_width * 16;
        int64_t bytes = plane + weights + c->steps * 8 + 2 * MMA_WARPS * 4 + 256;
        // Blocks of a wide image are as large as possible.
        if (bytes <= MOST_SHARED) {
            c->plane_bytes = (int)plane;
            c->shared_bytes = (int)bytes;
            return true;
        }
    }
    return false;
}

static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      struct mma_config *best)
{
    bool found = false;
    float least = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct mma_config c;
        const struct mma_shape *s = &shapes[i];
        if (!fill_config(layer, shape, (int)i, &c))
            continue;
        int outputs = c.strip_rows * conv_layer_out_width(layer, shape->width);
        int rounds = ceil_div(outputs, s->outputs * 16);
        float cost =
            (float)(c.chunks * s->maps) * (float)c.image_strips *
            (float)((rounds < MMA_WARPS ? rounds : ceil_div(rounds, MMA_WARPS) * MMA_WARPS) *
                    s->outputs) *
            (1 + 1.0f / (float)s->maps + 0.5f / (float)s->outputs);
        if (!found || cost < least) {
            found = true;
            least = cost;
            *best = c;
        }
    }
    return found;
}

// Bytes of each part of the packed weights.
struct mma_parts {
    size_t weights, bias, exact, offsets;
};

static struct mma_parts parts_of(const struct conv_layer *layer, const struct mma_config *c)
{
    const struct mma_shape *s = &shapes[c->shape];
    struct mma_parts parts;
    parts.weights = (size_t)c->chunks * (size_t)c->steps * (size_t)s->maps * 256;
    parts.bias = (size_t)(c->chunks * s->maps * 8) * 2 * sizeof(float);
    parts.exact = (size_t)layer->maps * layer_tap_count(layer) * sizeof(float);
    parts.offsets = (size_t)c->steps * 2 * sizeof(int);
    return parts;
}

static bool plan_mma(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    struct mma_config *c = layer_constants<struct mma_config>(plan);
    if (conv_layer_out_height(layer, shape->height) <= 0 ||
        conv_layer_out_width(layer, shape->width) <= 0 || !configure(layer, shape, c) ||
        c->steps > 64 || !half_scales_exist(layer))
        return false;
    struct mma_parts parts = parts_of(layer, c);
    plan->packed_bytes = parts.weights + parts.bias + parts.exact + parts.offsets;
    return true;
}

// Atom `index` of the layer: its place, and the tap of each of its 8 numbers (-1: none).
static int find_atom(const struct conv_layer *layer, const struct mma_config *c, int index,
                     int (&taps)[8])
{
    int across = row_atoms(layer, c), u = index / across, rest = index % across;
    int full = layer->channels / 8 * layer->kernel_width;
    int pixels = rest < full ? 1 : c->last_pixels;
    int plane = rest < full ? rest / layer->kernel_width : layer->channels / 8;
    int v = rest < full ? rest % layer->kernel_width : (rest - full) * pixels;
    int channels = rest < full ? 8 : layer->channels % 8;
    for (int i = 0; i < 8; i++) {
        int pixel = pixels == 1 ? 0 : i / channels, k = i - pixel * channels;
        bool is_tap =
            index < c->atoms && k < channels && pixel < pixels && v + pixel < layer->kernel_width;
        taps[i] =
            is_tap ? ((plane * 8 + k) * layer->kernel_height + u) * layer->kernel_width + v + pixel
                   : -1;
    }
    return index < c->atoms ? ((plane * c->in_rows + u) * c->in_width + v) * 16 : 0;
}

static void pack_mma(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct mma_config *c = layer_constants<struct mma_config>(plan);
    const struct mma_shape *s = &shapes[c->shape];
    struct mma_parts parts = parts_of(layer, c);
    uint16_t *weights = (uint16_t *)plan->packed;
    float *bias = (float *)(void *)((char *)plan->packed + parts.weights);
    float *exact = (float *)(void *)((char *)bias + parts.bias);
    int *offsets = (int *)(void *)((char *)exact + parts.exact);
    size_t all = layer_tap_count(layer);
    int padded = c->chunks * s->maps * 8;
    memcpy(exact, layer->weights, parts.exact);
    for (int m = 0; m < layer->maps; m++) {
        if (layer->bias)
            bias[m] = layer->bias[m];
        bias[padded + m] = 1 / half_scale(layer->weights + (size_t)m * all, all);
    }
    for (int index = 0; index < c->steps * 2; index++) {
        int taps[8], step = index / 2;
        offsets[index] = find_atom(layer, c, index, taps);
        for (int m = 0; m < layer->maps; m++) {
            int chunk = m / (s->maps * 8), n = m / 8 % s->maps;
            uint16_t *to =
                weights +
                ((((size_t)chunk * (size_t)c->steps + (size_t)step) * (size_t)s->maps + (size_t)n) *
                     2 +
                 (size_t)(index % 2)) *
                    64 +
                m % 8 * 8;
            for (int i = 0; i < 8; i++)
                if (taps[i] >= 0)
                    to[i] = conv_half_from_float(layer->weights[(size_t)m * all + (size_t)taps[i]] /
                                                 bias[padded + m]);
        }
    }
}

static void fill_launch(const struct conv_layer_plan *plan, const struct conv_layer_batch *batch,
                        const struct mma_config *c, struct mma_launch *p)
{
    const struct conv_layer *layer = &plan->layer;
    struct mma_parts parts = parts_of(layer, c);
    const char *packed = (const char *)plan->d_packed;
    layer_set_sizes(p, plan, batch);
    layer_set_border(p, layer);
    p->dst = batch->dst;
    p->weights = (const uint16_t *)(const void *)packed;
    p->bias = (const float *)(const void *)(packed + parts.weights);
    p->exact = (const float *)(const void *)(packed + parts.weights + parts.bias);
    p->offsets = (const int *)(const void *)(packed + parts.weights + parts.bias + parts.exact);
    p->kernel_width = layer->kernel_width;
    p->stride = layer->stride;
    p->padded = layer->pad_top || layer->pad_bottom || layer->pad_left || layer->pad_right;
    p->activation = (int)layer->activation;
    p->half = layer->output == CONV_ELEMENT_F16;
    p->bytes = layer->input == CONV_ELEMENT_U8;
    p->strip_rows = c->strip_rows;
    p->image_strips = c->image_strips;
    p->in_rows = c->in_rows;
    p->in_width = c->in_width;
    p->planes = c->planes;
    p->last_pixels = c->last_pixels;
    p->steps = c->steps;
    p->chunks = c->chunks;
    p->plane_bytes = c->plane_bytes;
}

static enum conv_status run_mma(const struct conv_layer_plan *plan,
                                const struct conv_layer_batch *batch)
{
    const struct mma_config *c = layer_constants<struct mma_config>(plan);
    const struct mma_shape *s = &shapes[c->shape];
    if (batch->images <= 0)
        return CONV_OK;
    struct mma_launch p;
    fill_launch(plan, batch, c, &p);
    if (layer_allow_shared_memory((const void *)s->kernel))
        return CONV_ERR_DEVICE;
    dim3 grid((unsigned)(batch->images * c->image_strips));
    void (*kernel)(mma_launch) = s->kernel;
    kernel<<<grid, MMA_THREADS, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(p);
    return layer_launch_status();
}

// Filling shared memory takes as long as the exact order: it is worth it if each sample is used
// often.
static int score_half(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    return layer->channels <= 4 && layer->maps >= 32 && layer_tap_count(layer) >= 120 ? 110 : 30;
}

// Operands of 11 bits, like TF32's: an error of 2^-11 each; 4 units of 2^-24 for each of at most 64
// additions of tensor cores, which truncate.
const struct conv_layer_variant conv_cuda_layer_mma_half = {
    "cuda_layer_mma_half",
    "tensor cores, one float16 product of scaled operands",
    CONV_ON_CUDA,
    80,
    CONV_PRECISION_TF32,
    16400 + 4 * 64,
    true,
    plan_mma,
    score_half,
    pack_mma,
    run_mma,
};
