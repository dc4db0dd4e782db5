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

LADDER_VARIANT(channels, "as before, all input channels in shared memory at once", EXACT, 0,
               ladder_plan<ladder_can_constant<LADDER_ALL_CHANNELS>>, 16,
               (ladder_run<channels, LADDER_ALL_CHANNELS>));
