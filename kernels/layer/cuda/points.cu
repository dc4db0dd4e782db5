// SPDX-License-Identifier: MIT
// cuda_layer_points: layers with 1x1 kernels, which are limited by memory. The positions of a plane
// follow each other, so a warp reads and writes whole lines whatever the width of an image.
#include <string.h>

#include "kernels/layer/cuda/layer_device.cuh"

#define POINTS 4 // positions of a thread
#define TILE (32 * POINTS)
#define MOST_WARPS 8
#define RESIDENT_WARPS 32      // of a multiprocessor, about
#define MOST_SHARED (48 << 10) // bytes of weights: the default limit of a block

struct points_launch {
    const void *src;
    void *dst;
    const float *weights;                  // [group][MAPS] of bias, then [group][channel][MAPS]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t tasks;                         // tiles of all images
    int tiles, positions;                  // of an image
    int width, channels, maps, groups;
    int activation, half;
};

// Applies the activation to a thread's outputs and stores those of the first `maps` maps.
template <int MAPS, bool VECTOR, typename Output>
__device__ inline void points_store(const points_launch &p, float (&sum)[MAPS][POINTS], Output *to,
                                    int maps, int first)
{
    if (p.activation == CONV_ACTIVATION_TANH) {
#pragma unroll
        for (int m = 0; m < MAPS; m++)
#pragma unroll
            for (int k = 0; k < POINTS; k++)
                sum[m][k] = layer_tanh<0>(sum[m][k]);
    }
    activate_outputs(p.activation, sum);
#pragma unroll
    for (int m = 0; m < MAPS; m++, to += p.positions) {
        if (m >= maps)
            break;
        if (VECTOR) {
            if (first < p.positions)
                layer_store4(to + first, make_float4(sum[m][0], sum[m][1], sum[m][2], sum[m][3]));
        } else {
#pragma unroll
            for (int k = 0; k < POINTS; k++)
                if (first + k * 32 < p.positions)
                    layer_store(to + first + k * 32, sum[m][k]);
        }
    }
}

// The samples of a thread in one channel.
template <bool VECTOR>
__device__ inline void points_read(float (&x)[POINTS], const char *plane,
                                   const int64_t (&at)[VECTOR ? 1 : POINTS])
{
    if (VECTOR) {
        float4 v = __ldg((const float4 *)(const void *)(plane + at[0]));
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
#pragma unroll
        for (int k = 0; k < POINTS; k++)
            x[k] = __ldg((const float *)(const void *)(plane + at[k]));
    }
}

// Blocks take tiles of TILE positions in turn. Its warps compute different groups of MAPS maps of
// the same tile at about the same time, so that one of them reads samples from memory and the
// others find them in the L1 cache. VECTOR: a thread's positions are neighbours, else 32 apart.
// Shared memory: the packed weights.
template <int MAPS, bool VECTOR>
static __global__ __launch_bounds__(32 *
                                    MOST_WARPS) void points(const __grid_constant__ points_launch p)
{
    extern __shared__ __align__(16) float points_weights[];
    int floats = p.groups * MAPS * (1 + p.channels), lane = (int)threadIdx.x % 32;
    for (int i = (int)threadIdx.x * 4; i < floats; i += (int)blockDim.x * 4)
        *(float4 *)(void *)(points_weights + i) =
            __ldg((const float4 *)(const void *)(p.weights + i));
    __syncthreads();
    for (int64_t task = blockIdx.x; task < p.tasks; task += gridDim.x) {
        int64_t image = task / p.tiles, at[VECTOR ? 1 : POINTS];
        int first = (int)(task - image * p.tiles) * TILE + lane * (VECTOR ? POINTS : 1);
        const char *src = (const char *)p.src + image * p.src_image;
#pragma unroll
        for (int k = 0; k < (VECTOR ? 1 : POINTS); k++) {
            int q = min(first + k * 32, p.positions - (VECTOR ? POINTS : 1));
            int row = VECTOR ? 0 : q / p.width;
            at[k] = row * p.src_row + (q - row * p.width) * (int64_t)sizeof(float);
        }
        for (int group = (int)threadIdx.x / 32; group < p.groups; group += (int)blockDim.x / 32) {
            const float *bias = points_weights + group * MAPS;
            const float *weight = points_weights + (p.groups + group * p.channels) * MAPS;
            float sum[MAPS][POINTS];
#pragma unroll
            for (int m = 0; m < MAPS; m++)
#pragma unroll
                for (int k = 0; k < POINTS; k++)
                    sum[m][k] = bias[m];
            const char *plane = src;
#pragma unroll 4
            for (int c = 0; c < p.channels; c++, plane += p.src_plane, weight += MAPS) {
                float x[POINTS], w[MAPS];
                points_read<VECTOR>(x, plane, at);
                layer_read<MAPS, 4>(w, weight);
#pragma unroll
                for (int m = 0; m < MAPS; m++)
#pragma unroll
                    for (int k = 0; k < POINTS; k++)
                        sum[m][k] = fmaf(w[m], x[k], sum[m][k]);
            }
            int64_t to = (image * p.maps + group * MAPS) * p.positions;
            int maps = p.maps - group * MAPS;
            if (p.half)
                points_store<MAPS, VECTOR>(p, sum, (uint16_t *)p.dst + to, maps, first);
            else
                points_store<MAPS, VECTOR>(p, sum, (float *)p.dst + to, maps, first);
        }
    }
}

