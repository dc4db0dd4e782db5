// SPDX-License-Identifier: MIT
// An exercise: a kernel of your own, `cuda_student`, which the program checks and times like its
// own. docs/course/index.md says how to build with this file, or with a copy of it elsewhere. It
// begins as naive.cu and gives the right results. Make it faster; the results must stay the same.
#include "kernels/ladder/ladder.h"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define BLOCK_WIDTH 32
#define BLOCK_HEIGHT 8

// One thread computes one sample of one plane. `Sample` is uint8_t or uint16_t. `Sum` is the type
// in which taps are added: float, or an integer where float would not be exact.
template <typename Sample, typename Sum>
static __global__ void student(const struct conv_stencil_plane *planes, int count,
                               const struct taps *filter)
{
    // Which plane this block works on, and the first sample of its tile.
    struct tile tile = find_tile(planes, count, BLOCK_WIDTH, BLOCK_HEIGHT);
    const struct conv_stencil_plane &plane = tile.plane;
    int x = tile.x + (int)threadIdx.x, y = tile.y + (int)threadIdx.y;
    if (x >= plane.width || y >= plane.height)
        return;

    Sum sum;
    start_sum(sum, filter->rounding);
    for (int j = 0; j < filter->height; j++) {
        int sy = conv_border_index((enum conv_border)filter->border, y - filter->height / 2 + j,
                                   plane.height); // -1: outside, with a constant border
        for (int i = 0; i < filter->width; i++) {
            int sx = conv_border_index((enum conv_border)filter->border, x - filter->width / 2 + i,
                                       plane.width);
            int sample = filter->border_value;
            if (sx >= 0 && sy >= 0)
                sample = ((const Sample *)(plane.src + sy * plane.src_stride))[sx];
            add_tap(sum, filter->coef[j * filter->width + i], (operand<Sum>)sample);
        }
    }
    ((Sample *)(plane.dst + y * plane.dst_stride))[x] = (Sample)round_sum(sum, filter->rounding);
}

// The launch. d_taps is the filter in device memory; constants->filter is the same on the host, to
// be passed as a parameter of the kernel (naive.cu has an example).
static enum conv_status run_student(const struct conv_stencil_plan *plan,
                                    const struct conv_stencil_batch *batch)
{
    const struct taps_constants *constants = constants_of<struct taps_constants>(plan);
    const struct taps *filter = (const struct taps *)plan->cuda.d_taps;
    cudaStream_t stream = (cudaStream_t)batch->cuda.stream;
    dim3 block(BLOCK_WIDTH, BLOCK_HEIGHT);
    with_types(plan->stencil->depth, constants->kind, [&](auto sample, auto sum) {
        student<decltype(sample), decltype(sum)>
            <<<batch->cuda.tiles, block, 0, stream>>>(batch->cuda.d_planes, batch->count, filter);
    });
    return launch_status();
}

// Name, the compute capability that it needs, what it does, which filters it can do (NULL: all),
// its rank among others, how constants are made, the launch, and the samples that a block writes.
CONV_CUDA_VARIANT(student, 75, "the exercise", NULL, score_always<1>, plan_taps, run_student,
                  BLOCK_WIDTH, BLOCK_HEIGHT);
