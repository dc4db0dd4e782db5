// SPDX-License-Identifier: MIT
// Depthwise layers of cuda_layer_window, where memory is the limit: blocks stay on their
// multiprocessor and compute one tile after the other, whole planes or rows of one plane. The
// samples of the next tile are copied in vectors, with zeros between rows for the padding, while a
// thread computes WINDOW_ROWS outputs of some columns from 16-byte reads.
#ifndef CONV_KERNELS_LAYER_CUDA_DEPTHWISE_CUH
#define CONV_KERNELS_LAYER_CUDA_DEPTHWISE_CUH

#include "kernels/layer/cuda/layer_window.cuh"

struct depthwise_launch {
    const void *src;
    void *dst;
    const float *weights; // [channel][quads of K x K taps]
    const float *bias;
    int64_t src_row, src_plane, src_image; // bytes
    // Planes of a part follow each other at equal distances, and no tile has planes of two parts.
    int part_planes, part_tiles;
    int64_t part_step; // bytes from one part to the next
    int channels, maps, height, width, out_height, out_width, pad_top, kernel_height;
    int quads;
    // Tiles: whole planes, or strips of WINDOW_ROWS outputs of one plane.
    int count, block_planes, strips, tiles; // tiles of all planes, and of a plane
    // In shared memory: from a plane of a tile to the next, in rows; the place of a row's first
    // sample, so that windows begin at multiples of four; floats of a buffer, of which there are
    // two.
    int plane_rows, pitch, first, room;
    // Rows of a plane that are copied, the first one to row `skip`; of a row: pieces of `piece`
    // floats.
    int copy_rows, skip, piece, row_pieces;
    int across, down;   // pieces of a row and rows that threads copy at a time
    int units, columns; // a unit is a strip of some columns; units of a strip
    layer_divider by_channels, by_tiles, by_part_tiles, by_across, by_copy_rows;
    int activation, half;
    int direct; // threads store what they have; otherwise outputs pass through shared memory
};

// Where a row of a tile is: floats from the tile's first sample, and in a buffer.
struct depthwise_line {
    int from, to;
};

// Columns of a thread: those of four samples.
#define DEPTHWISE_COLUMNS(stride) (4 / (stride))

// Floats between the multiple of four before a thread's window and the window, if pads are those of
// `same`. With others, rows are placed so that it is the same.
__host__ __device__ static constexpr int depthwise_offset(int side)
{
    return 3 - (side / 2 + 3) % 4;
}

// Floats that a thread reads of each row.
__host__ __device__ static constexpr int depthwise_window(int side, int stride)
{
    return (depthwise_offset(side) + (DEPTHWISE_COLUMNS(stride) - 1) * stride + side + 3) / 4 * 4;
}

struct depthwise_tile {
    int part, plane, planes, row; // the first plane of the part, how many there are; the first row
};

__device__ inline depthwise_tile depthwise_find(const depthwise_launch &p, int number)
{
    depthwise_tile tile;
    tile.part = layer_divide(number, p.by_part_tiles);
    number -= tile.part * p.part_tiles;
    int group = layer_divide(number, p.by_tiles);
    tile.plane = group * p.block_planes;
    tile.planes = min(p.block_planes, p.part_planes - tile.plane);
    tile.row = (number - group * p.tiles) * p.strips * WINDOW_ROWS;
    return tile;
}

__device__ inline void depthwise_fill_lines(const depthwise_launch &p, depthwise_line *lines)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.block_planes * p.copy_rows; i += (int)blockDim.x) {
        int n = layer_divide(i, p.by_copy_rows), row = i - n * p.copy_rows;
        depthwise_line line;
        line.from = (int)((n * p.src_plane + row * p.src_row) / 4);
        line.to = (n * p.plane_rows + row + p.skip) * p.pitch + p.first;
        lines[i] = line;
    }
}

