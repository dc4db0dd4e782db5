// SPDX-License-Identifier: MIT
// shared.cu and constant.cu together: the input in shared memory, the weights in
// constant memory.
#include "kernels/ladder/layer/ladder.cuh"

// Blocks of 16 x 16 outputs of one of the maps from `first` on; barriers as in shared.cu.
static __global__ void shared_constant(struct ladder ladder,
                                       const __grid_constant__ struct ladder_constant weights,
                                       int first)
{
    extern __shared__ float tile[];
    int top = (int)(blockIdx.x / ladder.tiles_x) * LADDER_SIDE;
    int left = (int)(blockIdx.x % ladder.tiles_x) * LADDER_SIDE;
    int i = top + (int)threadIdx.y, j = left + (int)threadIdx.x, m = (int)blockIdx.y;
    bool inside = i < ladder.out_height && j < ladder.out_width;
    int height = ladder_reach(LADDER_SIDE, ladder.stride, ladder.kernel_height);
    int width = ladder_reach(LADDER_SIDE, ladder.stride, ladder.kernel_width);
    int rows = ladder_reach(ladder.out_height, ladder.stride, ladder.kernel_height);
    int columns = ladder_reach(ladder.out_width, ladder.stride, ladder.kernel_width);
    for (int64_t b = blockIdx.z; b < ladder.images; b += gridDim.z) {
        float sum = ladder.bias[first + m];
        for (int c = 0; c < ladder.channels; c++) {
            __syncthreads();
            ladder_load(tile, ladder.x + b * ladder.image + c * ladder.plane, ladder.row,
                        top * ladder.stride, left * ladder.stride, height, width, rows, columns);
            __syncthreads();
            if (!inside)
                continue;
            for (int u = 0; u < ladder.kernel_height; u++)
                for (int v = 0; v < ladder.kernel_width; v++) {
                    int tap = ((m * ladder.channels + c) * ladder.kernel_height + u) *
                                  ladder.kernel_width +
                              v;
                    int sample = ((int)threadIdx.y * ladder.stride + u) * width +
                                 (int)threadIdx.x * ladder.stride + v;
                    sum = fmaf(weights.weights[tap], tile[sample], sum);
                }
        }
        if (inside)
            ladder_store(ladder, b, first + m, i, j, sum);
    }
}

LADDER_VARIANT(shared_constant, "input in shared, weights in constant memory", EXACT, 0,
               ladder_plan<ladder_can_constant<LADDER_ONE_CHANNEL>>, 14,
               (ladder_run<shared_constant, LADDER_ONE_CHANNEL>));
