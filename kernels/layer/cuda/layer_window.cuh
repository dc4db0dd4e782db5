// SPDX-License-Identifier: MIT
// The exact order for sums of few terms or few maps, depthwise layers among them, where memory is
// the limit: a block copies all samples that its outputs need to shared memory once, and a thread
// computes some outputs of one column, for some maps at a time.
#ifndef CONV_KERNELS_LAYER_CUDA_LAYER_WINDOW_CUH
#define CONV_KERNELS_LAYER_CUDA_LAYER_WINDOW_CUH

#include <cuda_pipeline.h>

#include "kernels/common/warp.cuh"
#include "kernels/layer/cuda/layer_device.cuh"

#define WINDOW_ROWS 7    // outputs of a thread, one below the other
#define WINDOW_COLUMNS 8 // of window_any: next to each other
#define WINDOW_ANY_THREADS 256

// A plane is what one group of channels of an image becomes. A block computes a tile of one plane,
// or several whole planes.
struct window_launch {
    const void *src;
    void *dst;
    // [group][step of maps][channel][taps][maps of a step], to whole quads; window_any: taps are
    // rows of kernels, to whole WINDOW_COLUMNS.
    const float *weights;
    const float *bias;                     // [group][step of maps][maps of a step]
    int64_t src_row, src_plane, src_image; // bytes
    int planes;                            // of all images
    int height, width, out_height, out_width, pad_top, pad_left, dilation_y, dilation_x;
    int groups, channels, maps, steps;              // channels and maps of a group
    int kernel_height, kernel_width, stride, quads; // quads: of a channel's weights in a step
    // Of a block: planes, units of columns and rows that a thread computes, and tiles of a plane.
    int block_planes, unit_columns, unit_rows, tiles_x, tiles_y;
    int in_rows, in_columns, pitch, chunk; // samples of a plane; channels in shared memory
    layer_divider by_groups, by_tiles, by_tiles_x, by_unit_columns, by_unit_rows, by_in_columns,
        by_in_rows, by_dilation, by_skew;
    int activation, half;
};

// Where a row of samples is, relative to a channel: in memory, or -1 in the padding, and its place
// in shared memory.
struct window_line {
    int64_t at;
    int64_t place;
};

struct window_memory {
    window_line *lines; // [block_planes][in_rows]
    float *samples;     // [block_planes][chunk][in_rows][pitch]
};

struct window_block {
    int plane, row, column; // the first plane, and the number of the tile
};

__device__ inline window_block window_find(const window_launch &p)
{
    window_block block;
    int tiles = p.tiles_x * p.tiles_y, group = layer_divide((int)blockIdx.x, p.by_tiles);
    int rest = (int)blockIdx.x - group * tiles, y = layer_divide(rest, p.by_tiles_x);
    block.plane = group * p.block_planes;
    block.row = y;
    block.column = rest - y * p.tiles_x;
    return block;
}

__device__ inline void window_fill_lines(const window_launch &p, const window_memory &memory,
                                         int plane, int first_row)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.block_planes * p.in_rows; i += (int)blockDim.x) {
        int n = layer_divide(i, p.by_in_rows), y = i - n * p.in_rows;
        int row = first_row * p.stride - p.pad_top + y;
        bool inside = plane + n < p.planes && row >= 0 && row < p.height;
        int image = layer_divide(plane + n, p.by_groups), group = plane + n - image * p.groups;
        window_line line;
        line.at = inside ? image * p.src_image + (int64_t)group * p.channels * p.src_plane +
                               row * p.src_row
                         : -1;
        line.place = (int64_t)n * p.chunk * p.in_rows * p.pitch + y * p.pitch;
        memory.lines[i] = line;
    }
}

// Brings a block's weights to the L2 cache, all at once, while it waits for samples: one after the
// other they take longer than the multiply-adds.
__device__ inline void window_fetch(const window_launch &p, int plane)
{
    int first = plane - layer_divide(plane, p.by_groups) * p.groups;
    int groups = min(min(p.block_planes, p.planes - plane), p.groups - first);
    int64_t bytes = (int64_t)p.steps * p.channels * p.quads * 16;
    const char *from = (const char *)p.weights + first * bytes;
#pragma unroll 1
    for (int64_t i = (int)threadIdx.x * 128; i < groups * bytes; i += (int)blockDim.x * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i));
}

