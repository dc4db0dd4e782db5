// SPDX-License-Identifier: MIT
// Like shared_constant.cu, with the index arithmetic hoisted: pointers advance by additions,
// and rows of the tile are loaded by rows of threads, so that no index is divided.
#include "kernels/ladder/layer/ladder.cuh"

// Blocks of 16 x 16 outputs of one of the maps from `first` on; barriers as in shared.cu.
static __global__ void hoisted(struct ladder ladder,
                               const __grid_constant__ struct ladder_constant weights, int first)
{
    extern __shared__ float tile[];
    int tile_y = (int)blockIdx.x / ladder.tiles_x;
    int top = tile_y * LADDER_SIDE;
    int left = ((int)blockIdx.x - tile_y * ladder.tiles_x) * LADDER_SIDE;
    int i = top + (int)threadIdx.y, j = left + (int)threadIdx.x, m = (int)blockIdx.y;
    bool inside = i < ladder.out_height && j < ladder.out_width;
    int kernel_height = ladder.kernel_height, kernel_width = ladder.kernel_width;
    int height = ladder_reach(LADDER_SIDE, ladder.stride, kernel_height);
    int width = ladder_reach(LADDER_SIDE, ladder.stride, kernel_width);
    top *= ladder.stride;
    left *= ladder.stride;
    int loaded_height =
        min(height, ladder_reach(ladder.out_height, ladder.stride, kernel_height) - top);
    int loaded_width =
        min(width, ladder_reach(ladder.out_width, ladder.stride, kernel_width) - left);
    const float *from = ladder.x + (top + (int)threadIdx.y) * ladder.row + left;
    float *to = tile + (int)threadIdx.y * width;
    const float *samples =
        tile + (int)threadIdx.y * ladder.stride * width + (int)threadIdx.x * ladder.stride;
    int taps = m * ladder.channels * kernel_height * kernel_width;
    for (int64_t b = blockIdx.z; b < ladder.images; b += gridDim.z) {
        const float *plane = from + b * ladder.image;
        float sum = ladder.bias[first + m];
        int tap = taps;
        for (int c = 0; c < ladder.channels; c++, plane += ladder.plane) {
            __syncthreads();
            const float *source = plane;
            float *target = to;
            for (int y = (int)threadIdx.y; y < loaded_height; y += LADDER_SIDE) {
                for (int x = (int)threadIdx.x; x < loaded_width; x += LADDER_SIDE)
                    target[x] = source[x];
                source += LADDER_SIDE * ladder.row;
                target += LADDER_SIDE * width;
            }
            __syncthreads();
            if (!inside)
                continue;
            const float *sample = samples;
            for (int u = 0; u < kernel_height; u++, sample += width)
                for (int v = 0; v < kernel_width; v++)
                    sum = fmaf(weights.weights[tap++], sample[v], sum);
        }
        if (inside)
            ladder_store(ladder, b, first + m, i, j, sum);
    }
}

LADDER_VARIANT(hoisted, "as before, pointers advance instead of index products", EXACT, 0,
               ladder_plan<ladder_can_constant<LADDER_ONE_CHANNEL>>, 15,
               (ladder_run<hoisted, LADDER_ONE_CHANNEL>));
