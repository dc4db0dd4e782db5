// SPDX-License-Identifier: MIT
// The exact order by register tiles: a thread computes T neighbouring outputs of a row for MT maps.
// Input samples and weights of a few channels at a time are in shared memory; the next ones arrive
// while a block computes. Sums are sequential in c, u, v: only outputs and maps run in parallel.
#ifndef CONV_KERNELS_LAYER_CUDA_ROWS_CUH
#define CONV_KERNELS_LAYER_CUDA_ROWS_CUH

#include <cuda_pipeline.h>

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

// A launch. A unit is a tile of T columns of one row. Units are numbered consecutively by image,
// row, tile. A block takes `block_units` consecutive ones, even of several images, for each of
// `groups` groups of MT maps. Its input rows are consecutive if the images are stacked.
struct rows_launch {
    const void *src;
    struct store_target to;
    const float *weights;                  // [chunk][channel][kernel row][group][kernel column][MT]
    const float *bias;                     // [chunk][group][MT]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t images;
    struct layer_divider by_tiles, by_out_height, by_image_rows, by_columns;
    int height, width, out_height, out_width;
    int channels, maps, kernel_height, kernel_width, pad_top, pad_left, pad_bottom, pad_right,
        border;
    float border_value, divisor;
    int bytes;                   // 8-bit input
    int tiles;                   // of a panel's row: wide images are cut into panels, blockIdx.z
    int image_rows;              // of input, padded, that outputs depend on
    int block_units, groups;     // block_units: a multiple of 32
    int in_rows, columns, pitch; // of a block's plane in shared memory; columns: loaded
    int plane_floats;            // in_rows * pitch
    int step;                    // channels loaded at a time
    int weight_floats;           // of a channel of this chunk
    int stage_floats;            // half of all stages: the second one, if any, begins there
};

// The source of a sample, in samples from the block's first image, and its place in a plane of
// shared memory.
struct rows_sample {
    int from; // -1: padding, which is already in place
    int to;
};

// Shared memory after 12 bytes of each thread: one or two stages of [channel][in_rows][pitch]
// samples and [channel][kernel row][group][kernel column][MT] weights, values of 8-bit samples, and
// samples [in_rows][columns]. The epilogue reuses all of it.
struct rows_memory {
    struct rows_sample *samples;
    float *values;
    float *stages;
};

// Where a block begins.
struct rows_block {
    int64_t row, image; // of the batch; of the batch
    int tile, i;        // of that row; the row in its image
};

// Lists the samples of a channel and fills in the padding of all stages.
template <int S>
__device__ inline void rows_prepare(const rows_launch &p, const rows_memory &memory,
                                    const rows_block &block, int panel_columns)
{
    int shift = p.bytes ? 0 : 2;
    int images = (int)min(p.images - block.image, (int64_t)INT32_MAX);
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < p.in_rows * p.columns; e += (int)blockDim.x) {
        int line = layer_divide(e, p.by_columns), x = e - line * p.columns;
        int below = line + block.i * S, image = layer_divide(below, p.by_image_rows);
        int y = below - image * p.image_rows;
        image = min(image, images - 1); // rows beyond the batch: for outputs that are not stored
        int column = (int)blockIdx.z * panel_columns + x;
        column = min(column, p.width + p.pad_left + p.pad_right - 1) - p.pad_left;
        column = conv_border_index((enum conv_border)p.border, column, p.width);
        y = conv_border_index((enum conv_border)p.border, y - p.pad_top, p.height);
        struct rows_sample sample;
        sample.to = line * p.pitch + x;
        sample.from = -1;
        if (y >= 0 && column >= 0)
            sample.from = (int)((image * p.src_image + y * p.src_row) >> shift) + column;
        memory.samples[e] = sample;
        if (sample.from >= 0)
            continue;
#pragma unroll 1
        for (int c = 0; c < p.step; c++) {
            memory.stages[c * p.plane_floats + sample.to] = p.border_value;
            if (p.channels > p.step)
                memory.stages[p.stage_floats + c * p.plane_floats + sample.to] = p.border_value;
        }
    }
    if (p.bytes)
        for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x)
            memory.values[i] = __fdiv_rn((float)i, p.divisor);
}

