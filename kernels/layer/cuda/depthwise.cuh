// SPDX-License-Identifier: MIT
// Depthwise layers of cuda_layer_window, where memory is the limit: blocks stay on their
// multiprocessor and compute one tile after the other, whole planes or rows of one plane. The
// weights and samples of the next tile are copied in vectors, with zeros between rows for the
// padding, while a thread computes R outputs of some columns from 16-byte reads.
#pragma once

#include "kernels/layer/cuda/layer_window.cuh"

struct depthwise_launch {
    const void *src;
    void *dst;
    const float *weights;                  // [channel][quads of H x K taps and the bias]
    int64_t src_row, src_plane, src_image; // bytes
    // Planes of a part follow each other at equal distances, and no tile has planes of two parts.
    int part_planes, part_tiles;
    int64_t part_step; // bytes from one part to the next
    int channels, maps, height, width, out_height, out_width, pad_top, kernel_height;
    int quads;
    // Tiles: whole planes, or strips of R outputs of one plane.
    int count, block_planes, strips, tiles; // tiles of all planes, and of a plane
    // In shared memory: floats from a plane of a tile to the next; the place of a row's first
    // sample, so that windows begin at multiples of four; floats of a buffer, of which there are
    // two, and of its samples, which the weights follow.
    int plane_floats, pitch, first, room, samples;
    // Rows of a plane that are copied, the first one to row `skip`; of a row: pieces of `piece`
    // floats.
    int copy_rows, skip, piece, row_pieces;
    // In a turn, threads copy `across` pieces of `down` rows of a plane; or, where they are more
    // than its pieces, of all its rows and of `turn_planes` planes. From a turn to the next: bytes,
    // and floats in shared memory.
    int across, down, turn_planes, turn_floats;
    int64_t turn_bytes;
    int units, columns; // a unit is a strip of some columns; units of a strip
    layer_divider by_channels, by_tiles, by_part_tiles, by_across, by_down, by_quads;
    int activation, half;
    int direct; // threads store what they have; otherwise outputs pass through shared memory
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

template <int R>
__device__ inline depthwise_tile depthwise_find(const depthwise_launch &p, int number)
{
    depthwise_tile tile;
    tile.part = layer_divide(number, p.by_part_tiles);
    number -= tile.part * p.part_tiles;
    int group = layer_divide(number, p.by_tiles);
    tile.plane = group * p.block_planes;
    tile.planes = min(p.block_planes, p.part_planes - tile.plane);
    tile.row = (number - group * p.tiles) * p.strips * R;
    return tile;
}

// Starts copying a tile's samples, N at a time and in turns. With whole planes, rows outside stay
// zeros.
template <int S, int N>
__device__ inline void depthwise_copy(const depthwise_launch &p, float *samples,
                                      const depthwise_tile &tile)
{
    int rest = layer_divide((int)threadIdx.x, p.by_across), x = (int)threadIdx.x - rest * p.across;
    int n = layer_divide(rest, p.by_down), y = rest - n * p.down; // plane and row
    int row = tile.row * S - p.pad_top + p.skip;                  // the first one
    int begin = max(-row, 0), end = min(p.height - row, p.copy_rows);
    const char *src =
        (const char *)p.src + tile.part * p.part_step + tile.plane * p.src_plane + row * p.src_row;
    bool by_planes = p.turn_planes > 0;
    int first = y, last = n > 0 ? 0 : p.copy_rows, step = p.down, planes = tile.planes;
    if (by_planes) { // of one row, which is inside or not
        first = n, last = n < p.turn_planes ? planes : 0, step = p.turn_planes;
        end = y >= begin && y < end ? last : 0;
        begin = 0;
    }
#pragma unroll 1
    for (; n < planes; n += by_planes ? planes : 1)
#pragma unroll 1
        for (int k = x; k < p.row_pieces; k += p.across) {
            const char *from = src + n * p.src_plane + y * p.src_row + k * (N * 4);
            float *to = samples + n * p.plane_floats + (y + p.skip) * p.pitch + p.first + k * N;
#pragma unroll 4
            for (int i = first; i < last; i += step, from += p.turn_bytes, to += p.turn_floats)
                __pipeline_memcpy_async(to, from, N * 4, i >= begin && i < end ? 0 : N * 4);
        }
}

// The same with the weights of a tile's planes.
__device__ inline void depthwise_copy_weights(const depthwise_launch &p, float *to,
                                              const depthwise_tile &tile)
{
    int first = tile.part * p.part_planes + tile.plane;
    first -= layer_divide(first, p.by_channels) * p.channels;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < tile.planes * p.quads; i += (int)blockDim.x) {
        int n = layer_divide(i, p.by_quads), channel = first + n;
        channel -= layer_divide(channel, p.by_channels) * p.channels;
        int64_t quad = channel * (int64_t)p.quads + i - n * p.quads;
        __pipeline_memcpy_async(to + i * 4, p.weights + quad * 4, 16);
    }
}

