// SPDX-License-Identifier: MIT
// cuda_layer_points_wgmma and cuda_layer_points_tf32: choose an instance of points_wgmma.cuh, pack
// the weights, and launch it.
#include <math.h>
#include <string.h>

#include "kernels/layer/cuda/points_wgmma.cuh"

// Without machine code for 9.0a, no device can run it.
#define NEEDS (CONV_HAVE_WGMMA ? CONV_CUDA_ONLY + 90 : CONV_CUDA_ONLY)

#define SHARED (227 << 10)     // of a multiprocessor, for a block
#define MOST_CHANNELS 512      // for the bound
#define MOST_OUTPUTS (1 << 27) // of an image
#define FEW 65536              // positions of a launch

struct panel_shape {
    int maps, products, groups; // of a chunk; warpgroups
    void (*kernel)(panel_launch);
};

#define SHAPE(maps, products)                                                                      \
    {                                                                                              \
        maps, products, PANEL_GROUPS(maps), points_panels<maps, products>                          \
    }
static const struct panel_shape shapes[] = {
    SHAPE(128, 3), SHAPE(64, 3), SHAPE(32, 3), SHAPE(16, 3),
    SHAPE(128, 1), SHAPE(64, 1), SHAPE(32, 1), SHAPE(16, 1),
};

// Values derived from a layer; a plan's constants.
struct panel_config {
    int shape, chunks, steps, stages, weight_bytes, shared_bytes; // weight_bytes: of a chunk
};

// Completes a configuration whose shape is set; false if it needs too much memory.
static bool fill_config(const struct conv_layer *layer, struct panel_config *c)
{
    const struct panel_shape *s = &shapes[c->shape];
    c->chunks = ceil_div(layer->maps, s->maps);
    c->steps = ceil_div(layer->channels, RING_CHANNELS) * 2;
    c->weight_bytes = c->steps * (s->products == 3 ? 2 : 1) * s->maps * 32;
    int fixed =
        c->weight_bytes + s->maps * (int)sizeof(float) + s->groups * (int)sizeof(ring_barriers);
    int stages = (SHARED - fixed) / (s->groups * PANEL_STAGE);
    c->stages = stages < RING_MOST_STAGES ? stages : RING_MOST_STAGES;
    c->shared_bytes = fixed + c->stages * s->groups * PANEL_STAGE;
    return c->stages >= 2;
}

// The instance that computes fewest maps; a chunk costs as much as 32 more, since it reads the
// samples again.
static bool configure(const struct conv_layer *layer, int products, struct panel_config *best)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct panel_config c = {};
        c.shape = (int)i;
        if (shapes[i].products != products || !fill_config(layer, &c))
            continue;
        int64_t cost = (int64_t)c.chunks * (shapes[i].maps + 32);
        if (cost < least) {
            least = cost;
            *best = c;
        }
    }
    return least < INT64_MAX;
}

// Magnitudes of samples are compared with the same limits.
static bool weights_are_usual(const struct conv_layer *layer)
{
    size_t count = (size_t)layer->maps * (size_t)layer->channels;
    for (size_t i = 0; i < count; i++) {
        float magnitude = fabsf(layer->weights[i]);
        if (magnitude != 0 && !(magnitude >= 0x1p-50f && magnitude <= 0x1p50f))
            return false;
    }
    return true;
}

// Bytes of each part of the packed weights.
struct panel_parts {
    size_t weights, bias, exact;
};

static struct panel_parts parts_of(const struct conv_layer *layer, const struct panel_config *c)
{
    struct panel_parts parts;
    parts.weights = (size_t)c->chunks * (size_t)c->weight_bytes;
    parts.bias = (size_t)(c->chunks * shapes[c->shape].maps) * sizeof(float);
    parts.exact = (size_t)layer->maps * (size_t)layer->channels * sizeof(float);
    return parts;
}

template <int PRODUCTS> static bool plan_products(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    struct panel_config *c = layer_constants<struct panel_config>(plan);
    if (layer->kernel_height != 1 || layer->kernel_width != 1 || layer->stride != 1 ||
        layer->channels > MOST_CHANNELS || layer->maps > 1 << 20 || shape->height <= 0 ||
        shape->width <= 0 ||
        (int64_t)shape->height * shape->width > MOST_OUTPUTS / (layer->maps + 8) ||
        !configure(layer, PRODUCTS, c) || c->chunks >= 65536 || !weights_are_usual(layer))
        return false;
    struct panel_parts parts = parts_of(layer, c);
    plan->packed_bytes = parts.weights + parts.bias + parts.exact;
    return true;
}

