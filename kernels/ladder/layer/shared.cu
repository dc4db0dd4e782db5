// SPDX-License-Identifier: MIT
// Like naive.cu, with the input of a block's outputs in shared memory, one channel after the
// other: each sample is loaded once per block instead of once per tap.
#include "kernels/ladder/layer/ladder.cuh"

// Blocks of 16 x 16 outputs of one map. Shared memory holds the samples that they read of one
// channel. One barrier before a channel is overwritten, one before it is read.
static __global__ void shared(struct ladder ladder)
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
        float sum = ladder.bias[m];
        for (int c = 0; c < ladder.channels; c++) {
            __syncthreads();
            ladder_load(tile, ladder.x + b * ladder.image + c * ladder.plane, ladder.row,
                        top * ladder.stride, left * ladder.stride, height, width, rows, columns);
            __syncthreads();
            if (!inside)
                continue;
            for (int u = 0; u < ladder.kernel_height; u++)
                for (int v = 0; v < ladder.kernel_width; v++) {
                    int64_t tap = ((int64_t)(m * ladder.channels + c) * ladder.kernel_height + u) *
                                      ladder.kernel_width +
                                  v;
                    int sample = ((int)threadIdx.y * ladder.stride + u) * width +
                                 (int)threadIdx.x * ladder.stride + v;
                    sum = fmaf(ladder.weights[tap], tile[sample], sum);
                }
        }
        if (inside)
            ladder_store(ladder, b, m, i, j, sum);
    }
}

LADDER_VARIANT(shared, "as naive, tile of the input in shared memory", EXACT, 0,
               ladder_plan<ladder_can_tile<LADDER_ONE_CHANNEL>>, 13,
               (ladder_run<shared, LADDER_ONE_CHANNEL>));
