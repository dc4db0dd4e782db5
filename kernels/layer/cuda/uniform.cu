// SPDX-License-Identifier: MIT
// cuda_layer_uniform: the choice of an instance of uniform.cuh for a layer, and its launch.
#include <string.h>

#include "kernels/layer/cuda/uniform.cuh"

struct uniform_shape {
    int kernel_width, columns, maps, vector;
    bool whole; // rows of outputs are multiples of `columns`, which is one of 4
    int pieces;
    void (*kernel)(uniform_launch);
};

#define UNIFORM_INSTANCE(k, t, m, vx, whole, pieces, blocks)                                       \
    {                                                                                              \
        k, t, m, vx, whole, pieces, uniform<k, t, m, vx, whole, pieces, blocks>                    \
    }

static const struct uniform_shape shapes[] = {
    // The last number, blocks of a multiprocessor, limits registers: with more of them the compiler
    // reads weights into ordinary ones.
    UNIFORM_INSTANCE(5, 4, 12, 4, true, 1, 3),  UNIFORM_INSTANCE(5, 4, 10, 4, true, 1, 3),
    UNIFORM_INSTANCE(5, 4, 8, 4, true, 1, 4),   UNIFORM_INSTANCE(5, 4, 6, 4, true, 1, 4),
    UNIFORM_INSTANCE(5, 6, 12, 2, false, 1, 2), UNIFORM_INSTANCE(5, 6, 6, 2, false, 1, 3),
    UNIFORM_INSTANCE(5, 5, 8, 1, false, 1, 3),  UNIFORM_INSTANCE(3, 6, 8, 2, false, 1, 3),
    UNIFORM_INSTANCE(3, 5, 8, 1, false, 1, 3),  UNIFORM_INSTANCE(3, 4, 8, 4, true, 1, 4),
};

struct uniform_config {
    int shape, tiles, groups, group_images;
    float cost;
};

// `anywhere`: rows of input may begin at any sample.
static bool configure(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      bool anywhere, struct uniform_config *best)
{
    int out_height = conv_layer_out_height(layer, shape->height);
    int out_width = conv_layer_out_width(layer, shape->width);
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    bool found = false;
    if (layer->stride != 1 || layer->input != CONV_ELEMENT_F32 || layer->pad_top ||
        layer->pad_bottom || layer->pad_left || layer->pad_right)
        return false;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct uniform_shape *s = &shapes[i];
        struct uniform_config c;
        c.shape = (int)i;
        c.groups = ceil_div(layer->maps, s->maps);
        c.tiles = ceil_div(out_width, s->columns);
        if (s->kernel_width != layer->kernel_width || s->kernel_width != layer->kernel_height ||
            out_width < s->columns || (anywhere && s->vector > 1) ||
            (s->whole && (out_width % s->columns || layer->activation == CONV_ACTIVATION_TANH)) ||
            (!s->whole && out_width % s->vector) || (shape->width % s->vector) ||
            c.groups * s->maps * (taps + 1) > UNIFORM_FLOATS)
            continue;
        c.cost = (float)(c.tiles * s->columns * c.groups * s->maps) *
                 (1 + 1.0f / (float)s->columns + 0.3f / (float)s->maps + (s->whole ? 0 : 0.1f));
        // As many images as leave the last block of a group nearly full.
        int units = out_height * c.tiles;
        c.group_images = ceil_div(64 * UNIFORM_THREADS * s->pieces, units);
        if (!found || c.cost < best->cost) {
            *best = c;
            found = true;
        }
    }
    return found;
}

static bool can_uniform(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    struct uniform_config c;
    return conv_layer_out_height(layer, shape->height) > 0 &&
           conv_layer_out_width(layer, shape->width) > 0 && configure(layer, shape, true, &c) &&
           configure(layer, shape, false, &c);
}

// With up to 4 channels before cuda_layer_bulk (3 to 6 maps, 32 x 32, 5x5: 0.97 ms there, cuDNN
// 0.74).
static int score_uniform(const struct conv_layer *layer, const struct conv_layer_shape *)
{
    return layer->channels <= 4 ? 89 : layer->channels <= 8 ? 88 : 70;
}

static void plan_uniform(struct conv_layer_plan *plan)
{
    struct uniform_config *c = layer_constants<struct uniform_config>(plan);
    configure(plan->layer, &plan->shape, false, c);
}

static enum conv_status run_uniform(const struct conv_layer_plan *plan,
                                    const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = plan->layer;
    const struct uniform_config *c = layer_constants<struct uniform_config>(plan);
    if (batch->images <= 0)
        return CONV_OK;
    struct uniform_config anywhere;
    int bytes = shapes[c->shape].vector * 4;
    if (batch->src_row % bytes || batch->src_plane % bytes || batch->src_image % bytes) {
        configure(layer, &plan->shape, true, &anywhere);
        c = &anywhere;
    }
    const struct uniform_shape *s = &shapes[c->shape];
    struct uniform_launch p;
    p.src = batch->src;
    p.dst = batch->dst;
    p.src_row = batch->src_row;
    p.src_plane = batch->src_plane;
    p.src_image = batch->src_image;
    p.images = batch->images;
    p.out_height = conv_layer_out_height(layer, plan->shape.height);
    p.out_width = conv_layer_out_width(layer, plan->shape.width);
    p.tiles = c->tiles;
    p.channels = layer->channels;
    p.maps = layer->maps;
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    int taps = layer->channels * layer->kernel_height * layer->kernel_width;
    for (int m = 0; m < c->groups * s->maps; m++) {
        float *to = (float *)p.weights + m / s->maps * (taps + 1) * s->maps + m % s->maps;
        to[0] = layer->bias && m < layer->maps ? layer->bias[m] : 0;
        for (int t = 0; t < taps; t++)
            to[(t + 1) * s->maps] = m < layer->maps ? layer->weights[m * taps + t] : 0;
    }
    p.group_images = (int)(c->group_images < batch->images ? c->group_images : batch->images);
    p.group_blocks = ceil_div(p.group_images * p.out_height * p.tiles, UNIFORM_THREADS * s->pieces);
    int64_t blocks = ceil_div64(batch->images, p.group_images) * p.group_blocks;
    dim3 grid((unsigned)blocks, (unsigned)c->groups);
    void (*kernel)(uniform_launch) = s->kernel;
    kernel<<<grid, UNIFORM_THREADS, 0, (cudaStream_t)batch->stream>>>(p);
    return layer_launch_status();
}

const struct conv_layer_variant conv_cuda_layer_uniform = {
    "cuda_layer_uniform",
    "columns and maps in registers, weights in uniform registers, whole sectors stored",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    true,
    can_uniform,
    score_uniform,
    NULL,
    plan_uniform,
    run_uniform,
};