// Copies `count` channels from `channel` on to shared memory.
template <bool ONE>
__device__ inline void window_copy(const window_launch &p, const window_memory &memory,
                                   int first_column, int channel, int count)
{
    const char *src = (const char *)p.src + channel * p.src_plane;
    int left = first_column * p.stride - p.pad_left, channel_floats = p.in_rows * p.pitch;
    int samples = p.block_planes * p.in_rows * p.in_columns;
    // Several samples at a time, because finding one takes long.
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < samples; i += (int)blockDim.x) {
        int y = layer_divide(i, p.by_in_columns), x = i - y * p.in_columns;
        window_line line = memory.lines[y];
        bool outside = line.at < 0 || (unsigned)(left + x) >= (unsigned)p.width;
        const char *from = src + line.at + (left + x) * 4;
        float *to = memory.samples + line.place + x + layer_divide(x, p.by_skew) * p.dilation_x;
        if constexpr (ONE) {
            layer_copy(to, (const float *)(const void *)from, outside);
        } else {
#pragma unroll 1
            for (int c = 0; c < count; c++, from += p.src_plane, to += channel_floats)
                layer_copy(to, (const float *)(const void *)from, outside);
        }
    }
}

// The same, and waits until they have arrived for all threads; the channels before have been read.
__device__ inline void window_load(const window_launch &p, const window_memory &memory,
                                   int first_column, int channel, int count)
{
    __syncthreads(); // the lines are complete, and the samples before were read
    if (count == 1)
        window_copy<true>(p, memory, first_column, channel, 1);
    else
        window_copy<false>(p, memory, first_column, channel, count);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
}

// Stores a thread's outputs of a map, `step` elements apart.
template <int N>
__device__ inline void window_store(const window_launch &p, int64_t at, int step, int count,
                                    float (&sum)[1][N])
{
    activate_outputs<N, 1>(p.activation, sum);
    if (p.activation == CONV_ACTIVATION_TANH)
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[0][i] = layer_tanh<0>(sum[0][i]);
#pragma unroll
    for (int i = 0; i < N; i++, at += step)
        if (i < count && p.half)
            layer_store((uint16_t *)p.dst + at, sum[0][i]);
        else if (i < count)
            layer_store((float *)p.dst + at, sum[0][i]);
}

// The index of an output of the first map of a plane.
__device__ inline int64_t window_output(const window_launch &p, int plane, int row, int column)
{
    return ((int64_t)plane * p.maps * p.out_height + row) * p.out_width + column;
}

__device__ inline window_memory window_memory_of(const window_launch &p, float4 *shared)
{
    window_memory memory;
    memory.lines = (window_line *)(void *)shared;
    memory.samples = (float *)(void *)(memory.lines + p.block_planes * p.in_rows);
    return memory;
}

template <int FLOATS>
__device__ inline void window_weights(float (&w)[FLOATS], const float4 *weights)
{
#pragma unroll
    for (int i = 0; i < FLOATS; i += 4) {
        float4 quad = __ldg(weights + i / 4);
        w[i] = quad.x, w[i + 1] = quad.y, w[i + 2] = quad.z, w[i + 3] = quad.w;
    }
}

// Adds a channel, whose samples begin at `in`. Rows from top to bottom: each is the sample of
// another kernel row to each output.
template <int K, int S, int MT>
__device__ inline void window_add(float (&sum)[MT][1][WINDOW_ROWS], const float *in, int pitch,
                                  int step, const float4 *weights)
{
    float w[(K * K * MT + 3) / 4 * 4];
    window_weights(w, weights);
#pragma unroll
    for (int r = 0; r < (WINDOW_ROWS - 1) * S + K; r++, in += pitch) {
        float x[K];
#pragma unroll
        for (int v = 0; v < K; v++)
            x[v] = in[v * step];
#pragma unroll
        for (int v = 0; v < K; v++)
#pragma unroll
            for (int i = 0; i < WINDOW_ROWS; i++) {
                const int u = r - i * S;
                if (u < 0 || u >= K)
                    continue;
#pragma unroll
                for (int m = 0; m < MT; m++)
                    sum[m][0][i] = fmaf(w[(u * K + v) * MT + m], x[v], sum[m][0][i]);
            }
    }
}

