// SPDX-License-Identifier: MIT
// Like hoisted.cu, with the tiles of all channels in shared memory at once: two barriers per
// image instead of two per channel, and all loads of an image are in flight together.
#include "kernels/ladder/layer/ladder.cuh"

// Blocks of 16 x 16 outputs of one of the maps from `first` on.
static __global__ void channels(struct ladder ladder,
                                const __grid_constant__ struct ladder_constant weights, int first)
{
    extern __shared__ float tiles[];
    int tile_y = (int)blockIdx.x / ladder.tiles_x;
    int top = tile_y * LADDER_SIDE;
    int left = ((int)blockIdx.x - tile_y * ladder.tiles_x) * LADDER_SIDE;
    int i = top + (int)threadIdx.y, j = left + (int)threadIdx.x, m = (int)blockIdx.y;
    bool inside = i < ladder.out_height && j < ladder.out_width;
    int kernel_height = ladder.kernel_height, kernel_width = ladder.kernel_width;
    int height = ladder_reach(LADDER_SIDE, ladder.stride, kernel_height);
    int width = ladder_reach(LADDER_SIDE, ladder.stride, kernel_width);
    int size = height * width;
    int rows = ladder_reach(ladder.out_height, ladder.stride, kernel_height);
    int columns = ladder_reach(ladder.out_width, ladder.stride, kernel_width);
    const float *samples =
        tiles + (int)threadIdx.y * ladder.stride * width + (int)threadIdx.x * ladder.stride;
    for (int64_t b = blockIdx.z; b < ladder.images; b += gridDim.z) {
        __syncthreads();
        for (int c = 0; c < ladder.channels; c++)
            ladder_load(tiles + c * size, ladder.x + b * ladder.image + c * ladder.plane,
                        ladder.row, top * ladder.stride, left * ladder.stride, height, width, rows,
                        columns);
        __syncthreads();
        if (!inside)
            continue;
        float sum = ladder.bias[first + m];
        int tap = m * ladder.channels * kernel_height * kernel_width;
        const float *channel = samples;
        for (int c = 0; c < ladder.channels; c++, channel += size) {
            const float *sample = channel;
            for (int u = 0; u < kernel_height; u++, sample += width)
                for (int v = 0; v < kernel_width; v++)
                    sum = fmaf(weights.weights[tap++], sample[v], sum);
        }
        ladder_store(ladder, b, first + m, i, j, sum);
    }
}

static size_t tile_bytes(const struct conv_layer *layer)
{
    return (size_t)layer->channels *
           (size_t)ladder_reach(LADDER_SIDE, layer->stride_x, layer->kernel_height) *
           (size_t)ladder_reach(LADDER_SIDE, layer->stride_x, layer->kernel_width) * sizeof(float);
}

static bool can_channels(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    return ladder_can(layer, shape) && ladder_taps(layer) <= LADDER_CONSTANT &&
           layer->stride_x <= 16 && tile_bytes(layer) <= LADDER_SHARED;
}

static enum conv_status run_channels(const struct conv_layer_plan *plan,
                                     const struct conv_layer_batch *batch)
{
    struct ladder ladder = ladder_of(plan, batch, LADDER_SIDE);
    return ladder_groups(plan, [&](const struct ladder_constant &weights, int first, int count) {
        channels<<<ladder_grid(&ladder, LADDER_SIDE, count), dim3(LADDER_SIDE, LADDER_SIDE),
                   tile_bytes(&plan->layer), (cudaStream_t)batch->stream>>>(ladder, weights, first);
    });
}

LADDER_VARIANT(channels, "as before, all input channels in shared memory at once", EXACT, 0,
               ladder_plan<can_channels>, 16, run_channels);
