// SPDX-License-Identifier: MIT
// The exact order for sums of few terms or few maps, depthwise layers among them, where memory is
// the limit: a block copies all samples that its outputs need to shared memory once, and a thread
// computes some outputs of one column, for some maps at a time.
#pragma once

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
    int planes, inner; // of all images; of an image or, for window_any, of a group: see below
    int height, width, out_height, out_width, pad_top, pad_left, dilation_y, dilation_x;
    int groups, channels, maps, steps;              // channels and maps of a group
    int kernel_height, kernel_width, stride, quads; // quads: of a channel's weights in a step
    // Of a block: planes, units of columns and rows that a thread computes, and tiles of a plane.
    int block_planes, unit_columns, unit_rows, tiles_x, tiles_y;
    // Samples of a plane; channels in shared memory; floats from a plane to the next there.
    int in_rows, in_columns, pitch, chunk, plane_floats;
    // Samples before the first window, so that rows are copied in pieces of four, or 0; of a piece.
    int lead, piece;
    int staged; // quads of weights of a group that are copied to shared memory with samples, or 0
    int lane_planes; // window_any: of planes, rows and columns, neighbouring threads have
    layer_divider by_inner, by_tiles, by_tiles_x, by_unit_columns, by_unit_rows, by_in_columns,
        by_in_rows, by_dilation, by_skew, by_lane_planes;
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
    float4 *weights;    // [block_planes][staged]
    float *samples;     // [block_planes][chunk][in_rows][pitch]
};

struct window_block {
    int plane, row, column; // the first plane, and the number of the tile
};

struct window_index {
    int image, group;
};

// The planes of an image follow each other, or those of a group.
template <bool BY_GROUP>
__device__ inline window_index window_index_of(const window_launch &p, int plane)
{
    int outer = layer_divide(plane, p.by_inner), inner = plane - outer * p.inner;
    return BY_GROUP ? window_index{inner, outer} : window_index{outer, inner};
}

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

// `top`, and `left` below: the first row and column of the input that are copied.
template <bool BY_GROUP>
__device__ inline void window_fill_lines(const window_launch &p, const window_memory &memory,
                                         int plane, int top)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.block_planes * p.in_rows; i += (int)blockDim.x) {
        int n = layer_divide(i, p.by_in_rows), y = i - n * p.in_rows;
        int row = top + y;
        bool inside = plane + n < p.planes && row >= 0 && row < p.height;
        window_index of = window_index_of<BY_GROUP>(p, plane + n);
        window_line line;
        line.at = inside ? of.image * p.src_image + (int64_t)of.group * p.channels * p.src_plane +
                               row * p.src_row
                         : -1;
        line.place = (int64_t)n * p.plane_floats + y * p.pitch;
        memory.lines[i] = line;
    }
}

// Brings a block's weights to the L2 cache, all at once, while it waits for samples: one after the
// other they take longer than the multiply-adds.
template <bool BY_GROUP> __device__ inline void window_fetch(const window_launch &p, int plane)
{
    int planes = min(p.block_planes, p.planes - plane);
    int first = window_index_of<BY_GROUP>(p, plane).group;
    int groups = BY_GROUP ? window_index_of<true>(p, plane + planes - 1).group - first + 1
                          : min(planes, p.groups - first);
    int64_t bytes = (int64_t)p.steps * p.channels * p.quads * 16;
    const char *from = (const char *)p.weights + first * bytes;
#pragma unroll 1
    for (int64_t i = (int)threadIdx.x * 128; i < groups * bytes; i += (int)blockDim.x * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i));
}

// Starts copying the weights of a block's planes, which arrive with the first samples.
__device__ inline void window_stage(const window_launch &p, const window_memory &memory, int plane)
{
    const float4 *from = (const float4 *)(const void *)p.weights;
#pragma unroll 1
    for (int n = 0; n < min(p.block_planes, p.planes - plane); n++) {
        int64_t first = (int64_t)window_index_of<false>(p, plane + n).group * p.staged;
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < p.staged; i += (int)blockDim.x)
            __pipeline_memcpy_async(memory.weights + n * p.staged + i, from + first + i, 16);
    }
}

