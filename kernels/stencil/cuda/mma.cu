// SPDX-License-Identifier: MIT
// Tiles as in blocked.cu, taps on tensor cores (mma.cuh): the filters of tma_mma.cu on devices from
// compute capability 7.5 on.
#include "kernels/stencil/cuda/blocked.cuh"
#include "kernels/stencil/cuda/mma.cuh"

typedef block_shape<2 * MMA_ROWS> shape; // a warp computes 8 segments of two bands

#define SIDE_HALO MMA_SEGMENT // columns left and right: A reads 8 of them; 16 keep rows aligned
#define PITCH (shape::TILE_WIDTH + 2 * SIDE_HALO)

struct mma_filter {
    const struct conv_stencil_plane *planes;
    int32_t count;
    int32_t border;
    float border_value;
    struct byte_taps taps;
};

// Stores those of four samples that lie in the image.
static __device__ inline void store_word(const struct conv_stencil_plane &plane, int x, int y,
                                         bool aligned, uint32_t samples)
{
    if (y >= plane.height)
        return;
    uint8_t *to = plane.dst + y * plane.dst_stride + x;
    if (aligned && x + 4 <= plane.width) {
        *(uint32_t *)to = samples;
        return;
    }
    for (int k = 0; k < 4; k++)
        if (x + k < plane.width)
            to[k] = (uint8_t)(samples >> 8 * k);
}

// Blocks of 4 warps compute 128 x 64 samples. Shared memory: the tile with its halo, 66 rows of 160
// bytes for 3 x 3, at most 72 (11,520 bytes), and the coefficients.
template <int TAPS, bool TIES>
static __global__ void __launch_bounds__(shape::THREADS)
    mma(const __grid_constant__ struct mma_filter f)
{
    extern __shared__ uint4 memory[];
    __shared__ uint32_t coef[sizeof f.taps.coef / 4];
    uint8_t *samples = (uint8_t *)memory;
    struct tile tile = find_tile(f.planes, f.count, shape::TILE_WIDTH, shape::TILE_HEIGHT);
    for (uint32_t i = threadIdx.x; i < sizeof coef / 4; i += shape::THREADS)
        coef[i] = ((const uint32_t *)f.taps.coef)[i];
    // Its barrier also completes coef.
    load_tile<shape>(samples, PITCH, tile, SIDE_HALO, TAPS / 2, (enum conv_border)f.border,
                     f.border_value);

    int lane = (int)threadIdx.x % WARP, row = (int)threadIdx.x / WARP * shape::ROWS;
    if (tile.y + row >= tile.plane.height)
        return; // the whole warp
    uint2 taps[TAPS][2];
    load_taps<TAPS>(taps, (const int8_t(*)[64])coef);
    int column = lane / 4 * MMA_SEGMENT + lane % 4 * 4;
    const uint8_t *from = samples + row * PITCH + SIDE_HALO - 8 + column;
    auto load = [&](int i, uint32_t(&window)[4]) {
        const uint8_t *upper = from + i * PITCH, *lower = upper + MMA_ROWS * PITCH;
        window[0] = *(const uint32_t *)upper;
        window[1] = *(const uint32_t *)lower;
        window[2] = *(const uint32_t *)(upper + 16);
        window[3] = *(const uint32_t *)(lower + 16);
    };
    bool aligned = packed4_aligned<uint8_t>(tile.plane.dst, tile.plane.dst_stride);
    int x = tile.x + column, y = tile.y + row;
    filter_bands<TAPS, TIES>(taps, f.taps.rounding, load, [&](int band, int i, uint32_t made) {
        store_word(tile.plane, x, y + band * MMA_ROWS + i, aligned, made);
    });
}

// --- host ----------------------------------------------------------------------------------------

static enum conv_status launch_mma(const struct conv_stencil_plan *plan,
                                   const struct conv_stencil_batch *batch)
{
    const auto *constants = constants_of<struct kernel_constants<struct mma_filter>>(plan);
    auto kernel = constants->kernel;
    struct mma_filter f = constants->filter;
    f.planes = batch->cuda.d_planes;
    f.count = batch->count;
    kernel<<<batch->cuda.tiles, shape::THREADS, constants->shared_bytes,
             (cudaStream_t)batch->cuda.stream>>>(f);
    return launch_status();
}

template <int TAPS>
static void plan_rows(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct mma_filter>>(plan);
    bool ties;
    pack_bytes(&constants->filter.taps, &ties, stencil, TAPS);
    constants->filter.border = stencil->border;
    constants->filter.border_value = stencil->border_value;
    constants->kernel = ties ? mma<TAPS, true> : mma<TAPS, false>;
    constants->shared_bytes = (size_t)PITCH * (shape::TILE_HEIGHT + TAPS - 1);
    constants->launch = launch_mma;
}

static void plan_mma(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->height <= 3)
        plan_rows<3>(stencil, plan);
    else if (stencil->height <= 5)
        plan_rows<5>(stencil, plan);
    else if (stencil->height <= 7)
        plan_rows<7>(stencil, plan);
    else
        plan_rows<9>(stencil, plan);
}

CONV_CUDA_VARIANT(mma, 75, "tile in shared memory, taps on int8 tensor cores", fits_bytes,
                  score_always<60>, plan_mma, run_planned, shape::TILE_WIDTH, shape::TILE_HEIGHT);