// Starts loading `count` channels from `channel` on. 8-bit samples are in place on return.
__device__ inline void rows_load(const rows_launch &p, const rows_memory &memory,
                                 const rows_block &block, float *stage, const float *weights,
                                 int channel, int count)
{
    const char *src =
        (const char *)p.src + block.image * p.src_image + (int64_t)channel * p.src_plane;
    int samples = p.in_rows * p.columns;
#pragma unroll 1
    for (int c = 0; c < count; c++, src += p.src_plane) {
        float *to = stage + c * p.plane_floats;
        if (p.bytes) {
#pragma unroll 8
            for (int e = (int)threadIdx.x; e < samples; e += (int)blockDim.x) {
                struct rows_sample sample = memory.samples[e];
                if (sample.from >= 0)
                    to[sample.to] = memory.values[__ldg((const uint8_t *)src + sample.from)];
            }
        } else {
#pragma unroll 4
            for (int e = (int)threadIdx.x; e < samples; e += (int)blockDim.x) {
                struct rows_sample sample = memory.samples[e];
                if (sample.from >= 0)
                    __pipeline_memcpy_async(to + sample.to,
                                            (const float *)(const void *)src + sample.from, 4);
            }
        }
    }
    float *to = stage + p.step * p.plane_floats;
    const float *from = weights + (int64_t)channel * p.weight_floats;
#pragma unroll 1
    for (int i = (int)threadIdx.x * 4; i < count * p.weight_floats; i += (int)blockDim.x * 4)
        __pipeline_memcpy_async(to + i, from + i, 16);
    __pipeline_commit();
}

// Adds N taps of a kernel row. Columns in the inner loop: neighbouring multiply-adds share the
// weight, so that two operands come from the register file and one from the cache in front of it.
template <int N, int S, int T, int MT, int VX>
__device__ inline void rows_taps(float (&sum)[MT][T], const float *in, const float *weight)
{
    float x[(T - 1) * S + N];
    layer_read<(T - 1) * S + N, VX>(x, in);
#pragma unroll
    for (int v = 0; v < N; v++) {
        float w[MT];
        layer_read<MT, MT % 4 ? 2 : 4>(w, weight + v * MT);
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[m][t] = fmaf(w[m], x[t * S + v], sum[m][t]);
        }
    }
}

// Adds one channel.
template <int KW, int S, int T, int MT, int VX>
__device__ inline void rows_add(float (&sum)[MT][T], const float *in, const float *weight,
                                int kernel_height, int pitch, int row_weights)
{
#pragma unroll 1
    for (int u = 0; u < kernel_height; u++) {
        rows_taps<KW, S, T, MT, VX>(sum, in, weight);
        in += pitch;
        weight += row_weights;
    }
}

// The same for kernels of any width, four taps at a time.
template <int T, int MT, int VX>
__device__ inline void rows_add_any(float (&sum)[MT][T], const float *in, const float *weight,
                                    const rows_launch &p)
{
#pragma unroll 1
    for (int u = 0; u < p.kernel_height; u++) {
        int v = 0;
#pragma unroll 1
        for (; v + 4 <= p.kernel_width; v += 4)
            rows_taps<4, 1, T, MT, VX>(sum, in + v, weight + v * MT);
        if (p.kernel_width - v == 1)
            rows_taps<1, 1, T, MT, VX>(sum, in + v, weight + v * MT);
        else if (p.kernel_width - v == 2)
            rows_taps<2, 1, T, MT, VX>(sum, in + v, weight + v * MT);
        else if (p.kernel_width - v == 3)
            rows_taps<3, 1, T, MT, VX>(sum, in + v, weight + v * MT);
        in += p.pitch;
        weight += p.groups * p.kernel_width * MT;
    }
}

// The number of maps stored by way of shared memory at a time.
static constexpr __host__ __device__ int rows_batch(int columns, int maps)
{
    return maps % 4 || columns > 16 ? 1 + (maps % 2 == 0) : 4;
}