// Starts copying a tile's samples, N at a time: threads copy `down` rows at a time. With whole
// planes, rows outside stay zeros.
template <int S, int N>
__device__ inline void depthwise_copy(const depthwise_launch &p, float *samples,
                                      const depthwise_line *lines, int number)
{
    depthwise_tile tile = depthwise_find(p, number);
    int first = layer_divide((int)threadIdx.x, p.by_across);
    int row = tile.row * S - p.pad_top + p.skip; // the first one
    int begin = max(-row, 0), count = first < p.down ? tile.planes * p.copy_rows : 0;
    int inside = p.tiles == 1 ? count : min(p.height - row, p.copy_rows) - begin;
    const float *from =
        (const float *)(const void *)((const char *)p.src + tile.part * p.part_step +
                                      tile.plane * p.src_plane + row * p.src_row);
#pragma unroll 1
    for (int k = (int)threadIdx.x - first * p.across; k < p.row_pieces; k += p.across)
#pragma unroll 4
        for (int y = first; y < count; y += p.down) {
            depthwise_line line = lines[y];
            size_t zeros = (unsigned)(y - begin) < (unsigned)inside ? 0 : N * 4;
            __pipeline_memcpy_async(samples + k * N + line.to, from + k * N + line.from, N * 4,
                                    zeros);
        }
}

template <int S>
__device__ inline void depthwise_load(const depthwise_launch &p, float *samples,
                                      const depthwise_line *lines, int number)
{
    if (number < p.count) {
        if (p.piece == 4)
            depthwise_copy<S, 4>(p, samples, lines, number);
        else if (p.piece == 2)
            depthwise_copy<S, 2>(p, samples, lines, number);
        else
            depthwise_copy<S, 1>(p, samples, lines, number);
    }
    __pipeline_commit();
}

// A strip of C columns: rows from top to bottom, each is the sample of another kernel row to each
// output. The direction of columns alternates, so that neighbouring multiply-adds share an operand.
template <int K, int S, int C>
__device__ inline void depthwise_add(float (&sum)[C][WINDOW_ROWS], const float *in, int pitch,
                                     const float4 *weights)
{
    const int X = depthwise_window(K, S), OFFSET = depthwise_offset(K);
    const int ROWS = (WINDOW_ROWS - 1) * S + K;
    float w[(K * K + 3) / 4 * 4], x[2][X];
    window_weights(w, weights);
    layer_read<X, 4>(x[0], in);
    layer_await(w);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        in += pitch;
        if (r + 1 < ROWS)
            layer_read<X, 4>(x[(r + 1) % 2], in);
        layer_await(x[r % 2]);
#pragma unroll
        for (int v = 0; v < K; v++)
#pragma unroll
            for (int i = 0; i < WINDOW_ROWS; i++) {
                const int u = r - i * S;
                if (u < 0 || u >= K)
                    continue;
#pragma unroll
                for (int k = 0; k < C; k++) {
                    const int c = i % 2 ? C - 1 - k : k;
                    sum[c][i] = fmaf(w[u * K + v], x[r % 2][OFFSET + c * S + v], sum[c][i]);
                }
            }
    }
}

__device__ inline void depthwise_pair(float *to, float a, float b)
{
    float2 pair;
    pair.x = a;
    pair.y = b;
    *(float2 *)(void *)to = pair;
}

// Stores a thread's outputs, rows of which begin at multiples of C.
template <int C>
__device__ inline void depthwise_store_rows(const depthwise_launch &p, int64_t at, int count,
                                            const float (&sum)[C][WINDOW_ROWS])
{
    float *to = (float *)p.dst + at;
#pragma unroll
    for (int i = 0; i < WINDOW_ROWS; i++, to += p.out_width) {
        if (i >= count)
            continue;
        if constexpr (C == 4)
            layer_store4(to, make_float4(sum[0][i], sum[1][i], sum[2][i], sum[3][i]));
        else
            depthwise_pair(to, sum[0][i], sum[1][i]);
    }
}

// The same to shared memory, `columns` of C at most; in pairs if rows are of even length.
template <int C>
__device__ inline void depthwise_keep(float *to, int pitch, int count, int columns,
                                      const float (&sum)[C][WINDOW_ROWS])
{
#pragma unroll
    for (int i = 0; i < WINDOW_ROWS; i++, to += pitch)
#pragma unroll
        for (int c = 0; c < C; c += 2) {
            if (i >= count || c >= columns)
                continue;
            if (pitch % 2 == 0) {
                depthwise_pair(to + c, sum[c][i], sum[c + 1][i]);
            } else {
                to[c] = sum[c][i];
                if (c + 1 < columns)
                    to[c + 1] = sum[c + 1][i];
            }
        }
}

