// SPDX-License-Identifier: MIT
// Like naive.cu, with the weights in constant memory: all threads of a warp use the same
// weight at the same time, which the constant cache broadcasts. A launch computes as many maps as
// fit their weights into its parameters.
#include "kernels/ladder/layer/ladder.cuh"

// Blocks of 16 x 16 outputs of one of the maps from `first` on.
static __global__ void constant(struct ladder ladder,
                                const __grid_constant__ struct ladder_constant weights, int first)
{
    int i = (int)(blockIdx.x / ladder.tiles_x) * LADDER_SIDE + (int)threadIdx.y;
    int j = (int)(blockIdx.x % ladder.tiles_x) * LADDER_SIDE + (int)threadIdx.x;
    int m = (int)blockIdx.y;
    if (i >= ladder.out_height || j >= ladder.out_width)
        return;
    for (int64_t b = blockIdx.z; b < ladder.images; b += gridDim.z) {
        float sum = ladder.bias[first + m];
        for (int c = 0; c < ladder.channels; c++)
            for (int u = 0; u < ladder.kernel_height; u++)
                for (int v = 0; v < ladder.kernel_width; v++) {
                    int tap = ((m * ladder.channels + c) * ladder.kernel_height + u) *
                                  ladder.kernel_width +
                              v;
                    int64_t sample = b * ladder.image + c * ladder.plane +
                                     (i * ladder.stride + u) * ladder.row + j * ladder.stride + v;
                    sum = fmaf(weights.weights[tap], ladder.x[sample], sum);
                }
        ladder_store(ladder, b, first + m, i, j, sum);
    }
}

LADDER_VARIANT(constant, "as naive, weights in constant memory", EXACT, 0,
               ladder_plan<ladder_can_constant<LADDER_NO_TILE>>, 12,
               (ladder_run<constant, LADDER_NO_TILE>));
