// SPDX-License-Identifier: MIT
// Shared by the textbook kernels of the ladder: a launch in samples, weights and bias in device
// memory, one thread per output.
#pragma once

#include <cuda_runtime.h>
#include <string.h>

#include "kernels/ladder/ladder.h"
#include "kernels/layer/layer.h"

#define LADDER_SIDE 16                   // of a block and its tile of outputs
#define LADDER_SHARED ((size_t)48 << 10) // bytes that every block can use without an attribute
// Weights that fit into kernel parameters, 4 KB, together with a struct ladder. Parameters are
// constant memory, which is not shared between streams: there is no variable to protect.
#define LADDER_CONSTANT 960

// A launch. Strides are in samples.
struct ladder {
    const float *x;
    int64_t image, plane, row;
    float *y;             // [images][maps][out_height][out_width]
    const float *weights; // [maps][channels][kernel_height][kernel_width]
    const float *bias;    // [maps]
    int64_t images;
    int channels, maps, kernel_height, kernel_width, stride, out_height, out_width;
    int tiles_x; // of a plane of outputs
    int activation;
};

struct ladder_constant {
    float weights[LADDER_CONSTANT];
};

static inline size_t ladder_taps(const struct conv_layer *layer) // of one map
{
    return (size_t)layer->channels * (size_t)layer->kernel_height * (size_t)layer->kernel_width;
}

// Packs the weights unchanged, then the bias.
static inline void ladder_pack(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    size_t weights = (size_t)layer->maps * ladder_taps(layer);
    float *packed = (float *)plan->packed;
    memcpy(packed, layer->weights, weights * sizeof *packed);
    for (int m = 0; m < layer->maps; m++)
        packed[weights + (size_t)m] = layer->bias ? layer->bias[m] : 0;
}

static inline bool ladder_can(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    return layer->output == CONV_ELEMENT_F32 && layer->maps <= 65535 &&
           (int64_t)shape->height * shape->width <= INT32_MAX / 4;
}

// Rows and columns of the input that a tile of outputs reads.
static CONV_HOST_DEVICE inline int ladder_reach(int side, int stride, int kernel)
{
    return (side - 1) * stride + kernel;
}

// The channels of which a block has its tile of the input in shared memory.
enum ladder_tiles { LADDER_NO_TILE, LADDER_ONE_CHANNEL, LADDER_ALL_CHANNELS };

template <enum ladder_tiles TILES>
static inline size_t ladder_tile_bytes(const struct conv_layer *layer)
{
    size_t channels = TILES == LADDER_ALL_CHANNELS ? (size_t)layer->channels : (size_t)TILES;
    return channels * (size_t)ladder_reach(LADDER_SIDE, layer->stride_x, layer->kernel_height) *
           (size_t)ladder_reach(LADDER_SIDE, layer->stride_x, layer->kernel_width) * sizeof(float);
}

template <enum ladder_tiles TILES>
static bool ladder_can_tile(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    return ladder_can(layer, shape) && (TILES == LADDER_NO_TILE || layer->stride_x <= 16) &&
           ladder_tile_bytes<TILES>(layer) <= LADDER_SHARED;
}

// The same with the weights of at least one map in constant memory.
template <enum ladder_tiles TILES>
static bool ladder_can_constant(const struct conv_layer *layer,
                                const struct conv_layer_shape *shape)
{
    return ladder_can_tile<TILES>(layer, shape) && ladder_taps(layer) <= LADDER_CONSTANT;
}

// The plan of a variant that does what CAN allows.
template <bool (*CAN)(const struct conv_layer *layer, const struct conv_layer_shape *shape)>
static bool ladder_plan(struct conv_layer_plan *plan)
{
    plan->packed_bytes = (size_t)plan->layer.maps * (ladder_taps(&plan->layer) + 1) * sizeof(float);
    return CAN(&plan->layer, &plan->shape);
}

template <int SCORE> static int ladder_score(const struct conv_layer_plan *)
{
    return SCORE;
}

static inline struct ladder ladder_of(const struct conv_layer_plan *plan,
                                      const struct conv_layer_batch *batch, int tile_width)
{
    const struct conv_layer *layer = &plan->layer;
    const float *packed = (const float *)plan->d_packed;
    struct ladder ladder = {};
    ladder.x = (const float *)batch->src;
    ladder.image = batch->src_image / (int64_t)sizeof(float);
    ladder.plane = batch->src_plane / (int64_t)sizeof(float);
    ladder.row = batch->src_row / (int64_t)sizeof(float);
    ladder.y = (float *)batch->dst;
    ladder.weights = packed;
    ladder.bias = packed + (size_t)layer->maps * ladder_taps(layer);
    ladder.images = batch->images;
    ladder.channels = layer->channels;
    ladder.maps = layer->maps;
    ladder.kernel_height = layer->kernel_height;
    ladder.kernel_width = layer->kernel_width;
    ladder.stride = layer->stride_x;
    ladder.out_height = conv_layer_out_height(layer, plan->shape.height);
    ladder.out_width = conv_layer_out_width(layer, plan->shape.width);
    ladder.tiles_x = (ladder.out_width - 1) / tile_width + 1;
    ladder.activation = (int)layer->activation;
    return ladder;
}

