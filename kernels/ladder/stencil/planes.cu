// SPDX-License-Identifier: MIT
// Like unrolled.cu, but one thread computes the same sample of all three planes of an image. The
// position of a tap and of the border is computed once for three samples, and three independent
// loads and sums hide each other's latency.
#include "kernels/ladder/stencil/tile.cuh"

#define PLANES 3
#define BLOCK_WIDTH 32
#define BLOCK_HEIGHT 8
#define TILE_WIDTH BLOCK_WIDTH
#define TILE_HEIGHT (PLANES * BLOCK_HEIGHT)

// True if the three planes from `first` on have one shape. They need not belong to one image: the
// filter is the same for all planes of a launch.
static __device__ bool is_image(const struct conv_stencil_plane *planes, int count, int first)
{
    if (first + PLANES > count)
        return false;
    const struct conv_stencil_plane &a = planes[first];
    bool equal = true;
    for (int k = 1; k < PLANES; k++) {
        const struct conv_stencil_plane &b = planes[first + k];
        equal = equal && a.width == b.width && a.height == b.height &&
                a.src_stride == b.src_stride && a.dst_stride == b.dst_stride;
    }
    return equal;
}

// Like load_tile_samples, for the same position in three planes, whose tiles are `next` samples
// apart.
template <typename Sample>
static __device__ void
load_three(Sample *to, int pitch, int next, const struct conv_stencil_plane *planes,
           const struct conv_stencil_plane &shape, int left, int top, int columns, int rows,
           enum conv_border border, float border_value)
{
    const uint8_t *src[PLANES];
#pragma unroll
    for (int k = 0; k < PLANES; k++)
        src[k] = planes[k].src;
    for (int y = (int)threadIdx.y; y < rows; y += BLOCK_HEIGHT) {
        int sy = conv_border_index(border, top + y, shape.height);
        for (int x = (int)threadIdx.x; x < columns; x += BLOCK_WIDTH) {
            int sx = conv_border_index(border, left + x, shape.width);
            int64_t at = sy * shape.src_stride + sx * (int64_t)sizeof(Sample);
#pragma unroll
            for (int k = 0; k < PLANES; k++)
                to[k * next + y * pitch + x] =
                    sx < 0 || sy < 0 ? (Sample)border_value : *(const Sample *)(src[k] + at);
        }
    }
}

// Blocks of 32 x 8 threads compute 32 x 24 samples. Of three planes of one shape, the block of the
// first computes the upper third of a tile in all three, that of the second the middle third, that
// of the third the lower one: the number of blocks is the same as for separate planes. Any other
// plane is filtered alone, three samples per thread. Shared memory: three tiles of 8 rows with
// halos, or one of 24.
template <int SIDE, typename Sample, typename Sum>
static __global__ void planes_kernel(const struct conv_stencil_plane *planes, int count,
                                     const __grid_constant__ struct square<SIDE> filter)
{
    constexpr int PITCH = TILE_WIDTH + SIDE - 1, ROWS = BLOCK_HEIGHT + SIDE - 1;
    __shared__ Sample samples[PLANES * PITCH * ROWS];
    struct tile tile = find_tile(planes, count, TILE_WIDTH, TILE_HEIGHT);
    const struct conv_stencil_plane &plane = tile.plane;
    int first = tile.index / PLANES * PLANES;
    bool together = is_image(planes, count, first);
    enum conv_border border = (enum conv_border)filter.border;
    int left = tile.x - SIDE / 2, top = tile.y - SIDE / 2;
    int x = tile.x + (int)threadIdx.x, y = tile.y + (int)threadIdx.y;
    if (together) {
        int third = (tile.index - first) * BLOCK_HEIGHT;
        y += third;
        load_three(samples, PITCH, PITCH * ROWS, planes + first, plane, left, top + third, PITCH,
                   ROWS, border, filter.border_value);
    } else {
        load_tile_samples(samples, PITCH, plane, left, top, PITCH, TILE_HEIGHT + SIDE - 1, border,
                          filter.border_value);
    }
    __syncthreads(); // a thread reads samples that others have loaded

    if (x >= plane.width || y >= plane.height)
        return;
    const Sample *from = samples + (int)threadIdx.y * PITCH + (int)threadIdx.x;
    int next = together ? PITCH * ROWS : PITCH * BLOCK_HEIGHT; // to the thread's next sample
#pragma unroll
    for (int k = 0; k < PLANES; k++) {
        int sy = together ? y : y + k * BLOCK_HEIGHT;
        if (sy >= plane.height)
            break;
        uint8_t *dst = together ? planes[first + k].dst : plane.dst;
        Sum sum = sum_square<SIDE, Sum>(from + k * next, PITCH, filter);
        ((Sample *)(dst + sy * plane.dst_stride))[x] = (Sample)round_sum(sum, filter.rounding);
    }
}

static enum conv_status run_planes(const struct conv_stencil_plan *plan,
                                   const struct conv_stencil_batch *batch)
{
    cudaStream_t stream = (cudaStream_t)batch->cuda.stream;
    dim3 block(BLOCK_WIDTH, BLOCK_HEIGHT);
    with_side(plan->stencil, [&](auto side) {
        constexpr int SIDE = decltype(side)::value;
        auto *constants = constants_of<struct square_constants<SIDE>>(plan);
        with_types(plan->stencil->depth, constants->kind, [&](auto sample, auto sum) {
            planes_kernel<SIDE, decltype(sample), decltype(sum)>
                <<<batch->cuda.tiles, block, 0, stream>>>(batch->cuda.d_planes, batch->count,
                                                          constants->filter);
        });
    });
    return launch_status();
}

CONV_CUDA_VARIANT(planes, 75, "tiles in shared memory, one thread for three planes", can_square,
                  score_always<14>, plan_square, run_planes, TILE_WIDTH, TILE_HEIGHT);