// Maps of a warp: 4 if 8 would leave half a group without maps.
static int group_maps(const struct conv_layer *layer)
{
    return (layer->maps + 3) / 4 % 2 ? 4 : 8;
}

static size_t packed_points(const struct conv_layer *layer, const struct conv_layer_shape *)
{
    int maps = group_maps(layer);
    return (size_t)ceil_div(layer->maps, maps) * (size_t)maps * (1 + (size_t)layer->channels) *
           sizeof(float);
}

static bool can_points(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    return layer->kernel_height == 1 && layer->kernel_width == 1 && layer->stride == 1 &&
           shape->height > 0 && shape->width > 0 &&
           (int64_t)shape->height * shape->width < INT32_MAX - TILE &&
           packed_points(layer, shape) <= MOST_SHARED;
}

static int score_points(const struct conv_layer *, const struct conv_layer_shape *)
{
    return 95;
}

static void plan_points(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = plan->layer;
    int maps = group_maps(layer), groups = ceil_div(layer->maps, maps), channels = layer->channels;
    float *packed = (float *)plan->packed;
    memset(packed, 0, plan->packed_bytes);
    for (int m = 0; m < layer->maps; m++) {
        if (layer->bias)
            packed[m] = layer->bias[m];
        float *to = packed + (groups + m / maps * channels) * maps + m % maps;
        for (int c = 0; c < channels; c++)
            to[c * maps] = layer->weights[m * channels + c];
    }
}

template <int MAPS, bool VECTOR>
static enum conv_status launch(const points_launch &p, size_t shared, cudaStream_t stream)
{
    int device, processors, warps = p.groups < MOST_WARPS ? p.groups : MOST_WARPS;
    // Equal numbers of groups per warp: for 9 groups 5 warps with two turns, not 8.
    warps = ceil_div(p.groups, ceil_div(p.groups, warps));
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device))
        return CONV_ERR_DEVICE;
    int64_t most = (int64_t)processors * ceil_div(RESIDENT_WARPS, warps);
    points<MAPS, VECTOR>
        <<<(unsigned)(p.tasks < most ? p.tasks : most), (unsigned)warps * 32, shared, stream>>>(p);
    return layer_launch_status();
}

static enum conv_status run_points(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = plan->layer;
    if (batch->images <= 0)
        return CONV_OK;
    int maps = group_maps(layer), width = plan->shape.width;
    struct points_launch p;
    p.src = batch->src;
    p.dst = batch->dst;
    p.weights = (const float *)plan->d_packed;
    p.src_row = batch->src_row;
    p.src_plane = batch->src_plane;
    p.src_image = batch->src_image;
    p.width = width;
    p.positions = plan->shape.height * width;
    p.tiles = ceil_div(p.positions, TILE);
    p.tasks = batch->images * p.tiles;
    p.channels = layer->channels;
    p.maps = layer->maps;
    p.groups = ceil_div(layer->maps, maps);
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    bool vector = p.positions % POINTS == 0 && p.src_row == width * (int64_t)sizeof(float) &&
                  p.src_plane % 16 == 0 && p.src_image % 16 == 0;
    cudaStream_t stream = (cudaStream_t)batch->stream;
    if (maps == 8)
        return vector ? launch<8, true>(p, plan->packed_bytes, stream)
                      : launch<8, false>(p, plan->packed_bytes, stream);
    return vector ? launch<4, true>(p, plan->packed_bytes, stream)
                  : launch<4, false>(p, plan->packed_bytes, stream);
}

const struct conv_layer_variant conv_cuda_layer_points = {
    "cuda_layer_points",
    "1x1 kernels: four positions of a plane and 4 or 8 maps per thread, whatever the width",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    false,
    can_points,
    score_points,
    packed_points,
    plan_points,
    run_points,
};
