// SPDX-License-Identifier: MIT
// Depthwise layers of cuda_layer_window, where memory is the limit: a block copies rows of one
// plane or whole planes to shared memory in vectors, with zeros between them for the padding of
// their columns, a thread computes some outputs of a few columns, and outputs pass through shared
// memory.
#ifndef CONV_KERNELS_LAYER_CUDA_DEPTHWISE_CUH
#define CONV_KERNELS_LAYER_CUDA_DEPTHWISE_CUH

#include "kernels/layer/cuda/layer_window.cuh"

struct depthwise_launch {
    const void *src;
    void *dst;
    const float *weights; // [channel][quads of K x K taps]
    const float *bias;
    int64_t src_row, src_plane, src_image; // bytes
    int planes;                            // of all images
    int channels, maps, height, width, out_height, out_width, pad_top, pad_left, kernel_height;
    int quads;
    // Of a block: whole planes, or a tile of rows of one plane. Rows lie `pitch` floats apart,
    // after `gap` zeros each.
    int block_planes, strips, tiles; // strips of WINDOW_ROWS outputs
    int in_rows, pitch, gap;
    int piece, row_pieces; // floats that are copied at a time, 0: of planes without gaps; of a row
    int units, columns;    // a unit is a strip of some columns; units of a strip
    layer_divider by_channels, by_tiles, by_row_pieces, by_in_rows, by_columns, by_strips, by_width,
        by_height;
    int activation, half;
};

// Floats of samples: threads read up to `columns` - 1 beyond the last one that is needed.
__host__ __device__ static inline int depthwise_room(int floats, int columns)
{
    return (floats + columns - 1 + 3) & ~3;
}

// Starts copying the block's samples. Rows are numbered through all planes of the block.
template <int N>
__device__ inline void depthwise_copy(const depthwise_launch &p, float *samples, int first_plane,
                                      int first_row)
{
    int count = p.block_planes * p.in_rows * p.row_pieces;
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
        int y = layer_divide(i, p.by_row_pieces), x = (i - y * p.row_pieces) * N;
        int n = layer_divide(y, p.by_in_rows), row = first_row + y - n * p.in_rows;
        int plane = first_plane + n, image = layer_divide(plane, p.by_channels);
        bool inside = plane < p.planes && (unsigned)row < (unsigned)p.height;
        const char *from = (const char *)p.src + image * p.src_image +
                           (int64_t)(plane - image * p.channels) * p.src_plane + row * p.src_row +
                           x * 4;
        __pipeline_memcpy_async(samples + p.gap + y * p.pitch + x, inside ? from : p.src, N * 4,
                                inside ? 0 : N * 4);
    }
    __pipeline_commit();
    for (int y = (int)threadIdx.x; y <= p.block_planes * p.in_rows; y += (int)blockDim.x)
        for (int x = 0; x < p.gap; x++)
            samples[y * p.pitch + x] = 0;
    __pipeline_wait_prior(0);
}

// Copies whole planes that follow each other, whose rows are no vectors, from a multiple of 16
// bytes on; the last vector may end beyond them.
__device__ inline void depthwise_spread(const depthwise_launch &p, float *samples, int first_plane)
{
    int plane = p.height * p.width, rows = p.block_planes * p.in_rows;
    int floats = rows * p.pitch + p.gap;
    int count = min(p.block_planes, p.planes - first_plane) * plane;
    for (int i = (int)threadIdx.x; i < (floats + 3) / 4; i += (int)blockDim.x)
        ((float4 *)(void *)samples)[i] = make_float4(0, 0, 0, 0);
    __syncthreads(); // the zeros are complete
    const float4 *src = (const float4 *)p.src + (int64_t)first_plane * plane / 4;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < (count + 3) / 4; i += (int)blockDim.x) {
        float4 quad = __ldg(src + i);
        const float values[4] = {quad.x, quad.y, quad.z, quad.w};
        int y = layer_divide(i * 4, p.by_width), x = i * 4 - y * p.width;
        int n = layer_divide(y, p.by_height); // rows of planes before are followed by their pads
        y += n * (p.in_rows - p.height) + p.pad_top;
        int left = p.height - (y - p.pad_top - n * p.in_rows); // rows of this plane
        float *to = samples + p.gap + y * p.pitch + x;
#pragma unroll
        for (int k = 0; k < 4; k++, to++, x++) {
            if (x == p.width) {
                x = 0;
                left--;
                to += p.gap + (left == 0 ? (p.in_rows - p.height) * p.pitch : 0);
                left = left == 0 ? p.height : left;
            }
            if (i * 4 + k < count)
                *to = values[k];
        }
    }
}

