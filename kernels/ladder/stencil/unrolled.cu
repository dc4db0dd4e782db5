// SPDX-License-Identifier: MIT
// Like shared.cu, with the size of the filter known to the compiler. Loops over taps are unrolled,
// addresses are offsets in load instructions, coefficients operands from constant memory, and the
// loads of all taps can be in flight together.
#include "kernels/ladder/stencil/tile.cuh"

#define BLOCK_WIDTH 32

// One thread per sample, blocks of 32 x blockDim.y. All threads load, one sample each at a time.
// Shared memory: a pitch of 31 + SIDE samples, blockDim.y + SIDE - 1 rows.
template <int SIDE, typename Sample, typename Sum>
static __global__ void unrolled(const struct conv_stencil_plane *planes, int count,
                                const __grid_constant__ struct square<SIDE> filter)
{
    extern __shared__ uint4 memory[];
    constexpr int PITCH = BLOCK_WIDTH + SIDE - 1;
    Sample *samples = (Sample *)memory;
    struct tile tile = find_tile(planes, count, BLOCK_WIDTH, (int)blockDim.y);
    const struct conv_stencil_plane &plane = tile.plane;
    load_tile_samples(samples, PITCH, plane, tile.x - SIDE / 2, tile.y - SIDE / 2, PITCH,
                      (int)blockDim.y + SIDE - 1, (enum conv_border)filter.border,
                      filter.border_value);
    __syncthreads(); // a thread reads samples that others have loaded

    int x = tile.x + (int)threadIdx.x, y = tile.y + (int)threadIdx.y;
    if (x >= plane.width || y >= plane.height)
        return;
    const Sample *from = samples + (int)threadIdx.y * PITCH + (int)threadIdx.x;
    Sample *row = (Sample *)(plane.dst + y * plane.dst_stride);
    row[x] = (Sample)round_sum(sum_square<SIDE, Sum>(from, PITCH, filter), filter.rounding);
}

template <int HEIGHT>
static enum conv_status run_unrolled(const struct conv_stencil_plan *plan,
                                     const struct conv_stencil_batch *batch)
{
    int depth = plan->stencil->depth;
    cudaStream_t stream = (cudaStream_t)batch->cuda.stream;
    dim3 block(BLOCK_WIDTH, HEIGHT);
    with_side(plan->stencil, [&](auto side) {
        constexpr int SIDE = decltype(side)::value;
        auto *constants = constants_of<struct square_constants<SIDE>>(plan);
        size_t bytes = (size_t)(BLOCK_WIDTH + SIDE - 1) * (HEIGHT + SIDE - 1) * (depth / 8);
        with_types(depth, constants->kind, [&](auto sample, auto sum) {
            unrolled<SIDE, decltype(sample), decltype(sum)>
                <<<batch->cuda.tiles, block, bytes, stream>>>(batch->cuda.d_planes, batch->count,
                                                              constants->filter);
        });
    });
    return launch_status();
}

CONV_CUDA_VARIANT(unrolled, 75, "tile in shared memory, compiled for 3 x 3, 5 x 5 and 7 x 7 taps",
                  can_square, score_always<13>, plan_square, run_unrolled<8>, BLOCK_WIDTH, 8);

// Other block shapes, for benchmarks.
#define UNROLLED_SHAPE(height)                                                                     \
    CONV_CUDA_VARIANT_VALUE(                                                                       \
        unrolled_32x##height, 75, "compiled for the number of taps, blocks of 32 x " #height,      \
        can_square, score_always<13>, plan_square, run_unrolled<height>, BLOCK_WIDTH, height)

const struct conv_variant conv_cuda_unrolled_shapes[3] = {
    UNROLLED_SHAPE(4),
    UNROLLED_SHAPE(16),
    UNROLLED_SHAPE(32),
};