// Stores a tile's outputs, which are adjacent.
template <typename Element>
__device__ inline void depthwise_store(const depthwise_launch &p, const float *outputs,
                                       int64_t first, int count)
{
    Element *dst = (Element *)p.dst + first;
    if (p.activation == CONV_ACTIVATION_TANH || first % 4) {
        for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
            layer_store(dst + i, layer_activate(p.activation, outputs[i]));
        return;
    }
    for (int i = (int)threadIdx.x * 4; i < count; i += (int)blockDim.x * 4) {
        float4 quad = *(const float4 *)(const void *)(outputs + i);
        if (i + 4 <= count)
            layer_store4(dst + i, quad);
        else
            for (int k = i; k < count; k++)
                layer_store(dst + k, outputs[k]);
    }
}

// A thread computes one unit of each tile.
template <int K, int S, int THREADS, int BLOCKS>
static __global__
__launch_bounds__(THREADS, BLOCKS) void depthwise(const __grid_constant__ depthwise_launch p)
{
    const int C = DEPTHWISE_COLUMNS(S);
    extern __shared__ float4 depthwise_shared[];
    float *buffer = (float *)(void *)depthwise_shared, *other = buffer + p.room;
    depthwise_line *lines = (depthwise_line *)(void *)(other + p.room);
    float *outputs = (float *)(void *)(lines + (p.block_planes * p.copy_rows + 1) / 2 * 2);
    const int out_plane = p.out_height * p.out_width;
    const int rest = (int)threadIdx.x / p.columns,
              column = ((int)threadIdx.x - rest * p.columns) * C;
    const int local = rest / p.strips, row = (rest - local * p.strips) * WINDOW_ROWS;
    const int from = (local * p.plane_rows + row * S) * p.pitch + column * S;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.room / 2; i += (int)blockDim.x)
        depthwise_shared[i] = make_float4(0, 0, 0, 0);
    depthwise_fill_lines(p, lines);
    if ((int)blockIdx.x < p.count) {
        depthwise_tile tile = depthwise_find(p, (int)blockIdx.x);
        int plane = tile.part * p.part_planes + tile.plane + min(local, tile.planes - 1);
        int channel = plane - layer_divide(plane, p.by_channels) * p.channels;
        // The first weights come while samples do.
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p.weights + channel * p.quads * 4));
    }
    __syncthreads(); // zeros and lines are complete
    depthwise_load<S>(p, buffer, lines, (int)blockIdx.x);
#pragma unroll 1
    for (int number = (int)blockIdx.x; number < p.count; number += (int)gridDim.x) {
        depthwise_load<S>(p, other, lines, number + (int)gridDim.x);
        __pipeline_wait_prior(1);
        __syncthreads(); // the samples of all threads have arrived
        depthwise_tile tile = depthwise_find(p, number);
        int first_plane = tile.part * p.part_planes + tile.plane, plane = first_plane + local;
        int count = min(WINDOW_ROWS, p.out_height - tile.row - row);
        int64_t first = (int64_t)first_plane * out_plane + (int64_t)tile.row * p.out_width;
        if ((int)threadIdx.x < p.units && local < tile.planes && count > 0) {
            int channel = plane - layer_divide(plane, p.by_channels) * p.channels;
            int at = local * out_plane + row * p.out_width + column;
            float sum[C][WINDOW_ROWS], bias = __ldg(p.bias + channel);
#pragma unroll
            for (int c = 0; c < C; c++)
#pragma unroll
                for (int i = 0; i < WINDOW_ROWS; i++)
                    sum[c][i] = bias;
            depthwise_add<K, S, C>(sum, buffer + from, p.pitch,
                                   (const float4 *)(const void *)p.weights + channel * p.quads);
            activate_outputs<WINDOW_ROWS, C>(p.activation, sum);
            if (p.direct) {
                depthwise_store_rows<C>(p, first + at, count, sum);
            } else {
                depthwise_keep<C>(outputs + at, p.out_width, count, p.out_width - column, sum);
            }
        }
        __syncthreads(); // the samples have been read, and all outputs are there
        float *read = buffer;
        buffer = other;
        other = read;
        if (p.direct)
            continue;
        int rows = min(p.out_height - tile.row, p.strips * WINDOW_ROWS);
        int stored = tile.planes * rows * p.out_width;
        if (p.half)
            depthwise_store<uint16_t>(p, outputs, first, stored);
        else
            depthwise_store<float>(p, outputs, first, stored);
    }
    __pipeline_wait_prior(0);
}

#endif