// A strip of C columns: rows from top to bottom, each is the sample of another kernel row to each
// output.
template <int K, int S, int C>
__device__ inline void depthwise_add(float (&sum)[C][WINDOW_ROWS], const float *in, int pitch,
                                     const float4 *weights)
{
    const int X = (C - 1) * S + K;
    float w[(K * K + 3) / 4 * 4];
    window_weights(w, weights);
#pragma unroll
    for (int r = 0; r < (WINDOW_ROWS - 1) * S + K; r++, in += pitch) {
        float x[X];
#pragma unroll
        for (int v = 0; v < X; v++)
            x[v] = in[v];
#pragma unroll
        for (int v = 0; v < K; v++)
#pragma unroll
            for (int i = 0; i < WINDOW_ROWS; i++) {
                const int u = r - i * S;
                if (u < 0 || u >= K)
                    continue;
#pragma unroll
                for (int c = 0; c < C; c++)
                    sum[c][i] = fmaf(w[u * K + v], x[c * S + v], sum[c][i]);
            }
    }
}

// Stores a block's outputs, which are adjacent.
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

// C columns of a thread: an odd number of floats from one lane to the next has no bank conflicts.
template <int K, int S, int C, int THREADS, int BLOCKS>
static __global__
__launch_bounds__(THREADS, BLOCKS) void depthwise(const __grid_constant__ depthwise_launch p)
{
    extern __shared__ float4 depthwise_shared[];
    float *samples = (float *)(void *)depthwise_shared;
    int group = layer_divide((int)blockIdx.x, p.by_tiles), out_plane = p.out_height * p.out_width;
    int first_plane = group * p.block_planes;
    int first_row = ((int)blockIdx.x - group * p.tiles) * p.strips * WINDOW_ROWS;
    if (p.piece == 4)
        depthwise_copy<4>(p, samples, first_plane, first_row * S - p.pad_top);
    else if (p.piece == 2)
        depthwise_copy<2>(p, samples, first_plane, first_row * S - p.pad_top);
    else if (p.piece == 1)
        depthwise_copy<1>(p, samples, first_plane, first_row * S - p.pad_top);
    else
        depthwise_spread(p, samples, first_plane);
    __syncthreads(); // the samples of all threads have arrived
    float *outputs = samples + depthwise_room(p.block_planes * p.in_rows * p.pitch + p.gap, C);
#pragma unroll 1
    for (int unit = (int)threadIdx.x; unit < p.units; unit += (int)blockDim.x) {
        int rest = layer_divide(unit, p.by_columns), column = (unit - rest * p.columns) * C;
        int local = layer_divide(rest, p.by_strips), row = (rest - local * p.strips) * WINDOW_ROWS;
        int plane = first_plane + local;
        int count = min(WINDOW_ROWS, p.out_height - first_row - row);
        if (plane >= p.planes || count <= 0)
            continue;
        int channel = plane - layer_divide(plane, p.by_channels) * p.channels;
        float sum[C][WINDOW_ROWS], bias = __ldg(p.bias + channel);
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int i = 0; i < WINDOW_ROWS; i++)
                sum[c][i] = bias;
        depthwise_add<K, S, C>(
            sum,
            samples + p.gap + (local * p.in_rows + row * S) * p.pitch + column * S - p.pad_left,
            p.pitch, (const float4 *)(const void *)p.weights + channel * p.quads);
        activate_outputs<WINDOW_ROWS, C>(p.activation, sum);
        float *to = outputs + local * out_plane + row * p.out_width + column;
#pragma unroll
        for (int i = 0; i < WINDOW_ROWS; i++, to += p.out_width)
#pragma unroll
            for (int c = 0; c < C; c++)
                if (i < count && (C == 1 || column + c < p.out_width))
                    to[c] = sum[c][i];
    }
    __syncthreads(); // all outputs are there
    int rows = min(p.out_height - first_row, p.strips * WINDOW_ROWS);
    int count = min(p.block_planes, p.planes - first_plane) * rows * p.out_width;
    int64_t first = (int64_t)first_plane * out_plane + (int64_t)first_row * p.out_width;
    if (p.half)
        depthwise_store<uint16_t>(p, outputs, first, count);
    else
        depthwise_store<float>(p, outputs, first, count);
}

#endif