// The blocks of one image and of `planes` planes each; a block also computes later images.
static inline dim3 ladder_grid(const struct ladder *ladder, int tile_height, int planes)
{
    int tiles_y = (ladder->out_height - 1) / tile_height + 1;
    return dim3((unsigned)(ladder->tiles_x * tiles_y), (unsigned)planes,
                (unsigned)(ladder->images < 65535 ? ladder->images : 65535));
}

static inline enum conv_status ladder_status(void)
{
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

// Launches once for each group of maps whose weights fit into parameters.
template <typename Launch>
static enum conv_status ladder_groups(const struct conv_layer_plan *plan, const Launch &launch)
{
    const struct conv_layer *layer = &plan->layer;
    size_t taps = ladder_taps(layer);
    int group = (int)(LADDER_CONSTANT / taps);
    const float *weights = (const float *)plan->packed;
    for (int first = 0; first < layer->maps; first += group) {
        int count = layer->maps - first < group ? layer->maps - first : group;
        struct ladder_constant constant;
        memcpy(constant.weights, weights + (size_t)first * taps,
               (size_t)count * taps * sizeof(float));
        launch(constant, first, count);
        if (ladder_status())
            return CONV_ERR_DEVICE;
    }
    return CONV_OK;
}

// Launches a kernel of blocks of 16 x 16 outputs of one map.
template <void (*KERNEL)(struct ladder), enum ladder_tiles TILES>
static enum conv_status ladder_run(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    struct ladder ladder = ladder_of(plan, batch, LADDER_SIDE);
    dim3 grid = ladder_grid(&ladder, LADDER_SIDE, ladder.maps), block(LADDER_SIDE, LADDER_SIDE);
    KERNEL<<<grid, block, ladder_tile_bytes<TILES>(&plan->layer), (cudaStream_t)batch->stream>>>(
        ladder);
    return ladder_status();
}

// The same for each group of maps; the kernel's last argument is the first of them.
template <void (*KERNEL)(struct ladder, struct ladder_constant, int), enum ladder_tiles TILES>
static enum conv_status ladder_run(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    struct ladder ladder = ladder_of(plan, batch, LADDER_SIDE);
    size_t bytes = ladder_tile_bytes<TILES>(&plan->layer);
    return ladder_groups(plan, [&](const struct ladder_constant &weights, int first, int count) {
        dim3 grid = ladder_grid(&ladder, LADDER_SIDE, count), block(LADDER_SIDE, LADDER_SIDE);
        KERNEL<<<grid, block, bytes, (cudaStream_t)batch->stream>>>(ladder, weights, first);
    });
}

// Defines a row of the table, cuda_layer_NAME.
#define LADDER_VARIANT(NAME, SUMMARY, PRECISION, BOUND, PLAN, SCORE, RUN)                          \
    const struct conv_layer_variant conv_cuda_layer_##NAME = {                                     \
        "cuda_layer_" #NAME,                                                                       \
        SUMMARY,                                                                                   \
        CONV_ON_CUDA,                                                                              \
        75,                                                                                        \
        CONV_PRECISION_##PRECISION,                                                                \
        BOUND,                                                                                     \
        0,                                                                                         \
        PLAN,                                                                                      \
        ladder_score<SCORE>,                                                                       \
        ladder_pack,                                                                               \
        RUN,                                                                                       \
    }

// --- in kernels ----------------------------------------------------------------------------------

static __device__ inline void ladder_store(const struct ladder &ladder, int64_t image, int map,
                                           int i, int j, float sum)
{
    int64_t plane = image * ladder.maps + map;
    ladder.y[(plane * ladder.out_height + i) * ladder.out_width + j] =
        conv_layer_activate((enum conv_activation)ladder.activation, sum);
}

// Loads `height` x `width` samples from row `top`, column `left` of a plane on; samples beyond
// `rows` and `columns` are not needed by any output of the image.
static __device__ inline void ladder_load(float *tile, const float *plane, int64_t row, int top,
                                          int left, int height, int width, int rows, int columns)
{
    int threads = (int)(blockDim.x * blockDim.y);
    for (int t = (int)(threadIdx.y * blockDim.x + threadIdx.x); t < height * width; t += threads) {
        int y = top + t / width, x = left + t % width;
        if (y < rows && x < columns)
            tile[t] = plane[y * row + x];
    }
}
