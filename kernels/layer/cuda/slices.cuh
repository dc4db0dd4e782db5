// SPDX-License-Identifier: MIT
// The exact order for few images: the outputs of all images are divided into equal shares, one for
// each block, and a thread computes one small tile, so that all multiprocessors have warps until
// the end. A block's samples and weights lie in shared memory; it computes the first channels while
// the others arrive.
#ifndef CONV_KERNELS_LAYER_CUDA_SLICES_CUH
#define CONV_KERNELS_LAYER_CUDA_SLICES_CUH

#include <cuda_pipeline.h>

#include "kernels/layer/cuda/layer_device.cuh"
#include "kernels/layer/cuda/store_runs.cuh"

#define SLICES_COLUMNS 4 // of a tile: rows in shared memory are read 16 bytes at a time

// Floats in shared memory of the weights of one kernel row for MT maps, and of one channel for a
// group of MT maps. The latter is 4 more than a multiple of 8, so that the threads of a warp that
// compute different groups read different banks.
static constexpr __host__ __device__ int slices_weight_row(int kernel_width, int maps)
{
    return (kernel_width * maps + 3) / 4 * 4;
}

static constexpr __host__ __device__ int slices_weight_group(int kernel_width, int maps)
{
    return (kernel_width * slices_weight_row(kernel_width, maps) + 3) / 8 * 8 + 4;
}

// Maps that a warp stores at a time by way of shared memory, and the floats that this takes.
static constexpr __host__ __device__ int slices_batch(int maps)
{
    return maps < 4 ? maps : 4;
}

static constexpr __host__ __device__ int slices_buffer(int maps)
{
    return slices_batch(maps) * STORE_ROOM(SLICES_COLUMNS);
}

struct slices_launch {
    const void *src;
    struct store_target to;
    const float *weights;                  // [group][channel][kernel row][kernel column][MT]
    const float *bias;                     // [group][MT]
    int64_t src_row, src_plane, src_image; // bytes
    int64_t units;
    struct layer_divider by_item, by_positions, by_tiles, by_strips, by_in_rows;
    struct layer_divider by_first_weights, by_other_weights; // 16-byte copies of a group
    int height, width, out_height, out_width;
    int channels, maps, kernel_height, pad_top, pad_left, border;
    float border_value, divisor;
    int bytes;              // 8-bit input
    int whole;              // outputs of a row: a multiple of 4, without tanh
    int share;              // units of a block
    int strips, strip_rows; // of an image; output rows of a strip
    int groups;             // of MT maps
    int tiles, positions;   // of a row of outputs; of an item
    int in_rows, columns;   // of input, of an item
    int copy;               // samples per copy; 0: padding or 8-bit input, each sample by itself
    int vectors;            // copies of a row
    int row_threads;        // that load a row: a power of two, at most 32
    int pitch, item_floats; // in shared memory
    int weight_floats;      // of a group in shared memory
    int memory_items;       // that have room in shared memory
    int first;              // channels whose arrival is awaited first
};

// What a block computes: consecutive units, so consecutive items, and groups from `group` on, with
// 0 after the last one.
struct slices_block {
    int item, items, group, groups;
    float *in, *weights; // [item][channel][in_rows][pitch], [group][channel] in shared memory
};

// Where a thread begins to load rows of input: p.row_threads threads load a row together.
struct slices_loader {
    int line, lines, x; // first line; lines that all threads load together; first copy of a row
};

// Samples of `count` channels with padding, or of 8 bits.
__device__ inline void slices_load_singly(const slices_launch &p, const slices_loader &loader,
                                          const char *src, float *in, int first_row, int count)
{
#pragma unroll 1
    for (int line = loader.line; line < count * p.in_rows; line += loader.lines) {
        int c = layer_divide(line, p.by_in_rows), y = line - c * p.in_rows + first_row;
        y = conv_border_index((enum conv_border)p.border, y - p.pad_top, p.height);
        const char *from = src + c * p.src_plane + y * p.src_row;
#pragma unroll 1
        for (int i = loader.x; i < p.vectors; i += p.row_threads) {
            float *to = in + line * p.pitch + i;
            int x = conv_border_index((enum conv_border)p.border, i - p.pad_left, p.width);
            if (y < 0 || x < 0)
                *to = p.border_value;
            else if (p.bytes)
                *to = __fdiv_rn((float)__ldg((const uint8_t *)from + x), p.divisor);
            else
                __pipeline_memcpy_async(to, (const float *)(const void *)from + x, 4);
        }
    }
}

