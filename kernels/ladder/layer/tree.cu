// SPDX-License-Identifier: MIT
// The sum over channels as a tree: the threads of a block share the channels of an output and add
// their parts in shared memory, in as many steps as the logarithm of their number.
#include "kernels/ladder/layer/ladder.cuh"

#define POSITIONS 32
#define MOST_PARTS 16
#define MOST_ADDITIONS 128 // one after the other: the bound of the error

// Blocks of 32 outputs of one map, in the order of memory, x PARTS. Part p has channels p, p +
// PARTS, ... A warp has one part of 32 neighbouring outputs.
template <int PARTS> static __global__ void tree(struct ladder ladder)
{
    __shared__ float sums[MOST_PARTS][POSITIONS];
    int position = (int)(blockIdx.x * POSITIONS + threadIdx.x), part = (int)threadIdx.y;
    int m = (int)blockIdx.y;
    bool inside = position < ladder.out_height * ladder.out_width;
    int i = position / ladder.out_width, j = position % ladder.out_width;
    int taps = ladder.kernel_height * ladder.kernel_width;
    for (int64_t b = blockIdx.z; b < ladder.images; b += gridDim.z) {
        float sum = 0;
        for (int c = part; c < ladder.channels && inside; c += PARTS) {
            const float *weight = ladder.weights + (int64_t)(m * ladder.channels + c) * taps;
            const float *sample = ladder.x + b * ladder.image + c * ladder.plane +
                                  i * ladder.stride * ladder.row + j * ladder.stride;
            for (int u = 0; u < ladder.kernel_height; u++, sample += ladder.row)
                for (int v = 0; v < ladder.kernel_width; v++)
                    sum = fmaf(*weight++, sample[v], sum);
        }
        for (int half = PARTS / 2; half > 0; half /= 2) {
            sums[part][threadIdx.x] = sum;
            __syncthreads();
            if (part < half)
                sum += sums[part + half][threadIdx.x];
            __syncthreads();
        }
        if (inside && part == 0)
            ladder_store(ladder, b, m, i, j, ladder.bias[m] + sum);
    }
}

static int parts_of(const struct conv_layer *layer)
{
    int parts = 1;
    while (parts < layer->channels && parts < MOST_PARTS)
        parts *= 2;
    return parts;
}

// The additions of a part, one step of the tree for each bit, and the bias.
static bool can_tree(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    int64_t each = (layer->channels - 1) / parts_of(layer) + 1;
    return ladder_can(layer, shape) &&
           each * layer->kernel_height * layer->kernel_width + 5 <= MOST_ADDITIONS;
}

static enum conv_status run_tree(const struct conv_layer_plan *plan,
                                 const struct conv_layer_batch *batch)
{
    struct ladder ladder = ladder_of(plan, batch, LADDER_SIDE);
    int parts = parts_of(&plan->layer);
    int positions = ladder.out_height * ladder.out_width;
    dim3 block(POSITIONS, (unsigned)parts);
    dim3 grid((unsigned)((positions - 1) / POSITIONS + 1), (unsigned)ladder.maps,
              (unsigned)(ladder.images < 65535 ? ladder.images : 65535));
    cudaStream_t stream = (cudaStream_t)batch->stream;
    switch (parts) {
    case 1:
        tree<1><<<grid, block, 0, stream>>>(ladder);
        break;
    case 2:
        tree<2><<<grid, block, 0, stream>>>(ladder);
        break;
    case 4:
        tree<4><<<grid, block, 0, stream>>>(ladder);
        break;
    case 8:
        tree<8><<<grid, block, 0, stream>>>(ladder);
        break;
    default:
        tree<16><<<grid, block, 0, stream>>>(ladder);
    }
    return ladder_status();
}

LADDER_VARIANT(tree, "channels summed as a tree of threads", FAST, MOST_ADDITIONS,
               ladder_plan<can_tree>, 6, run_tree);