// blockIdx.x: units; blockIdx.y: chunk of maps; blockIdx.z: panel.
template <int KW, int S, int T, int MT, int VX, int THREADS, int BLOCKS>
static __global__ __launch_bounds__(THREADS,
                                    BLOCKS) void rows(const __grid_constant__ rows_launch p)
{
    extern __shared__ float4 rows_shared[];
    rows_memory memory;
    memory.stages = (float *)(void *)((char *)rows_shared + THREADS * 12);
    memory.values = memory.stages + 2 * p.stage_floats;
    memory.samples = (struct rows_sample *)(void *)(memory.values + (p.bytes ? 256 : 0));

    rows_block block;
    int64_t first_unit = (int64_t)blockIdx.x * p.block_units;
    block.row = first_unit / p.tiles;
    block.tile = (int)(first_unit - block.row * p.tiles);
    block.image = block.row / p.out_height;
    block.i = (int)(block.row - block.image * p.out_height);
    rows_prepare<S>(p, memory, block, p.tiles * T * S);

    // What this thread computes.
    int group = (int)threadIdx.x / p.block_units;
    int unit = (int)threadIdx.x - group * p.block_units + block.tile;
    int row = layer_divide(unit, p.by_tiles), tile = unit - row * p.tiles;
    int local = layer_divide(block.i + row, p.by_out_height);
    int i = block.i + row - local * p.out_height;
    int chunk = (int)blockIdx.y, first_map = (chunk * p.groups + group) * MT;
    int64_t image = block.image + local;

    // The addresses of its outputs, derived here since registers are scarce before.
    int64_t *places = (int64_t *)(void *)rows_shared;
    int *counts = (int *)(void *)(places + THREADS);
    int j = ((int)blockIdx.z * p.tiles + tile) * T;
    places[threadIdx.x] = ((image * p.maps + first_map) * p.out_height + i) * p.out_width + j;
    counts[threadIdx.x] = image < p.images ? max(0, min(T, p.out_width - j)) : 0;

    float sum[MT][T];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float b = __ldg(p.bias + first_map + m);
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[m][t] = b;
    }
    int in = (local * p.image_rows + (i - block.i) * S) * p.pitch + tile * T * S;
    int weight = p.step * p.plane_floats + group * (KW > 0 ? KW : p.kernel_width) * MT;
    const float *weights = p.weights + (int64_t)chunk * p.channels * p.weight_floats;
    __syncthreads(); // the list is complete

    rows_load(p, memory, block, memory.stages, weights, 0, min(p.step, p.channels));
#pragma unroll 1
    for (int c = 0, stage = 0; c < p.channels; c += p.step, stage ^= 1) {
        __pipeline_wait_prior(0);
        __syncthreads(); // every thread's part of this stage has arrived, the other one is free
        int next = c + p.step;
        if (next < p.channels)
            rows_load(p, memory, block, memory.stages + (stage ^ 1) * p.stage_floats, weights, next,
                      min(p.step, p.channels - next));
        const float *from = memory.stages + stage * p.stage_floats;
#pragma unroll 1
        for (int k = 0; k < min(p.step, p.channels - c); k++)
            if (KW > 0)
                rows_add<(KW > 0 ? KW : 1), S, T, MT, VX>(
                    sum, from + in + k * p.plane_floats, from + weight + k * p.weight_floats,
                    p.kernel_height, p.pitch, p.groups * KW * MT);
            else
                rows_add_any<T, MT, VX>(sum, from + in + k * p.plane_floats,
                                        from + weight + k * p.weight_floats, p);
    }
    __syncthreads(); // the stages become buffers

    activate_outputs<T, MT>(p.to.activation, sum);
    int maps = p.maps - ((int)blockIdx.y * p.groups + (int)threadIdx.x / p.block_units) * MT;
    const int batch = rows_batch(T, MT);
    float *buffer = memory.stages + threadIdx.x / 32 * batch * STORE_ROOM(T);
    store_runs<T, MT, batch>(p.to, buffer, places[threadIdx.x], counts[threadIdx.x], maps, sum);
}

// Describes an instance to the host.
struct rows_shape {
    int kernel_width; // 0: any
    int stride, columns, maps, vector, threads, blocks;
    float cost; // relative to what counting instructions predicts, measured
    void (*kernel)(rows_launch);
};

template <int KW, int S, int T, int MT, int VX, int THREADS, int BLOCKS>
static rows_shape rows_instance(float cost = 1)
{
    return {KW, S, T, MT, VX, THREADS, BLOCKS, cost, rows<KW, S, T, MT, VX, THREADS, BLOCKS>};
}

#endif