template <int N>
__device__ inline void slices_load_vectors(const slices_launch &p, const slices_loader &loader,
                                           const char *src, float *in, int first_row, int count)
{
#pragma unroll 2
    for (int line = loader.line; line < count * p.in_rows; line += loader.lines) {
        int c = layer_divide(line, p.by_in_rows), y = line - c * p.in_rows + first_row;
        const char *from = src + c * p.src_plane + y * p.src_row;
        if (y >= p.height) // for outputs that are not stored
            continue;
#pragma unroll 1
        for (int i = loader.x; i < p.vectors; i += p.row_threads)
            __pipeline_memcpy_async(in + line * p.pitch + i * N,
                                    (const float *)(const void *)from + i * N, N * 4);
    }
}

// Starts loading `count` channels from `channel` on. 8-bit samples are in place on return.
template <int GROUP>
__device__ inline void slices_load(const slices_launch &p, const slices_block &block, int channel,
                                   int count, layer_divider by_weights)
{
    int vectors = count * GROUP / 4;
#pragma unroll 4
    for (int e = (int)threadIdx.x; e < block.groups * vectors; e += (int)blockDim.x) {
        int g = layer_divide(e, by_weights), i = (e - g * vectors) * 4 + channel * GROUP;
        int group = block.group + g < p.groups ? block.group + g : block.group + g - p.groups;
        __pipeline_memcpy_async(block.weights + g * p.weight_floats + i,
                                p.weights + (int64_t)group * (p.channels * GROUP) + i, 16);
    }
    slices_loader loader;
    loader.line = (int)threadIdx.x / p.row_threads;
    loader.lines = (int)blockDim.x / p.row_threads;
    loader.x = (int)threadIdx.x % p.row_threads;
#pragma unroll 1
    for (int i = 0; i < block.items; i++) {
        int image = layer_divide(block.item + i, p.by_strips);
        int first_row = (block.item + i - image * p.strips) * p.strip_rows;
        const char *src = (const char *)p.src + image * p.src_image + channel * p.src_plane;
        float *in = block.in + i * p.item_floats + channel * p.in_rows * p.pitch;
        if (p.copy == 4)
            slices_load_vectors<4>(p, loader, src, in, first_row, count);
        else if (p.copy == 2)
            slices_load_vectors<2>(p, loader, src, in, first_row, count);
        else if (p.copy == 1)
            slices_load_vectors<1>(p, loader, src, in, first_row, count);
        else
            slices_load_singly(p, loader, src, in, first_row, count);
    }
    __pipeline_commit();
}

// Adds one kernel row: `x` has the rows of input of the tile's R rows, from row `first` on.
template <int K, int R, int MT>
__device__ inline void slices_add_row(float (&sum)[R][MT][SLICES_COLUMNS],
                                      const float (&x)[R][SLICES_COLUMNS + K - 1], int first,
                                      const float *weight)
{
    float w[K * MT];
    layer_read<K * MT, 4>(w, weight);
#pragma unroll
    for (int v = 0; v < K; v++)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int t = 0; t < SLICES_COLUMNS; t++)
                    sum[r][m][t] = fmaf(w[v * MT + m], x[(first + r) % R][t + v], sum[r][m][t]);
}

// Adds `count` channels.
template <int K, int R, int MT>
__device__ inline void slices_add(const slices_launch &p, const float *in, const float *weight,
                                  int count, float (&sum)[R][MT][SLICES_COLUMNS])
{
    const int N = SLICES_COLUMNS + K - 1, step = slices_weight_row(K, MT);
    int plane = p.in_rows * p.pitch;
#pragma unroll 1
    for (int c = 0; c < count; c++, in += plane, weight += slices_weight_group(K, MT)) {
        float x[R][N]; // row y of the input is x[y % R]
#pragma unroll
        for (int r = 0; r < R - 1; r++)
            layer_read<N, 4>(x[r], in + r * p.pitch);
#pragma unroll
        for (int u = 0; u < K; u++) {
            layer_read<N, 4>(x[(u + R - 1) % R], in + (u + R - 1) * p.pitch);
            slices_add_row<K, R, MT>(sum, x, u, weight + u * step);
        }
    }
}

