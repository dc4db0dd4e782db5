// SPDX-License-Identifier: MIT
// For the register-blocked kernels (blocked.cu, dp4a.cu, separable.cu, mma.cu): the shape of their
// blocks, and a tile in shared memory that is filled by words.
#pragma once

#include <cuda_pipeline.h>

#include "kernels/stencil/cuda/pack.cuh"

// Shape of a block of threads that compute 4 x ROWS samples each. A warp is as wide as the tile.
template <int ROWS_> struct block_shape {
    static constexpr int COLUMNS = 4, ROWS = ROWS_; // of a thread: a word of 8-bit samples, rows
    static constexpr int WARPS = 4, THREADS = WARPS * WARP;
    static constexpr int TILE_WIDTH = WARP * COLUMNS, TILE_HEIGHT = WARPS * ROWS;
};

// The source of the tiles of a launch, and their layout in shared memory.
struct block_params {
    const struct conv_stencil_plane *planes;
    int32_t count;
    int32_t border;
    float border_value;
    int32_t radius; // rows of halo above and below
    int32_t halo;   // columns of halo left and right, a multiple of 4
    int32_t pitch;  // samples from a row of the tile in shared memory to the next
};

// --- tile in, samples out ------------------------------------------------------------------------

template <typename Sample>
__device__ inline bool packed4_aligned(const uint8_t *data, int64_t stride)
{
    return ((uintptr_t)data | (uintptr_t)stride) % sizeof(packed4<Sample>) == 0;
}

