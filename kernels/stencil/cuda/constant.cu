// SPDX-License-Identifier: MIT
// One thread computes one sample, as in the ladder's naive.cu, with the filter in constant memory.
// All lanes of a warp use the same coefficient at the same time, which the constant cache
// broadcasts, often as an operand of the arithmetic instruction. Kernel parameters are constant
// memory, and a filter of 31 x 31 fits into them: there is no variable to upload or to share
// between streams. For float32 results of 8 and 16-bit samples, which faster variants do not
// support.
#include "kernels/stencil/cuda/stencil_device.cuh"

#define BLOCK_WIDTH 32
#define BLOCK_HEIGHT 8

// Blocks of 32 x 8 threads, one per sample. __grid_constant__ keeps an indexed parameter from being
// copied to each thread's local memory.
template <typename Sample, typename Sum, bool FLOATS>
static __global__ void constant(const struct conv_stencil_plane *planes, int count,
                                const __grid_constant__ struct taps filter)
{
    struct tile tile = find_tile(planes, count, BLOCK_WIDTH, BLOCK_HEIGHT);
    const struct conv_stencil_plane &plane = tile.plane;
    int x = tile.x + (int)threadIdx.x, y = tile.y + (int)threadIdx.y;
    if (x >= plane.width || y >= plane.height)
        return;

    enum conv_border border = (enum conv_border)filter.border;
    int left = x - filter.width / 2, top = y - filter.height / 2;
    auto sample = [&](int i, int j) {
        int sx = conv_border_index(border, left + i, plane.width);
        int sy = conv_border_index(border, top + j, plane.height);
        const Sample *row = (const Sample *)(plane.src + sy * plane.src_stride);
        return (operand<Sum>)(sx < 0 || sy < 0 ? (int)filter.border_value : row[sx]);
    };
    Sum sum;
    start_sum(sum, filter.rounding);
    bool symmetric = FLOATS && filter.symmetric;
    for (int d = 0; d < filter.width && symmetric; d++)
        for (int j = 0; j < filter.width - d; j++)
            add_tap(sum, filter.coef[j * filter.width + j + d],
                    d ? sample(j + d, j) + sample(j, j + d) : sample(j, j));
    for (int j = 0; j < filter.height && !symmetric; j++)
        for (int i = 0; i < filter.width; i++)
            add_tap(sum, filter.coef[j * filter.width + i], sample(i, j));
    uint8_t *row = plane.dst + y * plane.dst_stride;
    if constexpr (FLOATS)
        ((float *)row)[x] = divide_sum(sum, filter.rounding);
    else
        ((Sample *)row)[x] = (Sample)round_sum(sum, filter.rounding);
}

static enum conv_status run_constant(const struct conv_stencil_plan *plan,
                                     const struct conv_stencil_batch *batch)
{
    const struct taps_constants *constants = constants_of<struct taps_constants>(plan);
    cudaStream_t stream = (cudaStream_t)batch->cuda.stream;
    dim3 block(BLOCK_WIDTH, BLOCK_HEIGHT);
    bool floats = plan->stencil->floats;
    with_types(plan->stencil->depth, constants->kind, [&](auto sample, auto sum) {
        auto kernel = floats ? constant<decltype(sample), decltype(sum), true>
                             : constant<decltype(sample), decltype(sum), false>;
        kernel<<<batch->cuda.tiles, block, 0, stream>>>(batch->cuda.d_planes, batch->count,
                                                        constants->filter);
    });
    return launch_status();
}

CONV_CUDA_VARIANT_OF(FLOAT_RESULTS, constant, 75,
                     "one thread per sample, filter in constant memory", NULL, score_always<11>,
                     plan_taps, run_constant, BLOCK_WIDTH, BLOCK_HEIGHT);
