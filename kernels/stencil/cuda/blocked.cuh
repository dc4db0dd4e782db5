// SPDX-License-Identifier: MIT
// What the register-blocked kernels (blocked.cu, dp4a.cu) share: the shape of their blocks, a tile
// in shared memory that is filled by words.
#ifndef CONV_KERNELS_STENCIL_CUDA_BLOCKED_CUH
#define CONV_KERNELS_STENCIL_CUDA_BLOCKED_CUH

#include <cuda_pipeline.h>

#include "kernels/stencil/cuda/pack.cuh"

#define COLUMNS 4 // samples side by side that a thread makes: one word of 8-bit samples
#ifndef ROWS
#define ROWS 8 // and below one another
#endif
#define WARPS 4
#define THREADS (WARPS * WARP)
#define TILE_WIDTH (WARP * COLUMNS) // a warp is as wide as the tile
#define TILE_HEIGHT (WARPS * ROWS)

// --- tile in, samples out ------------------------------------------------------------------------

template <typename Sample> __device__ inline bool quads_aligned(const uint8_t *data, int64_t stride)
{
    return ((uintptr_t)data | (uintptr_t)stride) % sizeof(quad<Sample>) == 0;
}

// Fills the block's tile: each warp takes every WARPS-th row, its lanes a quad each, left to right.
// Quads within the image are copied straight to shared memory (asynchronously from sm_80 on);
// others are put together sample by sample where the border leads.
template <typename Sample>
__device__ inline void load_tile(Sample *to, int pitch, const struct tile &tile, int halo,
                                 int radius, enum conv_border border, int border_value)
{
    const struct conv_stencil_plane &plane = tile.plane;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int left = tile.x - halo, top = tile.y - radius;
    bool aligned = quads_aligned<Sample>(plane.src, plane.src_stride);

    if (aligned && left >= 0 && tile.x + TILE_WIDTH + halo <= plane.width && top >= 0 &&
        tile.y + TILE_HEIGHT + radius <= plane.height) {
        const uint8_t *from = plane.src + top * plane.src_stride + left * (int64_t)sizeof(Sample);
        for (int row = warp; row < TILE_HEIGHT + 2 * radius; row += WARPS)
            for (int x = lane * COLUMNS; x < TILE_WIDTH + 2 * halo; x += WARP * COLUMNS)
                __pipeline_memcpy_async(to + row * pitch + x,
                                        (const Sample *)(from + row * plane.src_stride) + x,
                                        sizeof(quad<Sample>));
    } else {
        // What the image's last samples do not need is left out.
        int rows = min(TILE_HEIGHT, plane.height - tile.y) + 2 * radius;
        int columns = min(TILE_WIDTH, plane.width - tile.x) + 2 * halo;
        for (int row = warp; row < rows; row += WARPS) {
            int sy = conv_stencil_border(border, top + row, plane.height);
            const Sample *from = (const Sample *)(plane.src + sy * plane.src_stride);
            for (int x = lane * COLUMNS; x < columns; x += WARP * COLUMNS) {
                int sx = left + x;
                if (aligned && sy >= 0 && sx >= 0 && sx + COLUMNS <= plane.width) {
                    __pipeline_memcpy_async(to + row * pitch + x, from + sx, sizeof(quad<Sample>));
                    continue;
                }
                for (int k = 0; k < COLUMNS; k++) {
                    int at = conv_stencil_border(border, sx + k, plane.width);
                    to[row * pitch + x + k] = at < 0 || sy < 0 ? (Sample)border_value : from[at];
                }
            }
        }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads(); // each warp reads rows that the others have loaded
}

// Rounds four sums and stores those of them that lie in the image.
template <typename Sample, typename Sum>
__device__ inline void store_quad(const struct conv_stencil_plane &plane, int x, int y,
                                  bool aligned, const Sum *sums, const struct rounding &rounding)
{
    if (y >= plane.height)
        return;
    uint32_t samples[COLUMNS];
    for (int k = 0; k < COLUMNS; k++)
        samples[k] = round_sum(sums[k], rounding);
    Sample *row = (Sample *)(plane.dst + y * plane.dst_stride) + x;
    if (aligned && x + COLUMNS <= plane.width) {
        pack(*(quad<Sample> *)row, samples);
        return;
    }
    for (int k = 0; k < COLUMNS; k++)
        if (x + k < plane.width)
            row[k] = (Sample)samples[k];
}

#endif
