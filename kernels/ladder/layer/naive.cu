// SPDX-License-Identifier: MIT
// The start of the ladder: one thread computes one output, and reads input and weights from global
// memory. The caches do what later kernels do explicitly.
#include "kernels/ladder/layer/ladder.cuh"

// Blocks of 16 x 16 outputs of one map.
static __global__ void naive(struct ladder ladder)
{
    int i = (int)(blockIdx.x / ladder.tiles_x) * LADDER_SIDE + (int)threadIdx.y;
    int j = (int)(blockIdx.x % ladder.tiles_x) * LADDER_SIDE + (int)threadIdx.x;
    int m = (int)blockIdx.y;
    if (i >= ladder.out_height || j >= ladder.out_width)
        return;
    for (int64_t b = blockIdx.z; b < ladder.images; b += gridDim.z) {
        float sum = ladder.bias[m];
        for (int c = 0; c < ladder.channels; c++)
            for (int u = 0; u < ladder.kernel_height; u++)
                for (int v = 0; v < ladder.kernel_width; v++) {
                    int64_t tap = ((int64_t)(m * ladder.channels + c) * ladder.kernel_height + u) *
                                      ladder.kernel_width +
                                  v;
                    int64_t sample = b * ladder.image + c * ladder.plane +
                                     (i * ladder.stride + u) * ladder.row + j * ladder.stride + v;
                    sum = fmaf(ladder.weights[tap], ladder.x[sample], sum);
                }
        ladder_store(ladder, b, m, i, j, sum);
    }
}

LADDER_VARIANT(naive, "one thread per output, everything in global memory", EXACT, 0,
               ladder_plan<ladder_can>, 11, (ladder_run<naive, LADDER_NO_TILE>));