// K x K taps, stride S, MT maps at a time. DILATED: taps and outputs are dilation_y rows apart.
template <int K, int S, int MT, int THREADS, int BLOCKS, bool DILATED = false>
static __global__
__launch_bounds__(THREADS,
                  RESIDENT(THREADS, BLOCKS)) void window(const __grid_constant__ window_launch p)
{
    extern __shared__ float4 window_shared[];
    window_memory memory = window_memory_of(p, window_shared);
    window_block block = window_find(p);
    int first_row = block.row * p.unit_rows * WINDOW_ROWS;
    int first_column = block.column * p.unit_columns;
    window_fetch(p, block.plane);
    window_fill_lines(p, memory, block.plane, first_row);

    int rest = layer_divide((int)threadIdx.x, p.by_unit_columns);
    int column = (int)threadIdx.x - rest * p.unit_columns;
    const int step_y = DILATED ? p.dilation_y : 1, step_x = DILATED ? p.dilation_x : 1;
    int local = layer_divide(rest, p.by_unit_rows), row = rest - local * p.unit_rows;
    int above = DILATED ? layer_divide(row, p.by_dilation) * step_y : row; // of units
    row += above * (WINDOW_ROWS - 1);
    int plane = block.plane + local;
    bool valid = local < p.block_planes && plane < p.planes && first_column + column < p.out_width;
    int below = p.out_height - first_row - row; // rows of outputs
    int count = valid ? min(WINDOW_ROWS, (below + step_y - 1) / step_y) : 0;
    local = min(local, p.block_planes - 1); // threads without outputs read something
    const float *in =
        memory.samples + (local * p.chunk * p.in_rows + row * S) * p.pitch + column * S;
    int group = plane - layer_divide(plane, p.by_groups) * p.groups;
    int64_t at = window_output(p, plane, first_row + row, first_column + column);
    const float4 *weights =
        (const float4 *)(const void *)p.weights + (int64_t)group * p.steps * p.channels * p.quads;
    const float *bias = p.bias + (int64_t)group * p.steps * MT;
#pragma unroll 1
    for (int step = 0; step < p.steps; step++) {
        float sum[MT][1][WINDOW_ROWS];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < WINDOW_ROWS; i++)
                sum[m][0][i] = __ldg(bias + step * MT + m);
#pragma unroll 1
        for (int channel = 0; channel < p.channels; channel += p.chunk) {
            int channels = min(p.chunk, p.channels - channel);
            if (step == 0 || p.chunk < p.channels)
                window_load(p, memory, first_column, channel, channels);
#pragma unroll 1
            for (int c = 0; c < channels; c++, weights += p.quads)
                window_add<K, S, MT>(sum, in + c * p.in_rows * p.pitch, p.pitch * step_y, step_x,
                                     weights);
        }
#pragma unroll
        for (int m = 0; m < MT; m++)
            if (step * MT + m < p.maps)
                window_store<WINDOW_ROWS>(
                    p, at + (int64_t)(step * MT + m) * p.out_height * p.out_width,
                    p.out_width * step_y, count, sum[m]);
    }
}

// Where sample i of a window is. A sample is left out after WINDOW_COLUMNS, so that neighbouring
// lanes that are neighbours in a row read different banks.
__device__ inline int window_place(int i)
{
    return i + i / WINDOW_COLUMNS;
}

// Adds T taps of a kernel row, or its last `count` ones unless WHOLE; x has the samples before.
template <int S, bool WHOLE>
__device__ inline void window_add_taps(float (&sum)[1][WINDOW_COLUMNS],
                                       float (&x)[(WINDOW_COLUMNS - 1) * S + WINDOW_COLUMNS],
                                       const float *line, int step,
                                       const float (&factor)[WINDOW_COLUMNS], int count)
{
    const int T = WINDOW_COLUMNS, X = (T - 1) * S;
#pragma unroll
    for (int k = 0; k < T; k++) {
        if (!WHOLE && k >= count)
            break;
        x[X + k] = line[window_place(X + k) * step];
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[0][t] = fmaf(factor[k], x[t * S + k], sum[0][t]);
    }
#pragma unroll
    for (int i = 0; i < X; i++)
        x[i] = x[T + i];
}

