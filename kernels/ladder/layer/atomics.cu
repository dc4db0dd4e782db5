// SPDX-License-Identifier: MIT
// The sum over channels as atomic additions: one block per channel, which adds its part of each
// output to global memory. More blocks for small batches, but every output is written as often as
// there are channels, and the order of the additions is the hardware's.
#include "kernels/ladder/layer/ladder.cuh"

#define THREADS 256
#define MOST_ADDITIONS 128 // one after the other: the bound of the error

static __global__ void start(struct ladder ladder, int64_t count)
{
    int64_t size = (int64_t)ladder.out_height * ladder.out_width;
    for (int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x; t < count;
         t += (int64_t)gridDim.x * THREADS)
        ladder.y[t] = ladder.bias[t / size % ladder.maps];
}

static __global__ void finish(struct ladder ladder, int64_t count)
{
    for (int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x; t < count;
         t += (int64_t)gridDim.x * THREADS)
        ladder.y[t] = conv_layer_activate((enum conv_activation)ladder.activation, ladder.y[t]);
}

// Blocks of 16 x 16 outputs of one map, one channel of them.
static __global__ void atomics(struct ladder ladder)
{
    extern __shared__ float tile[];
    int top = (int)(blockIdx.x / ladder.tiles_x) * LADDER_SIDE;
    int left = (int)(blockIdx.x % ladder.tiles_x) * LADDER_SIDE;
    int i = top + (int)threadIdx.y, j = left + (int)threadIdx.x;
    int m = (int)blockIdx.y / ladder.channels, c = (int)blockIdx.y % ladder.channels;
    bool inside = i < ladder.out_height && j < ladder.out_width;
    int height = ladder_reach(LADDER_SIDE, ladder.stride, ladder.kernel_height);
    int width = ladder_reach(LADDER_SIDE, ladder.stride, ladder.kernel_width);
    int rows = ladder_reach(ladder.out_height, ladder.stride, ladder.kernel_height);
    int columns = ladder_reach(ladder.out_width, ladder.stride, ladder.kernel_width);
    const float *weights = ladder.weights + (int64_t)(m * ladder.channels + c) *
                                                ladder.kernel_height * ladder.kernel_width;
    for (int64_t b = blockIdx.z; b < ladder.images; b += gridDim.z) {
        __syncthreads();
        ladder_load(tile, ladder.x + b * ladder.image + c * ladder.plane, ladder.row,
                    top * ladder.stride, left * ladder.stride, height, width, rows, columns);
        __syncthreads();
        if (!inside)
            continue;
        float sum = 0;
        const float *weight = weights;
        const float *sample = tile + ((int)threadIdx.y * width + (int)threadIdx.x) * ladder.stride;
        for (int u = 0; u < ladder.kernel_height; u++, sample += width)
            for (int v = 0; v < ladder.kernel_width; v++)
                sum = fmaf(*weight++, sample[v], sum);
        int64_t plane = b * ladder.maps + m;
        atomicAdd(&ladder.y[(plane * ladder.out_height + i) * ladder.out_width + j], sum);
    }
}

static bool can_atomics(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    return ladder_can_tile<LADDER_ONE_CHANNEL>(layer, shape) &&
           layer->channels + layer->kernel_height * layer->kernel_width <= MOST_ADDITIONS &&
           layer->maps * (int64_t)layer->channels <= 65535;
}

static enum conv_status run_atomics(const struct conv_layer_plan *plan,
                                    const struct conv_layer_batch *batch)
{
    struct ladder ladder = ladder_of(plan, batch, LADDER_SIDE);
    cudaStream_t stream = (cudaStream_t)batch->stream;
    int64_t count = batch->images * ladder.maps * ladder.out_height * ladder.out_width;
    int blocks = (int)(count / THREADS < 65535 ? count / THREADS + 1 : 65535);
    start<<<blocks, THREADS, 0, stream>>>(ladder, count);
    atomics<<<ladder_grid(&ladder, LADDER_SIDE, ladder.maps * ladder.channels),
              dim3(LADDER_SIDE, LADDER_SIDE), ladder_tile_bytes<LADDER_ONE_CHANNEL>(&plan->layer),
              stream>>>(ladder);
    if (ladder.activation != CONV_ACTIVATION_NONE)
        finish<<<blocks, THREADS, 0, stream>>>(ladder, count);
    return ladder_status();
}

LADDER_VARIANT(atomics, "channels summed by atomic additions", FAST, MOST_ADDITIONS,
               ladder_plan<can_atomics>, 5, run_atomics);
