// SPDX-License-Identifier: MIT
// One thread computes one sample. It reads every tap of its neighbourhood, and the filter, from
// global memory, and resolves the border at each tap. Correct for every filter; the caches do what
// other kernels do explicitly.
#include "kernels/ladder/ladder.h"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define BLOCK_WIDTH 32
#define BLOCK_HEIGHT 8

// Blocks of 32 x 8 threads, one per sample. A warp is a row, so its loads and stores are adjacent.
template <typename Sample, typename Sum>
static __global__ void naive(const struct conv_stencil_plane *planes, int count,
                             const struct taps *filter)
{
    struct tile tile = find_tile(planes, count, BLOCK_WIDTH, BLOCK_HEIGHT);
    const struct conv_stencil_plane &plane = tile.plane;
    int x = tile.x + (int)threadIdx.x, y = tile.y + (int)threadIdx.y;
    if (x >= plane.width || y >= plane.height)
        return;

    enum conv_border border = (enum conv_border)filter->border;
    int left = x - filter->width / 2, top = y - filter->height / 2;
    Sum sum;
    start_sum(sum, filter->rounding);
    for (int j = 0; j < filter->height; j++) {
        int sy = conv_border_index(border, top + j, plane.height);
        const Sample *row = (const Sample *)(plane.src + sy * plane.src_stride);
        for (int i = 0; i < filter->width; i++) {
            int sx = conv_border_index(border, left + i, plane.width);
            int sample = sx < 0 || sy < 0 ? (int)filter->border_value : row[sx];
            add_tap(sum, filter->coef[j * filter->width + i], (operand<Sum>)sample);
        }
    }
    Sample *row = (Sample *)(plane.dst + y * plane.dst_stride);
    row[x] = (Sample)round_sum(sum, filter->rounding);
}

static enum conv_status run_naive(const struct conv_stencil_plan *plan,
                                  const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    enum sum_kind kind = constants_of<struct taps_constants>(plan)->kind;
    const struct taps *filter = (const struct taps *)plan->cuda.d_taps;
    cudaStream_t stream = (cudaStream_t)batch->cuda.stream;
    dim3 block(BLOCK_WIDTH, BLOCK_HEIGHT);
    with_types(stencil->depth, kind, [&](auto sample, auto sum) {
        naive<decltype(sample), decltype(sum)>
            <<<batch->cuda.tiles, block, 0, stream>>>(batch->cuda.d_planes, batch->count, filter);
    });
    return launch_status();
}

CONV_CUDA_VARIANT(naive, 75, "one thread per sample, filter and image in global memory", NULL,
                  score_always<10>, plan_taps, run_naive, BLOCK_WIDTH, BLOCK_HEIGHT);