// The nearest number of 11 bits. The kernel rounds samples in the same way.
static float round_tf32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x1000) & 0xffffe000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static void pack_products(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct panel_config *c = layer_constants<struct panel_config>(plan);
    struct panel_parts parts = parts_of(layer, c);
    float *weights = (float *)plan->packed;
    float *bias = (float *)(void *)((char *)plan->packed + parts.weights);
    memcpy((char *)bias + parts.bias, layer->weights, parts.exact);
    size_t maps = (size_t)shapes[c->shape].maps, halves = shapes[c->shape].products == 3 ? 2 : 1;
    for (size_t m = 0; m < (size_t)layer->maps; m++) {
        if (layer->bias)
            bias[m] = layer->bias[m];
        for (size_t k = 0; k < (size_t)layer->channels; k++) {
            float w = layer->weights[m * (size_t)layer->channels + k];
            float *to = weights +
                        ((m / maps * (size_t)c->steps * 2 + k / 4) * halves * maps + m % maps) * 4 +
                        k % 4;
            to[0] = round_tf32(w);
            if (halves == 2)
                to[maps * 4] = round_tf32(w - to[0]);
        }
    }
}

static enum conv_status run_panels(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    const struct panel_config *c = layer_constants<struct panel_config>(plan);
    void (*kernel)(panel_launch) = shapes[c->shape].kernel;
    if (batch->images <= 0)
        return CONV_OK;
    struct panel_parts parts = parts_of(layer, c);
    const char *packed = (const char *)plan->d_packed;
    panel_launch p = {};
    p.dst = batch->dst;
    p.weights = (const uint32_t *)(const void *)packed;
    p.bias = (const float *)(const void *)(packed + parts.weights);
    p.exact = (const float *)(const void *)(packed + parts.weights + parts.bias);
    p.maps = layer->maps;
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    int device, processors;
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        layer_allow_shared_memory((const void *)kernel))
        return CONV_ERR_DEVICE;
    int groups = shapes[c->shape].groups;
    int64_t positions = batch->images * plan->shape.height * plan->shape.width;
    int64_t most = processors / c->chunks, blocks = ceil_div64(positions, groups * RING_LEAST);
    blocks = blocks < most ? blocks : most > 1 ? most : 1;
    p.in = ring_source_of(plan, batch, c->stages, blocks * groups, PANEL);
    dim3 grid((unsigned)blocks, (unsigned)c->chunks);
    int threads = (groups + 1) * 128;
    kernel<<<grid, threads, (size_t)c->shared_bytes, (cudaStream_t)batch->stream>>>(p);
    return layer_launch_status();
}

// With fewer than 8 channels half of a step or more is unused, and exact variants are as fast; with
// up to 16 they are in launches of few positions.
static bool is_worth_it(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    int64_t positions = (int64_t)shape->height * shape->width;
    bool few = shape->images > 0 && shape->images < FEW && shape->images * positions < FEW;
    return layer->channels > 16 || (layer->channels >= 8 && !few);
}

static int score_panels(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    return is_worth_it(layer, shape) ? 126 : 25;
}

static int score_tf32(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    return is_worth_it(layer, shape) ? 136 : 25;
}

// Error in units of 2^-24: 12 from the operands, and 4 for each of three additions of the tensor
// cores per 8 channels, which truncate.
const struct conv_layer_variant conv_cuda_layer_points_wgmma = {
    "cuda_layer_points_wgmma",
    "1x1 kernels on tensor cores of Hopper, three TF32 products, samples in registers",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_FAST,
    12 + 4 * 3 * MOST_CHANNELS / 8,
    false,
    plan_products<3>,
    score_panels,
    pack_products,
    run_panels,
};

// Operands of 11 bits: 2^-11 each.
const struct conv_layer_variant conv_cuda_layer_points_tf32 = {
    "cuda_layer_points_tf32",
    "1x1 kernels on tensor cores of Hopper, one TF32 product, samples in registers",
    CONV_ON_CUDA,
    NEEDS,
    CONV_PRECISION_TF32,
    16400 + 4 * MOST_CHANNELS / 8,
    false,
    plan_products<1>,
    score_tf32,
    pack_products,
    run_panels,
};
