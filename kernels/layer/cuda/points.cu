// SPDX-License-Identifier: MIT
// cuda_layer_points: layers with 1x1 kernels, which are limited by memory. The positions of a plane
// follow each other, so a warp reads and writes whole lines whatever the width of an image.
#include <cuda_pipeline.h>
#include <string.h>

#include "kernels/layer/cuda/layer_device.cuh"

#define POINTS 4 // positions of a thread
#define TILE (32 * POINTS)
#define MOST_WARPS 8
#define RESIDENT_WARPS 32       // of a multiprocessor, about
#define MOST_WEIGHTS (48 << 10) // bytes, of a chunk of maps
#define RESERVED (1 << 10)      // of shared memory, for each block

struct points_launch {
    const void *src;
    void *dst;
    const float *weights; // [chunk] of [group][MAPS] of bias, then [group][channel][MAPS]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t tasks;                         // tiles of all images
    int tiles, positions;                  // of an image
    int width, channels, maps;
    int groups; // of MAPS maps, of a chunk
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

// Adds one channel.
template <int MAPS>
__device__ inline void points_add(float (&sum)[MAPS][POINTS], const float (&x)[POINTS],
                                  const float *weight)
{
    float w[MAPS];
    layer_read<MAPS, 4>(w, weight);
#pragma unroll
    for (int m = 0; m < MAPS; m++)
#pragma unroll
        for (int k = 0; k < POINTS; k++)
            sum[m][k] = fmaf(w[m], x[k], sum[m][k]);
}

// A tile of an image, and what a thread reads of it.
template <bool VECTOR> struct points_task {
    int64_t image, at[VECTOR ? 1 : POINTS]; // bytes from the first sample of the plane
    int first;                              // position
};

template <bool VECTOR>
__device__ inline points_task<VECTOR> points_find(const points_launch &p, int64_t number)
{
    points_task<VECTOR> task;
    task.image = number / p.tiles;
    task.first =
        (int)(number - task.image * p.tiles) * TILE + (int)threadIdx.x % 32 * (VECTOR ? POINTS : 1);
#pragma unroll
    for (int k = 0; k < (VECTOR ? 1 : POINTS); k++) {
        int q = min(task.first + k * 32, p.positions - (VECTOR ? POINTS : 1));
        int row = VECTOR ? 0 : q / p.width;
        task.at[k] = row * p.src_row + (q - row * p.width) * (int64_t)sizeof(float);
    }
    return task;
}

// The groups of a block's chunk: all but the last chunk have p.groups of them.
template <int MAPS> __device__ inline int points_groups(const points_launch &p)
{
    return min(p.groups, (p.maps + MAPS - 1) / MAPS - (int)blockIdx.y * p.groups);
}

template <int MAPS, bool VECTOR>
__device__ inline void points_finish(const points_launch &p, float (&sum)[MAPS][POINTS],
                                     const points_task<VECTOR> &task, int group)
{
    int first_map = ((int)blockIdx.y * p.groups + group) * MAPS;
    int64_t to = (task.image * p.maps + first_map) * p.positions;
    if (p.half)
        points_store<MAPS, VECTOR>(p, sum, (uint16_t *)p.dst + to, p.maps - first_map, task.first);
    else
        points_store<MAPS, VECTOR>(p, sum, (float *)p.dst + to, p.maps - first_map, task.first);
}

// Copies the weights of the chunk to shared memory.
template <int MAPS> __device__ inline void points_load_weights(const points_launch &p, float *to)
{
    int floats = p.groups * MAPS * (1 + p.channels);
    const float *from = p.weights + (int64_t)blockIdx.y * floats;
    for (int i = (int)threadIdx.x * 4; i < floats; i += (int)blockDim.x * 4)
        *(float4 *)(void *)(to + i) = __ldg((const float4 *)(const void *)(from + i));
}

// The sums of a group of maps begin with its biases; its weights follow those of all groups.
template <int MAPS>
__device__ inline const float *points_begin(const points_launch &p, const float *weights, int group,
                                            float (&sum)[MAPS][POINTS])
{
#pragma unroll
    for (int m = 0; m < MAPS; m++)
#pragma unroll
        for (int k = 0; k < POINTS; k++)
            sum[m][k] = weights[group * MAPS + m];
    return weights + (p.groups + group * p.channels) * MAPS;
}

// Blocks take tiles of TILE positions in turn, blockIdx.y is the chunk of maps. The warps of a
// block compute different groups of MAPS maps of the same tile at about the same time, so that one
// of them reads samples from memory and the others find them in the L1 cache. VECTOR: a thread's
// positions are neighbours, else 32 apart. Shared memory: the packed weights.
template <int MAPS, bool VECTOR>
static __global__ __launch_bounds__(32 *
                                    MOST_WARPS) void points(const __grid_constant__ points_launch p)
{
    extern __shared__ __align__(16) float points_shared[];
    points_load_weights<MAPS>(p, points_shared);
    __syncthreads();
    int groups = points_groups<MAPS>(p);
    for (int64_t number = blockIdx.x; number < p.tasks; number += gridDim.x) {
        points_task<VECTOR> task = points_find<VECTOR>(p, number);
        const char *src = (const char *)p.src + task.image * p.src_image;
        for (int group = (int)threadIdx.x / 32; group < groups; group += (int)blockDim.x / 32) {
            float sum[MAPS][POINTS];
            const float *weight = points_begin<MAPS>(p, points_shared, group, sum);
            const char *plane = src;
#pragma unroll 4
            for (int c = 0; c < p.channels; c++, plane += p.src_plane, weight += MAPS) {
                float x[POINTS];
                points_read<VECTOR>(x, plane, task.at);
                points_add<MAPS>(sum, x, weight);
            }
            points_finish<MAPS, VECTOR>(p, sum, task, group);
        }
    }
}

// Starts copying the samples of a tile to shared memory, [channel][TILE].
template <bool VECTOR>
__device__ inline void points_load(const points_launch &p, int64_t number, float *to)
{
    int warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    points_task<VECTOR> task = points_find<VECTOR>(p, number);
    const char *src = (const char *)p.src + task.image * p.src_image + warp * p.src_plane;
    to += warp * TILE + (int)threadIdx.x % 32 * (VECTOR ? POINTS : 1);
#pragma unroll 4
    for (int c = warp; c < p.channels; c += warps) {
        if (VECTOR)
            __pipeline_memcpy_async(to, src + task.at[0], 16);
        else
#pragma unroll
            for (int k = 0; k < (VECTOR ? 1 : POINTS); k++)
                __pipeline_memcpy_async(to + k * 32, src + task.at[k], 4);
        to += warps * TILE;
        src += warps * p.src_plane;
    }
}

// The same as `points`, but the samples of a tile are copied to shared memory while the tile before
// is computed, which hides the time until they arrive: 64 to 128 channels, 56 x 56, 100 images:
// 0.162 instead of 0.284 ms. Shared memory: the weights, then two tiles.
template <int MAPS, bool VECTOR>
static __global__
    __launch_bounds__(32 * MOST_WARPS,
                      MAPS == 16 ? 2 : 3) void points_ahead(const __grid_constant__ points_launch p)
{
    extern __shared__ __align__(16) float points_shared[];
    points_load_weights<MAPS>(p, points_shared);
    float *tile = points_shared + p.groups * MAPS * (1 + p.channels);
    int floats = p.channels * TILE, groups = points_groups<MAPS>(p), lane = (int)threadIdx.x % 32;
    int64_t number = blockIdx.x;
    points_load<VECTOR>(p, number, tile); // there is a tile for each block
    __pipeline_commit();
    for (int other = floats; number < p.tasks; number += gridDim.x, other = -other) {
        __pipeline_wait_prior(0);
        __syncthreads(); // the tile is complete, and the other one is no longer read
        if (number + gridDim.x < p.tasks)
            points_load<VECTOR>(p, number + gridDim.x, tile + other);
        __pipeline_commit();
        points_task<VECTOR> task = points_find<VECTOR>(p, number);
        for (int group = (int)threadIdx.x / 32; group < groups; group += (int)blockDim.x / 32) {
            float sum[MAPS][POINTS];
            const float *weight = points_begin<MAPS>(p, points_shared, group, sum);
            const float *in = tile + lane * (VECTOR ? POINTS : 1);
#pragma unroll 4
            for (int c = 0; c < p.channels; c++, in += TILE, weight += MAPS) {
                float x[POINTS];
#pragma unroll
                for (int k = 0; k < POINTS; k++)
                    x[k] = VECTOR ? 0 : in[k * 32];
                if (VECTOR)
                    layer_read<POINTS, 4>(x, in);
                points_add<MAPS>(sum, x, weight);
            }
            points_finish<MAPS, VECTOR>(p, sum, task, group);
        }
        tile += other;
    }
}

// Maps of a warp: as many as leave no group without maps, if possible. With more channels than 64,
// groups of 16 would be too few: a multiprocessor has room for one block only.
static int group_maps(const struct conv_layer *layer)
{
    return layer->maps % 16 == 0 && layer->channels <= 64 ? 16 : (layer->maps + 3) / 4 % 2 ? 4 : 8;
}

// Groups of maps of a chunk: as many as have room for their weights, equally many in each chunk but
// the last one. 0: not even one has.
static int chunk_groups(const struct conv_layer *layer)
{
    int maps = group_maps(layer), groups = ceil_div(layer->maps, maps);
    int64_t most = MOST_WEIGHTS / ((int64_t)maps * (1 + layer->channels) * (int64_t)sizeof(float));
    return most < 1 ? 0 : ceil_div(groups, (int)ceil_div64(groups, most));
}

static int chunks_of(const struct conv_layer *layer)
{
    return ceil_div(ceil_div(layer->maps, group_maps(layer)), chunk_groups(layer));
}

// Floats of a chunk's biases and weights.
static size_t chunk_floats(const struct conv_layer *layer)
{
    return (size_t)chunk_groups(layer) * (size_t)group_maps(layer) * (1 + (size_t)layer->channels);
}

static bool plan_points(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    const struct conv_layer_shape *shape = &plan->shape;
    if (layer->kernel_height != 1 || layer->kernel_width != 1 || layer->stride_x != 1 ||
        shape->height <= 0 || shape->width <= 0 ||
        (int64_t)shape->height * shape->width >= INT32_MAX - TILE || chunk_groups(layer) <= 0 ||
        chunks_of(layer) >= 65536)
        return false;
    plan->packed_bytes = (size_t)chunks_of(layer) * chunk_floats(layer) * sizeof(float);
    return true;
}

static int score_points(const struct conv_layer_plan *)
{
    return 95;
}

static void pack_points(const struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    int maps = group_maps(layer), groups = chunk_groups(layer), channels = layer->channels;
    for (int m = 0; m < layer->maps; m++) {
        int group = m / maps % groups;
        float *packed = (float *)plan->packed + (size_t)(m / maps / groups) * chunk_floats(layer);
        if (layer->bias)
            packed[group * maps + m % maps] = layer->bias[m];
        float *to = packed + (groups + group * channels) * maps + m % maps;
        for (int c = 0; c < channels; c++)
            to[c * maps] = layer->weights[(size_t)m * (size_t)channels + (size_t)c];
    }
}

template <int MAPS, bool VECTOR>
static enum conv_status launch(const points_launch &p, int chunks, cudaStream_t stream)
{
    int device, processors, most_bytes, all_bytes;
    int warps = p.groups < MOST_WARPS ? p.groups : MOST_WARPS;
    // Equal numbers of groups per warp: for 9 groups 5 warps with two turns, not 8.
    warps = ceil_div(p.groups, ceil_div(p.groups, warps));
    if (cudaGetDevice(&device) ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ||
        cudaDeviceGetAttribute(&all_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device))
        return CONV_ERR_DEVICE;
    size_t bytes = (size_t)p.groups * MAPS * (1 + (size_t)p.channels) * sizeof(float);
    size_t ahead = bytes + 2 * (size_t)p.channels * TILE * sizeof(float);
    int blocks = ceil_div(RESIDENT_WARPS, warps);
    void (*kernel)(points_launch) = points<MAPS, VECTOR>;
    if (ahead <= (size_t)most_bytes) {
        kernel = points_ahead<MAPS, VECTOR>;
        bytes = ahead;
        int room = (int)((size_t)all_bytes / (bytes + RESERVED));
        blocks = blocks < room ? blocks : room > 1 ? room : 1;
        if (layer_allow_shared_memory((const void *)kernel))
            return CONV_ERR_DEVICE;
    }
    int64_t most = ceil_div64((int64_t)processors * blocks, chunks);
    dim3 grid((unsigned)(p.tasks < most ? p.tasks : most), (unsigned)chunks);
    kernel<<<grid, (unsigned)warps * 32, bytes, stream>>>(p);
    return layer_launch_status();
}

static enum conv_status run_points(const struct conv_layer_plan *plan,
                                   const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    if (batch->images <= 0)
        return CONV_OK;
    int width = plan->shape.width, chunks = chunks_of(layer);
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
    p.groups = chunk_groups(layer);
    p.activation = (int)layer->activation;
    p.half = layer->output == CONV_ELEMENT_F16;
    bool vector = p.positions % POINTS == 0 && p.src_row == width * (int64_t)sizeof(float) &&
                  p.src_plane % 16 == 0 && p.src_image % 16 == 0;
    cudaStream_t stream = (cudaStream_t)batch->stream;
    if (group_maps(layer) == 16)
        return vector ? launch<16, true>(p, chunks, stream) : launch<16, false>(p, chunks, stream);
    if (group_maps(layer) == 8)
        return vector ? launch<8, true>(p, chunks, stream) : launch<8, false>(p, chunks, stream);
    return vector ? launch<4, true>(p, chunks, stream) : launch<4, false>(p, chunks, stream);
}

const struct conv_layer_variant conv_cuda_layer_points = {
    "cuda_layer_points",
    "1x1 kernels: four positions of a plane and 4 to 16 maps per thread, the next ones arrive",
    CONV_ON_CUDA,
    75,
    CONV_PRECISION_EXACT,
    0,
    0,
    plan_points,
    score_points,
    pack_points,
    run_points,
};