// Fills the block's tile: each warp takes every WARPS-th row, its lanes four samples each, from
// left to right. Four within the image are copied directly to shared memory (asynchronously from
// sm_80 on); others are loaded one by one as the border defines.
template <typename Shape, typename Sample>
__device__ inline void load_tile(Sample *to, int pitch, const struct tile &tile, int halo,
                                 int radius, enum conv_border border, float border_value)
{
    constexpr int COLUMNS = Shape::COLUMNS, WARPS = Shape::WARPS;
    constexpr int TILE_WIDTH = Shape::TILE_WIDTH, TILE_HEIGHT = Shape::TILE_HEIGHT;
    const struct conv_stencil_plane &plane = tile.plane;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int left = tile.x - halo, top = tile.y - radius;
    bool aligned = packed4_aligned<Sample>(plane.src, plane.src_stride);

    if (aligned && left >= 0 && tile.x + TILE_WIDTH + halo <= plane.width && top >= 0 &&
        tile.y + TILE_HEIGHT + radius <= plane.height) {
        const uint8_t *from = plane.src + top * plane.src_stride + left * (int64_t)sizeof(Sample);
        for (int row = warp; row < TILE_HEIGHT + 2 * radius; row += WARPS)
            for (int x = lane * COLUMNS; x < TILE_WIDTH + 2 * halo; x += WARP * COLUMNS)
                __pipeline_memcpy_async(to + row * pitch + x,
                                        (const Sample *)(from + row * plane.src_stride) + x,
                                        sizeof(packed4<Sample>));
    } else {
        // Rows and columns that are needed only by samples beyond the image are not loaded. Several
        // rows are on the way together, as their latency counts in small images.
        constexpr int TOGETHER = 4;
        int rows = min(TILE_HEIGHT, plane.height - tile.y) + 2 * radius;
        int columns = min(TILE_WIDTH, plane.width - tile.x) + 2 * halo;
        for (int x = lane * COLUMNS; x < columns; x += WARP * COLUMNS) {
            int sx = left + x, at[COLUMNS];
            bool inside = aligned && sx >= 0 && sx + COLUMNS <= plane.width;
            for (int k = 0; k < COLUMNS; k++)
                at[k] = conv_border_index(border, sx + k, plane.width);
            for (int first = warp; first < rows; first += TOGETHER * WARPS) {
                Sample samples[TOGETHER][COLUMNS];
                bool single[TOGETHER];
#pragma unroll
                for (int r = 0; r < TOGETHER; r++) {
                    int row = first + r * WARPS;
                    int sy = conv_border_index(border, top + row, plane.height);
                    const Sample *from = (const Sample *)(plane.src + sy * plane.src_stride);
                    single[r] = row < rows && (!inside || sy < 0);
                    if (row < rows && !single[r])
                        __pipeline_memcpy_async(to + row * pitch + x, from + sx,
                                                sizeof(packed4<Sample>));
                    for (int k = 0; k < COLUMNS && single[r]; k++)
                        samples[r][k] = at[k] < 0 || sy < 0 ? (Sample)border_value : from[at[k]];
                }
#pragma unroll
                for (int r = 0; r < TOGETHER; r++)
                    for (int k = 0; k < COLUMNS && single[r]; k++)
                        to[(first + r * WARPS) * pitch + x + k] = samples[r][k];
            }
        }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads(); // a warp reads rows that others have loaded
}

// Rounds or divides four sums and stores those of them that lie in the image.
template <typename Result, typename Sum>
__device__ inline void store_four(const struct conv_stencil_plane &plane, int x, int y,
                                  bool aligned, const Sum *sums, const struct rounding &rounding)
{
    constexpr int COLUMNS = 4;
    constexpr bool FLOATS = sizeof(Result) == sizeof(float);
    if (y >= plane.height)
        return;
    typename std::conditional<FLOATS, float, uint32_t>::type results[COLUMNS];
    for (int k = 0; k < COLUMNS; k++)
        if constexpr (FLOATS)
            results[k] = divide_sum(sums[k], rounding);
        else
            results[k] = round_sum(sums[k], rounding);
    Result *row = (Result *)(plane.dst + y * plane.dst_stride) + x;
    if (aligned && x + COLUMNS <= plane.width) {
        pack(*(packed4<Result> *)row, results);
        return;
    }
    for (int k = 0; k < COLUMNS; k++)
        if (x + k < plane.width)
            row[k] = (Result)results[k];
}

// The body of a kernel: loads the block's tile and calls filter(from, plane, x, y) for each thread
// with samples in the plane. `from` is in the top row of the halo,
// four columns (or the halo) left of the thread's samples; (x, y) is its first sample. SIDE > 0:
// the halo is known to the compiler.
template <typename Shape, int SIDE, typename Sample, typename Filter>
__device__ inline void filter_block(const struct block_params &b, Filter filter)
{
    extern __shared__ uint4 memory[];
    Sample *samples = (Sample *)memory;
    struct tile tile = find_tile(b.planes, b.count, Shape::TILE_WIDTH, Shape::TILE_HEIGHT);
    int pitch = SIDE ? Shape::TILE_WIDTH + 2 * Shape::COLUMNS : b.pitch;
    load_tile<Shape>(samples, pitch, tile, SIDE ? Shape::COLUMNS : b.halo,
                     SIDE ? SIDE / 2 : b.radius, (enum conv_border)b.border, b.border_value);

    int column = (int)threadIdx.x % WARP * Shape::COLUMNS;
    int row = (int)threadIdx.x / WARP * Shape::ROWS;
    int x = tile.x + column, y = tile.y + row;
    if (x >= tile.plane.width || y >= tile.plane.height)
        return;
    filter(samples + row * pitch + column, tile.plane, x, y);
}

// --- host ----------------------------------------------------------------------------------------

// The position of the filter's first coefficient in a kernel's rows of taps, and the number of taps
// in a row.
struct tap_layout {
    int left, top, row_taps;
};

// Fills in *b except for the planes and returns the layout of the taps.
//
// side > 0: they are in the middle of a square of `side`.
//
// side 0: the halo's left edge is a multiple of 4 samples; zeros before the coefficients of a row
// make up for the difference to the filter's radius, and zeros after them fill its last step of 4.
// The longest rows are 29 + 2 and 31 + 1, that is 32. If the last step ends beyond the halo, the
// tile's rows have room for it: samples read there are only multiplied by zeros.
template <typename Shape>
static struct tap_layout layout_block(struct block_params *b, const struct conv_stencil *stencil,
                                      int side)
{
    constexpr int STEP = Shape::COLUMNS;
    b->border = stencil->border;
    b->border_value = stencil->border_value;
    int radius = stencil->width / 2;
    if (side) {
        b->radius = side / 2;
        b->halo = STEP;
        b->pitch = Shape::TILE_WIDTH + 2 * STEP;
        return {side / 2 - radius, side / 2 - stencil->height / 2, side};
    }
    b->radius = stencil->height / 2;
    b->halo = (radius + STEP - 1) / STEP * STEP;
    int left = b->halo - radius;
    int row_taps = (left + stencil->width + STEP - 1) / STEP * STEP;
    b->pitch = Shape::TILE_WIDTH + max(2 * b->halo, row_taps);
    return {left, 0, row_taps};
}

// Launches the planned kernel, whose parameter has a `block`.
template <typename Shape, typename Filter>
static enum conv_status launch_blocks(const struct conv_stencil_plan *plan,
                                      const struct conv_stencil_batch *batch)
{
    const auto *constants = constants_of<struct kernel_constants<Filter>>(plan);
    auto kernel = constants->kernel;
    Filter f = constants->filter;
    f.block.planes = batch->cuda.d_planes;
    f.block.count = batch->count;
    // A kernel can use 48 KB without an attribute.
    if (constants->shared_bytes > 48 * 1024 && allow_shared_memory(plan, (const void *)kernel))
        return CONV_ERR_DEVICE;
    kernel<<<batch->cuda.tiles, Shape::THREADS, constants->shared_bytes,
             (cudaStream_t)batch->cuda.stream>>>(f);
    return launch_status();
}