template <int S, int R>
__device__ inline void depthwise_load(const depthwise_launch &p, float *buffer, int number)
{
    if (number < p.count) {
        depthwise_tile tile = depthwise_find<R>(p, number);
        depthwise_copy_weights(p, buffer + p.samples, tile);
        if (p.piece == 4)
            depthwise_copy<S, 4>(p, buffer, tile);
        else if (p.piece == 2)
            depthwise_copy<S, 2>(p, buffer, tile);
        else
            depthwise_copy<S, 1>(p, buffer, tile);
    }
    __pipeline_commit();
}

// The sums of a strip of C columns: rows from top to bottom, each is the sample of another kernel
// row to each output. The direction of columns alternates, so that neighbouring multiply-adds share
// an operand.
template <int H, int K, int S, int R, int C>
__device__ inline void depthwise_add(float (&sum)[C][R], const float *in, int pitch,
                                     const float *weights, int quads)
{
    const int X = depthwise_window(K, S), OFFSET = depthwise_offset(K);
    const int ROWS = (R - 1) * S + H;
    float w[H * K + 1], x[2][X];
    layer_read<H * K + 1, 4>(w, weights);
    layer_read<X, 4>(x[0], in);
    layer_await(w);
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < R; i++)
            sum[c][i] = w[H * K];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        in += pitch;
        if (r + 1 < ROWS)
            layer_read<X, 4>(x[(r + 1) % 2], in);
        layer_await(x[r % 2]);
        // Never. But ptxas mixes no multiply-adds of two rows across a branch, so that 23 instead
        // of 36 in 100 read three new registers: 7x7 takes 0.95 to 0.97 times as long.
        if (H * K > 25 && R > 4 && quads < 0)
            __nanosleep(1);
#pragma unroll
        for (int v = 0; v < K; v++)
#pragma unroll
            for (int i = 0; i < R; i++) {
                const int u = r - i * S;
                if (u < 0 || u >= H)
                    continue;
#pragma unroll
                for (int k = 0; k < C; k++) {
                    const int c = i % 2 ? C - 1 - k : k;
                    sum[c][i] = fmaf(w[u * K + v], x[r % 2][OFFSET + c * S + v], sum[c][i]);
                }
            }
    }
}

// Stores a thread's outputs, rows of which begin at multiples of C.
template <int R, int C>
__device__ inline void depthwise_store_rows(const depthwise_launch &p, int64_t at, int count,
                                            const float (&sum)[C][R])
{
    float *to = (float *)p.dst + at;
#pragma unroll
    for (int i = 0; i < R; i++, to += p.out_width) {
        if (i >= count)
            continue;
        if constexpr (C == 4)
            layer_store4(to, make_float4(sum[0][i], sum[1][i], sum[2][i], sum[3][i]));
        else
            *(float2 *)(void *)to = {sum[0][i], sum[1][i]};
    }
}

