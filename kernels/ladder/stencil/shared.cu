// SPDX-License-Identifier: MIT
// A block copies its samples and the halo around them to shared memory and filters from there. Each
// sample is read from global memory once per block instead of once per tap, and the border is
// resolved once per sample. However, the level 1 cache holds the same samples for naive.cu, and
// most time is still spent on instructions: address, load of one byte and conversion for each tap.
#include "kernels/ladder/stencil/tile.cuh"

// One thread per sample; the block has the shape of the launch, a multiple of 32 threads. All
// threads load, one sample each at a time. Shared memory: (blockDim.x + width - 1) x (blockDim.y +
// height - 1) samples, 7,688 bytes at most (32 x 32 threads at 31 x 31 taps of 16 bits).
template <typename Sample, typename Sum>
static __global__ void tile_kernel(const struct conv_stencil_plane *planes, int count,
                                   const __grid_constant__ struct taps filter)
{
    extern __shared__ uint4 memory[];
    Sample *samples = (Sample *)memory;
    struct tile tile = find_tile(planes, count, (int)blockDim.x, (int)blockDim.y);
    const struct conv_stencil_plane &plane = tile.plane;
    int pitch = (int)blockDim.x + filter.width - 1;
    load_tile_samples(samples, pitch, plane, tile.x - filter.width / 2, tile.y - filter.height / 2,
                      pitch, (int)blockDim.y + filter.height - 1, (enum conv_border)filter.border,
                      filter.border_value);
    __syncthreads(); // a thread reads samples that others have loaded

    int x = tile.x + (int)threadIdx.x, y = tile.y + (int)threadIdx.y;
    if (x >= plane.width || y >= plane.height)
        return; // only now: a thread without a sample of its own loads, too
    const Sample *from = samples + (int)threadIdx.y * pitch + (int)threadIdx.x;
    Sum sum;
    start_sum(sum, filter.rounding);
#pragma unroll 1
    for (int j = 0; j < filter.height; j++)
#pragma unroll 1
        for (int i = 0; i < filter.width; i++)
            add_tap(sum, filter.coef[j * filter.width + i], (operand<Sum>)from[j * pitch + i]);
    Sample *row = (Sample *)(plane.dst + y * plane.dst_stride);
    row[x] = (Sample)round_sum(sum, filter.rounding);
}

template <int WIDTH, int HEIGHT>
static enum conv_status run_tile(const struct conv_stencil_plan *plan,
                                 const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    const struct taps_constants *constants = constants_of<struct taps_constants>(plan);
    size_t bytes = (size_t)(WIDTH + stencil->width - 1) * (HEIGHT + stencil->height - 1) *
                   (stencil->depth / 8);
    cudaStream_t stream = (cudaStream_t)batch->cuda.stream;
    dim3 block(WIDTH, HEIGHT);
    with_types(stencil->depth, constants->kind, [&](auto sample, auto sum) {
        tile_kernel<decltype(sample), decltype(sum)><<<batch->cuda.tiles, block, bytes, stream>>>(
            batch->cuda.d_planes, batch->count, constants->filter);
    });
    return launch_status();
}

CONV_CUDA_VARIANT(shared, 75, "tile with halo in shared memory, one thread per sample", NULL,
                  score_always<12>, plan_taps, (run_tile<32, 8>), 32, 8);

// Other block shapes, for benchmarks.
#define SHARED_SHAPE(width, height)                                                                \
    CONV_CUDA_VARIANT_VALUE(shared_##width##x##height, 75,                                         \
                            "tile in shared memory, blocks of " #width " x " #height, NULL,        \
                            score_always<12>, plan_taps, (run_tile<width, height>), width, height)

const struct conv_variant conv_cuda_shared_shapes[5] = {
    SHARED_SHAPE(8, 8),   SHARED_SHAPE(16, 16), SHARED_SHAPE(32, 4),
    SHARED_SHAPE(32, 16), SHARED_SHAPE(32, 32),
};
