// SPDX-License-Identifier: MIT
// One thread per pixel of an image stored as RGBRGB..., as in PNG: the thread computes three
// samples. Adjacent lanes read bytes three apart, so a warp requests three times the memory that
// one of its loads uses. naive.cu is the same for planes, as which images are stored.
#include "kernels/ladder/ladder.h"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define CHANNELS 3
#define BLOCK_WIDTH 32
#define BLOCK_HEIGHT 8

// Blocks of 32 x 8 threads, one per pixel. A plane of the batch is an image here: `width` counts
// samples, three per pixel, and borders are those of pixels.
template <typename Sample, typename Sum>
static __global__ void interleaved(const struct conv_stencil_plane *images, int count,
                                   const struct taps *filter)
{
    struct tile tile = find_tile(images, count, CHANNELS * BLOCK_WIDTH, BLOCK_HEIGHT);
    const struct conv_stencil_plane &image = tile.plane;
    int width = image.width / CHANNELS;
    int x = tile.x / CHANNELS + (int)threadIdx.x, y = tile.y + (int)threadIdx.y;
    if (x >= width || y >= image.height)
        return;

    enum conv_border border = (enum conv_border)filter->border;
    int left = x - filter->width / 2, top = y - filter->height / 2;
    for (int c = 0; c < CHANNELS; c++) {
        Sum sum;
        start_sum(sum, filter->rounding);
        for (int j = 0; j < filter->height; j++) {
            int sy = conv_border_index(border, top + j, image.height);
            const Sample *row = (const Sample *)(image.src + sy * image.src_stride);
            for (int i = 0; i < filter->width; i++) {
                int sx = conv_border_index(border, left + i, width);
                int sample = sx < 0 || sy < 0 ? (int)filter->border_value : row[CHANNELS * sx + c];
                add_tap(sum, filter->coef[j * filter->width + i], (operand<Sum>)sample);
            }
        }
        Sample *row = (Sample *)(image.dst + y * image.dst_stride);
        row[CHANNELS * x + c] = (Sample)round_sum(sum, filter->rounding);
    }
}

static enum conv_status run_interleaved(const struct conv_stencil_plan *plan,
                                        const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    enum sum_kind kind = constants_of<struct taps_constants>(plan)->kind;
    const struct taps *filter = (const struct taps *)plan->cuda.d_taps;
    cudaStream_t stream = (cudaStream_t)batch->cuda.stream;
    dim3 block(BLOCK_WIDTH, BLOCK_HEIGHT);
    with_types(stencil->depth, kind, [&](auto sample, auto sum) {
        interleaved<decltype(sample), decltype(sum)>
            <<<batch->cuda.tiles, block, 0, stream>>>(batch->cuda.d_planes, batch->count, filter);
    });
    return launch_status();
}

CONV_CUDA_VARIANT(interleaved, 75, "one thread per pixel of RGBRGB..., all in global memory", NULL,
                  score_always<9>, plan_taps, run_interleaved, CHANNELS *BLOCK_WIDTH, BLOCK_HEIGHT);
