// SPDX-License-Identifier: MIT
// The first three steps. A thread reads every tap of its neighbourhood from global memory and
// resolves the border at each tap. Correct for every filter; the caches do what other kernels do
// explicitly.
#include "kernels/ladder/ladder.h"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define RGB 3 // samples of a pixel
#define BLOCK_WIDTH 32
#define BLOCK_HEIGHT 8

// The CHANNELS samples of a thread's pixel. A plane's `width` counts samples, its borders are those
// of pixels.
template <int CHANNELS, typename Sample, typename Sum>
static __device__ inline void filter_pixel(const struct conv_stencil_plane *planes, int count,
                                           const struct taps *filter)
{
    struct tile tile = find_tile(planes, count, CHANNELS * BLOCK_WIDTH, BLOCK_HEIGHT);
    const struct conv_stencil_plane &plane = tile.plane;
    int width = plane.width / CHANNELS;
    int x = tile.x / CHANNELS + (int)threadIdx.x, y = tile.y + (int)threadIdx.y;
    if (x >= width || y >= plane.height)
        return;

    enum conv_border border = (enum conv_border)filter->border;
    int left = x - filter->width / 2, top = y - filter->height / 2;
    for (int c = 0; c < CHANNELS; c++) {
        Sum sum;
        start_sum(sum, filter->rounding);
        for (int j = 0; j < filter->height; j++) {
            int sy = conv_border_index(border, top + j, plane.height);
            const Sample *row = (const Sample *)(plane.src + sy * plane.src_stride);
            for (int i = 0; i < filter->width; i++) {
                int sx = conv_border_index(border, left + i, width);
                int sample = sx < 0 || sy < 0 ? (int)filter->border_value : row[CHANNELS * sx + c];
                add_tap(sum, filter->coef[j * filter->width + i], (operand<Sum>)sample);
            }
        }
        Sample *row = (Sample *)(plane.dst + y * plane.dst_stride);
        row[CHANNELS * x + c] = (Sample)round_sum(sum, filter->rounding);
    }
}

// One thread per pixel of an image stored as RGBRGB..., as in PNG. Adjacent lanes read bytes three
// apart, so a warp requests three times the memory that one of its loads uses.
template <typename Sample, typename Sum>
static __global__ void interleaved(const struct conv_stencil_plane *images, int count,
                                   const struct taps *filter)
{
    filter_pixel<RGB, Sample, Sum>(images, count, filter);
}

// One thread per sample of a plane. A warp is a row, so its loads and stores are adjacent.
template <typename Sample, typename Sum>
static __global__ void naive(const struct conv_stencil_plane *planes, int count,
                             const struct taps *filter)
{
    filter_pixel<1, Sample, Sum>(planes, count, filter);
}

// The filter in constant memory, as kernel parameters are: a coefficient that all lanes of a warp
// use at the same time is broadcast, often as an operand of the instruction. __grid_constant__
// keeps an indexed parameter from being copied to each thread's local memory.
template <typename Sample, typename Sum>
static __global__ void constant(const struct conv_stencil_plane *planes, int count,
                                const __grid_constant__ struct taps filter)
{
    filter_pixel<1, Sample, Sum>(planes, count, &filter);
}

enum step { INTERLEAVED, NAIVE, CONSTANT };

template <enum step STEP>
static enum conv_status run_step(const struct conv_stencil_plan *plan,
                                 const struct conv_stencil_batch *batch)
{
    const auto *constants = constants_of<struct taps_constants>(plan);
    const struct taps *filter = (const struct taps *)plan->cuda.d_taps;
    const struct conv_stencil_plane *planes = batch->cuda.d_planes;
    cudaStream_t stream = (cudaStream_t)batch->cuda.stream;
    dim3 blocks(batch->cuda.tiles), block(BLOCK_WIDTH, BLOCK_HEIGHT);
    with_types(plan->stencil->depth, constants->kind, [&](auto sample, auto sum) {
        auto *kernel = STEP == NAIVE ? naive<decltype(sample), decltype(sum)>
                                     : interleaved<decltype(sample), decltype(sum)>;
        if (STEP == CONSTANT)
            constant<decltype(sample), decltype(sum)>
                <<<blocks, block, 0, stream>>>(planes, batch->count, constants->filter);
        else
            kernel<<<blocks, block, 0, stream>>>(planes, batch->count, filter);
    });
    return launch_status();
}

CONV_CUDA_VARIANT(interleaved, 75, "one thread per pixel of RGBRGB..., all in global memory", NULL,
                  score_always<9>, plan_taps, run_step<INTERLEAVED>, RGB *BLOCK_WIDTH,
                  BLOCK_HEIGHT);
CONV_CUDA_VARIANT(naive, 75, "one thread per sample, filter and image in global memory", NULL,
                  score_always<10>, plan_taps, run_step<NAIVE>, BLOCK_WIDTH, BLOCK_HEIGHT);
CONV_CUDA_VARIANT(constant, 75, "one thread per sample, filter in constant memory", NULL,
                  score_always<11>, plan_taps, run_step<CONSTANT>, BLOCK_WIDTH, BLOCK_HEIGHT);