// Kernels of any size, for which arithmetic is the limit: a thread computes outputs of a row, which
// are dilation_x apart, whose samples move through registers, and lanes are rows of an odd pitch.
template <int S, bool DILATED>
static __global__ __launch_bounds__(WINDOW_ANY_THREADS,
                                    4) void window_any(const __grid_constant__ window_launch p)
{
    extern __shared__ float4 window_shared[];
    const int T = WINDOW_COLUMNS, X = (T - 1) * S;
    window_memory memory = window_memory_of(p, window_shared);
    window_block block = window_find(p);
    int first_row = block.row * p.unit_rows, first_column = block.column * p.unit_columns * T;
    window_fetch(p, block.plane);
    window_fill_lines(p, memory, block.plane, first_row);

    int rest = layer_divide((int)threadIdx.x, p.by_unit_rows);
    int row = (int)threadIdx.x - rest * p.unit_rows;
    int local = layer_divide(rest, p.by_unit_columns);
    const int step_y = DILATED ? p.dilation_y : 1, step_x = DILATED ? p.dilation_x : 1;
    int column = rest - local * p.unit_columns;
    int before = DILATED ? layer_divide(column, p.by_dilation) * step_x : column; // units
    column += before * (T - 1);
    int plane = block.plane + local;
    bool valid = local < p.block_planes && plane < p.planes && first_row + row < p.out_height;
    int right = p.out_width - first_column - column; // columns of outputs
    int count = valid ? min(T, (right + step_x - 1) / step_x) : 0;
    local = min(local, p.block_planes - 1);
    const float *in = memory.samples + (local * p.chunk * p.in_rows + row * S) * p.pitch +
                      column * S + before * S;
    int group = plane - layer_divide(plane, p.by_groups) * p.groups;
    int64_t at = window_output(p, plane, first_row + row, first_column + column);
    // Weights are read T taps before they are needed.
    const float *weights = p.weights + (int64_t)group * p.steps * p.channels * p.quads * 4;
    const float *last = weights + (int64_t)p.steps * p.channels * p.quads * 4 - T;
    float ahead[T];
    window_weights(ahead, (const float4 *)(const void *)weights);
#pragma unroll 1
    for (int step = 0; step < p.steps; step++) {
        float sum[1][T];
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[0][t] = __ldg(p.bias + group * p.steps + step);
#pragma unroll 1
        for (int channel = 0; channel < p.channels; channel += p.chunk) {
            int channels = min(p.chunk, p.channels - channel);
            if (step == 0 || p.chunk < p.channels)
                window_load(p, memory, first_column, channel, channels);
#pragma unroll 1
            for (int c = 0; c < channels; c++) {
                const float *line = in + c * p.in_rows * p.pitch;
#pragma unroll 1
                for (int u = 0; u < p.kernel_height; u++, line += p.pitch * step_y) {
                    float x[X + T];
#pragma unroll
                    for (int i = 0; i < X; i++)
                        x[i] = line[window_place(i) * step_x];
                    const float *next = line;
                    int v = 0;
#pragma unroll 2
                    for (; v + T <= p.kernel_width; v += T) { // T taps at a time
                        float factor[T];
#pragma unroll
                        for (int k = 0; k < T; k++)
                            factor[k] = ahead[k];
                        weights += weights < last ? T : 0;
                        window_weights(ahead, (const float4 *)(const void *)weights);
                        window_add_taps<S, true>(sum, x, next, step_x, factor, T);
                        next += window_place(T) * step_x;
                    }
                    if (v < p.kernel_width) {
                        window_add_taps<S, false>(sum, x, next, step_x, ahead, p.kernel_width - v);
                        weights += weights < last ? T : 0;
                        window_weights(ahead, (const float4 *)(const void *)weights);
                    }
                }
            }
        }
        if (step < p.maps)
            window_store<T>(p, at + (int64_t)step * p.out_height * p.out_width, step_x, count, sum);
    }
}

#endif