// A unit: R rows x 4 columns of a strip of an image (an item), for a group of MT maps. Units are
// numbered by item, group, row, column, and each thread of a block computes one. Shared memory: the
// samples of the block's items, the weights of its groups; after these, a buffer of each warp.
template <int K, int R, int MT, int THREADS>
static __global__ __launch_bounds__(THREADS, 1) void slices(const __grid_constant__ slices_launch p)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900 // the variant needs it
    extern __shared__ float4 slices_shared[];
    const int T = SLICES_COLUMNS, group_floats = slices_weight_group(K, MT);
    int64_t first = (int64_t)blockIdx.x * p.share;
    int item_units = p.groups * p.positions, units = (int)min((int64_t)p.share, p.units - first);
    slices_block block;
    block.item = (int)(first / item_units);
    int begin = (int)(first - (int64_t)block.item * item_units); // of units, in its item
    block.items = layer_divide(begin + units - 1, p.by_item) + 1;
    block.group = layer_divide(begin, p.by_positions);
    block.groups = min(layer_divide(begin + units - 1, p.by_positions) - block.group + 1, p.groups);
    block.in = (float *)(void *)slices_shared;
    block.weights = block.in + p.memory_items * p.item_floats;
    slices_load<group_floats>(p, block, 0, p.first, p.by_first_weights);
    slices_load<group_floats>(p, block, p.first, p.channels - p.first, p.by_other_weights);

    // Threads beyond the last unit repeat it.
    int unit = begin + min((int)threadIdx.x, units - 1), local = layer_divide(unit, p.by_item);
    unit -= local * item_units;
    int group = layer_divide(unit, p.by_positions), position = unit - group * p.positions;
    int row = layer_divide(position, p.by_tiles), j = (position - row * p.tiles) * T;
    row *= R;
    float sum[R][MT][T];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float bias = __ldg(p.bias + group * MT + m);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int t = 0; t < T; t++)
                sum[r][m][t] = bias;
    }
    int place = group - block.group < 0 ? group - block.group + p.groups : group - block.group;
    const float *in = block.in + local * p.item_floats + row * p.pitch + j;
    const float *weight = block.weights + place * p.weight_floats;
    bool computes = (int)threadIdx.x / 32 * 32 < units; // others only load

    __pipeline_wait_prior(1);
    __syncthreads(); // the first channels have arrived
    if (computes)
        slices_add<K, R, MT>(p, in, weight, p.first, sum);
    if (p.first < p.channels) {
        __pipeline_wait_prior(0);
        __syncthreads(); // all channels have arrived
        slices_add<K, R, MT>(p, in + p.first * p.in_rows * p.pitch, weight + p.first * group_floats,
                             p.channels - p.first, sum);
    }

    int item = block.item + local, image = layer_divide(item, p.by_strips);
    int first_row = (item - image * p.strips) * p.strip_rows;
    int rows = min(p.strip_rows, p.out_height - first_row) - row;
    bool stores = (int)threadIdx.x < units && group * MT < p.maps; // there may be empty groups
    int count = stores ? min(T, p.out_width - j) : 0;
    // The last group ends with the maps and may overlap the one before.
    int first_map = min(group * MT, p.maps - MT);
    int64_t at =
        (((int64_t)image * p.maps + first_map) * p.out_height + first_row + row) * p.out_width + j;
    float *buffer = block.in + (int)threadIdx.x / 32 * slices_buffer(MT);
    if (!p.whole)
        __syncthreads(); // samples and weights become buffers
    if (!computes)
        return;
#pragma unroll
    for (int r = 0; r < R; r++, at += p.out_width) {
        activate_outputs<T, MT>(p.to.activation, sum[r]);
        if (!p.whole)
            store_runs<T, MT, slices_batch(MT)>(p.to, buffer, at, r < rows ? count : 0, MT, sum[r]);
        else if (count > 0 && r < rows)
            store_units<T, MT>(p.to, p.to.half, at, MT, sum[r]);
    }
#else
    (void)p;
#endif
}

// Describes an instance to the host.
struct slices_shape {
    int kernel_width, rows, maps, threads;
    int registers; // of a thread
    void (*kernel)(slices_launch);
};

template <int K, int R, int MT, int THREADS> static slices_shape slices_instance(int registers)
{
    return {K, R, MT, THREADS, registers, slices<K, R, MT, THREADS>};
}

#endif
