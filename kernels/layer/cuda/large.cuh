// SPDX-License-Identifier: MIT
// The exact order for large kernels: the samples of a channel that a block needs stay in shared
// memory while the weights of a few kernel rows at a time arrive. A thread computes T neighbouring
// outputs of a row for MT maps. Sums are sequential in c, u, v.
#ifndef CONV_KERNELS_LAYER_CUDA_LARGE_CUH
#define CONV_KERNELS_LAYER_CUDA_LARGE_CUH

#include <cuda_pipeline.h>

#include "kernels/layer/cuda/layer_await.cuh"
#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

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
// that a new weight meets the sample that was read last (see bulk_rows.cuh).
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

#endif