// Copies `count` channels from `channel` on to shared memory, N samples at a time.
template <int N, bool ONE>
__device__ inline void window_copy(const window_launch &p, const window_memory &memory, int left,
                                   int channel, int count)
{
    const char *src = (const char *)p.src + channel * p.src_plane;
    int channel_floats = p.in_rows * p.pitch, across = p.in_columns / N;
    int pieces = p.block_planes * p.in_rows * across;
    // Several pieces at a time, because finding one takes long.
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < pieces; i += (int)blockDim.x) {
        int y = layer_divide(i, p.by_in_columns), x = (i - y * across) * N;
        window_line line = memory.lines[y];
        bool outside = line.at < 0 || (unsigned)(left + x) >= (unsigned)p.width;
        const char *from = src + line.at + (left + x) * 4;
        float *to = memory.samples + line.place + x + layer_divide(x, p.by_skew) * p.dilation_x;
#pragma unroll 1
        for (int c = 0; c < (ONE ? 1 : count); c++, from += p.src_plane, to += channel_floats)
            if (N == 4)
                __pipeline_memcpy_async(to, from, 16, outside ? 16 : 0);
            else
                layer_copy(to, (const float *)(const void *)from, outside);
    }
}

// The same, and waits until they have arrived for all threads; the channels before have been read.
template <bool PIECES>
__device__ inline void window_load(const window_launch &p, const window_memory &memory, int left,
                                   int channel, int count)
{
    __syncthreads(); // the lines are complete, and the samples before were read
    if (PIECES && p.piece == 4)
        window_copy<4, false>(p, memory, left, channel, count);
    else if (count == 1)
        window_copy<1, true>(p, memory, left, channel, 1);
    else
        window_copy<1, false>(p, memory, left, channel, count);
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
__device__ inline int64_t window_output(const window_launch &p, window_index of, int row,
                                        int column)
{
    int64_t plane = (int64_t)of.image * p.groups + of.group;
    return (plane * p.maps * p.out_height + row) * p.out_width + column;
}

__device__ inline window_memory window_memory_of(const window_launch &p, float4 *shared)
{
    window_memory memory;
    memory.lines = (window_line *)(void *)shared;
    memory.weights = (float4 *)(void *)(memory.lines + p.block_planes * p.in_rows);
    memory.samples = (float *)(void *)(memory.weights + p.block_planes * p.staged);
    return memory;
}

// Adds a channel, whose samples begin at `in`. Rows from top to bottom: each is the sample of
// another kernel row to each output.
template <int K, int S, int MT>
__device__ inline void window_add(float (&sum)[MT][1][WINDOW_ROWS], const float *in, int pitch,
                                  int step, const float4 *weights)
{
    float w[(K * K * MT + 3) / 4 * 4];
    layer_read<(K * K * MT + 3) / 4 * 4, 4>(w, (const float *)(const void *)weights);
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
    if (p.staged > 0)
        window_stage(p, memory, block.plane);
    else
        window_fetch<false>(p, block.plane);
    window_fill_lines<false>(p, memory, block.plane, first_row * S - p.pad_top);

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
        memory.samples + local * p.plane_floats + row * S * p.pitch + column * S + p.lead;
    window_index of = window_index_of<false>(p, plane);
    int64_t at = window_output(p, of, first_row + row, first_column + column);
    const float4 *weights = p.staged > 0 ? memory.weights + local * p.staged
                                         : (const float4 *)(const void *)p.weights +
                                               (int64_t)of.group * p.steps * p.channels * p.quads;
    const float *bias = p.bias + (int64_t)of.group * p.steps * MT;
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
                window_load<true>(p, memory, first_column * S - p.pad_left - p.lead, channel,
                                  channels);
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

// An output of window_any, one product after the other. It leaves out products with padding, which
// are zeros: they change a sum only from -0 to 0, unless a weight is infinite or NaN.
template <int>
__device__ __attribute__((noinline)) float window_define(const window_launch &p, window_index of,
                                                         int map, int row, int column)
{
    const int row_taps = p.quads * 4 / p.kernel_height;
    const float *weights = p.weights + (int64_t)map * p.channels * p.quads * 4;
    float sum = p.bias[map];
#pragma unroll 1
    for (int c = 0; c < p.channels; c++)
#pragma unroll 1
        for (int u = 0; u < p.kernel_height; u++, weights += row_taps)
#pragma unroll 1
            for (int v = 0; v < p.kernel_width; v++) {
                int y = row * p.stride - p.pad_top + u * p.dilation_y;
                int x = column * p.stride - p.pad_left + v * p.dilation_x;
                const char *from = (const char *)p.src + of.image * p.src_image +
                                   ((int64_t)of.group * p.channels + c) * p.src_plane +
                                   y * p.src_row + x * 4;
                bool inside = (unsigned)y < (unsigned)p.height && (unsigned)x < (unsigned)p.width;
                sum = fmaf(weights[v], inside ? *(const float *)(const void *)from : 0, sum);
            }
    return sum;
}

// Whether the weights of a block's planes for a step of maps are finite.
__device__ inline bool window_finite(const window_launch &p, int plane, int step)
{
    int group = window_index_of<true>(p, plane).group;
    int last = window_index_of<true>(p, min(plane + p.block_planes, p.planes) - 1).group;
    int quads = p.channels * p.quads;
    float zero = 0;
    for (; group <= last; group++)
        for (int i = (int)threadIdx.x; i < quads; i += (int)blockDim.x) {
            float w[4];
            layer_read<4, 4>(w, p.weights + (((int64_t)group * p.steps + step) * quads + i) * 4);
            zero += (w[0] + w[1]) * 0 + (w[2] + w[3]) * 0;
        }
    return !__syncthreads_or(zero != 0);
}

__device__ inline int lanes_least(int value)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        value = min(value, __shfl_xor_sync(ALL_LANES, value, step));
    return value;
}

// Kernels of any size, for which arithmetic is the limit: a thread computes outputs of a row, which
// are dilation_x apart, whose samples move through registers. A warp leaves out kernel rows and
// taps that meet padding alone. Lanes are rows of an odd pitch or, where many rows meet padding,
// planes of a group.
template <int S, bool DILATED>
static __global__ __launch_bounds__(WINDOW_ANY_THREADS,
                                    4) void window_any(const __grid_constant__ window_launch p)
{
    extern __shared__ float4 window_shared[];
    const int T = WINDOW_COLUMNS, X = (T - 1) * S;
    window_memory memory = window_memory_of(p, window_shared);
    window_block block = window_find(p);
    const int step_y = DILATED ? p.dilation_y : 1, step_x = DILATED ? p.dilation_x : 1;
    int first_row = block.row * p.unit_rows, first_column = block.column * p.unit_columns * T;
    int left = first_column * S - p.pad_left, top = max(first_row * S - p.pad_top, 0);
    int skipped = max(-left / step_x - X, 0) / T; // columns that no unit reads, T * step_x of them
    window_fetch<true>(p, block.plane);
    window_fill_lines<true>(p, memory, block.plane, top);
    float *zeros = memory.samples + p.block_planes * p.plane_floats;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.pitch; i += (int)blockDim.x)
        zeros[i] = 0;

    int quotient = layer_divide((int)threadIdx.x, p.by_lane_planes);
    int local = (int)threadIdx.x - quotient * p.lane_planes;
    int rest = layer_divide(quotient, p.by_unit_rows), row = quotient - rest * p.unit_rows;
    quotient = layer_divide(rest, p.by_unit_columns);
    int column = rest - quotient * p.unit_columns;
    local += quotient * p.lane_planes;
    int before = DILATED ? layer_divide(column, p.by_dilation) * step_x : column; // units
    column += before * (T - 1);
    int plane = block.plane + local;
    bool valid = local < p.block_planes && plane < p.planes && first_row + row < p.out_height;
    int right = p.out_width - first_column - column; // columns of outputs
    int count = valid ? min(T, (right + step_x - 1) / step_x) : 0;
    local = min(local, p.block_planes - 1);
    // Taps of a row and kernel rows that meet the plane; other threads of the warp add rows.
    int y = (first_row + row) * S - p.pad_top, x0 = left + column * S;
    int v_first = max((-x0 + step_x - 1) / step_x - X, 0) / T * T;
    int v_end = min(p.kernel_width, (p.width - x0 + step_x - 1) / step_x);
    bool meets = count > 0 && y < p.height && -y < p.kernel_height * step_y;
    int u_first = lanes_least(meets ? (max(-y, 0) + step_y - 1) / step_y : p.kernel_height);
    int u_end = min(p.kernel_height, (p.height - y + step_y - 1) / step_y);
    u_end = -lanes_least(meets ? -u_end : 0);
    int offset =
        (column + before) * S + (window_place(v_first) - window_place(skipped * T)) * step_x;
    offset = v_first < v_end ? offset : 0;
    const float *in = memory.samples + local * p.plane_floats + offset;
    zeros += offset;
    window_index of = window_index_of<true>(p, min(plane, p.planes - 1));
    int64_t at = window_output(p, of, first_row + row, first_column + column);
    // Weights are read T taps before they are needed; the last ones read are not there.
    const int row_taps = (p.kernel_width + T - 1) / T * T;
    const int jump = row_taps - max(v_end - v_first - 1, 0) / T * T; // to those of the next row
    const float *weights = p.weights + (int64_t)of.group * p.steps * p.channels * p.quads * 4;
#pragma unroll 1
    for (int step = 0; step < p.steps; step++) {
        float sum[1][T];
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[0][t] = __ldg(p.bias + of.group * p.steps + step);
#pragma unroll 1
        for (int channel = 0; channel < p.channels; channel += p.chunk) {
            int channels = min(p.chunk, p.channels - channel);
            if (step == 0 || p.chunk < p.channels)
                window_load<false>(p, memory, left + skipped * T * step_x, channel, channels);
#pragma unroll 1
            for (int c = 0; c < channels; c++, weights += p.quads * 4) {
                const float *w = weights + u_first * row_taps + v_first;
                float ahead[T];
                layer_read<T, 4>(ahead, w);
                int line_row = y - top + u_first * step_y;
                const float *line = in + (c * p.in_rows + line_row) * p.pitch;
#pragma unroll 1
                for (int u = u_first; u < u_end;
                     u++, line_row += step_y, line += p.pitch * step_y) {
                    const float *next = (unsigned)line_row < (unsigned)p.in_rows ? line : zeros;
                    float x[X + T];
#pragma unroll
                    for (int i = 0; i < X; i++)
                        x[i] = next[window_place(i) * step_x];
                    int v = v_first;
#pragma unroll 2
                    for (; v + T <= v_end; v += T) { // T taps at a time
                        float factor[T];
#pragma unroll
                        for (int k = 0; k < T; k++)
                            factor[k] = ahead[k];
                        w += v + T < v_end ? T : jump;
                        layer_read<T, 4>(ahead, w);
                        window_add_taps<S, true>(sum, x, next, step_x, factor, T);
                        next += window_place(T) * step_x;
                    }
                    if (v < v_end) {
                        window_add_taps<S, false>(sum, x, next, step_x, ahead, v_end - v);
                        w += jump;
                        layer_read<T, 4>(ahead, w);
                    }
                }
            }
        }
        const bool finite = window_finite(p, block.plane, step);
#pragma unroll
        for (int t = 0; t < T; t++)
            if (t < count && (!finite || __float_as_uint(sum[0][t]) == 1u << 31))
                sum[0][t] = window_define<0>(p, of, of.group * p.steps + step, first_row + row,
                                             first_column + column + t * step_x);
        if (step < p.maps)
            window_store<T>(p, at + (int64_t)step * p.out_height * p.out_width, step_x, count, sum);
    }
}