// The same to shared memory, `columns` of C at most.
template <int R, int C>
__device__ inline void depthwise_keep(float *to, int pitch, int count, int columns,
                                      const float (&sum)[C][R])
{
#pragma unroll
    for (int i = 0; i < R; i++, to += pitch)
#pragma unroll
        for (int c = 0; c < C; c++)
            if (i < count && c < columns)
                to[c] = sum[c][i];
}

// Stores a tile's outputs, which are adjacent and as far from a multiple of four in shared memory.
template <typename Element>
__device__ inline void depthwise_store(const depthwise_launch &p, const float *outputs,
                                       int64_t first, int count)
{
    int shift = (int)(first % 4);
    Element *dst = (Element *)p.dst + (first - shift);
    for (int i = (int)threadIdx.x * 4; i < shift + count; i += (int)blockDim.x * 4) {
        if (p.activation != CONV_ACTIVATION_TANH && i >= shift && i + 4 <= shift + count)
            layer_store4(dst + i, *(const float4 *)(const void *)(outputs + i));
        else
            for (int k = max(i, shift); k < min(i + 4, shift + count); k++)
                layer_store(dst + k, layer_activate(p.activation, outputs[k]));
    }
}

// A thread computes one unit of each tile.
template <int H, int K, int S, int R, int THREADS, int BLOCKS>
static __global__ __launch_bounds__(THREADS, RESIDENT(THREADS, BLOCKS)) void depthwise(
    const __grid_constant__ depthwise_launch p)
{
    const int C = DEPTHWISE_COLUMNS(S);
    extern __shared__ float4 depthwise_shared[];
    float *buffer = (float *)(void *)depthwise_shared, *other = buffer + p.room;
    float *outputs = other + p.room;
    const int out_plane = p.out_height * p.out_width;
    const int rest = (int)threadIdx.x / p.columns,
              column = ((int)threadIdx.x - rest * p.columns) * C;
    const int local = rest / p.strips, row = (rest - local * p.strips) * R;
    const int from = local * p.plane_floats + row * S * p.pitch + column * S;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.room / 2; i += (int)blockDim.x)
        depthwise_shared[i] = make_float4(0, 0, 0, 0);
    __syncthreads(); // zeros are complete
    depthwise_load<S, R>(p, buffer, (int)blockIdx.x);
#pragma unroll 1
    for (int number = (int)blockIdx.x; number < p.count; number += (int)gridDim.x) {
        depthwise_load<S, R>(p, other, number + (int)gridDim.x);
        __pipeline_wait_prior(1);
        __syncthreads(); // the samples of all threads have arrived
        depthwise_tile tile = depthwise_find<R>(p, number);
        int first_plane = tile.part * p.part_planes + tile.plane;
        int count = min(R, p.out_height - tile.row - row);
        int64_t first = (int64_t)first_plane * out_plane + (int64_t)tile.row * p.out_width;
        if ((int)threadIdx.x < p.units && local < tile.planes && count > 0) {
            int at = local * out_plane + row * p.out_width + column;
            float sum[C][R];
            depthwise_add<H, K, S>(sum, buffer + from, p.pitch,
                                   buffer + p.samples + local * p.quads * 4, p.quads);
            activate_outputs<R, C>(p.activation, sum);
            if (p.direct)
                depthwise_store_rows(p, first + at, count, sum);
            else
                depthwise_keep(outputs + first % 4 + at, p.out_width, count, p.out_width - column,
                               sum);
        }
        __syncthreads(); // the samples have been read, and all outputs are there
        float *read = buffer;
        buffer = other;
        other = read;
        if (p.direct)
            continue;
        int rows = min(p.out_height - tile.row, p.strips * R);
        int stored = tile.planes * rows * p.out_width;
        if (p.half)
            depthwise_store<uint16_t>(p, outputs, first, stored);
        else
            depthwise_store<float>(p, outputs, first, stored);
    }
    __pipeline_wait_prior(0);
}
