// SPDX-License-Identifier: MIT
// Filters a coarse image of integers (decimated.cu), with the products of decimated_reduce.cuh: a
// warp has 16 columns of results and walks down, 16 rows at a time, which depend on 16 + 2 * radius
// columns and rows. Results are exact sums of 16 bits times two weights of 16 bits, rounded once.
#ifndef CONV_KERNELS_STENCIL_CUDA_DECIMATED_FILTER_CUH
#define CONV_KERNELS_STENCIL_CUDA_DECIMATED_FILTER_CUH

#include "kernels/stencil/cuda/decimated_reduce.cuh"

#define WINDOW 32 // columns of a product of rows, and rows of one of columns
#define MOST_WINDOWS ((STRIP + 2 * MOST_RADIUS - 1) / WINDOW + 1)
#define FILTER_WARPS 4  // of a block
#define FILTER_BLOCKS 4 // of a processor

// Tables of the products along rows, then along columns, from the first window on. `line`: weights
// by distance, up to radius + 1.
__device__ static inline void write_lines(uint32_t *tables, const uint32_t *line, int windows,
                                          int radius)
{
    for (int i = (int)threadIdx.x; i < 2 * windows * WARP * 4; i += FILTER_WARPS * WARP) {
        int table = i / (4 * WARP), lane = i / 4 % WARP, r = i % 4, t = lane % 4, half = r / 2;
        bool rows = table < windows;
        int away = (rows ? table : table - windows) * WINDOW - lane / 4 - 8 * (r % 2) - radius;
        write_word(tables, table, lane, r, [&](int k) {
            int at = rows ? 8 * t + 4 * half + k : 16 * half + 8 * (k / 2) + 2 * t + k % 2;
            return line[min(abs(away + at), radius + 1)];
        });
    }
}

// The lane's coarse samples of a window: columns i to i + 7 of rows y and y + 8, as coarse_place
// counts them.
template <typename Sample>
__device__ static inline void load_window(uint4 (&rows)[2], int i, int y,
                                          const struct grid<Sample> &grid,
                                          const struct decimated_filter &f)
{
    int x = i - f.radius + f.pad;
    bool inside = x >= 0 && x + 8 <= grid.coarse_width;
#pragma unroll
    for (int q = 0; q < 2; q++) {
        const uint16_t *row =
            grid.coarse +
            (int64_t)coarse_place(f, y + 8 * q, grid.coarse_height) * grid.coarse_pitch;
        if (inside) {
            rows[q] = *(const uint4 *)(row + x);
        } else {
            uint32_t words[4];
#pragma unroll
            for (int w = 0; w < 4; w++)
                words[w] = (uint32_t)row[coarse_place(f, i + 2 * w, grid.coarse_width)] |
                           (uint32_t)row[coarse_place(f, i + 2 * w + 1, grid.coarse_width)] << 16;
            rows[q] = as_uint4(words);
        }
    }
}

// The first product of 16 rows, as half of B of the second.
template <typename Sample>
__device__ static inline void
filter_rows(uint32_t (*words)[bytes_of<uint16_t>::ROW_SUM], int left, int top, int windows,
            const uint4 *tables, const struct grid<Sample> &grid, const struct decimated_filter &f)
{
    int lane = (int)threadIdx.x % WARP;
    int32_t sums[2][bytes_of<uint16_t>::ROW_PARTS][4] = {};
    for (int a = 0; a < windows; a++) {
        uint4 rows[2];
        load_window(rows, left + a * WINDOW + lane % 4 * 8, top + lane / 4, grid, f);
        add_segment<uint16_t>(sums, rows, tables + a * TABLE_CELLS + lane);
    }
    split_sums<uint16_t>(words, sums);
}

template <typename Sample>
__device__ static inline void store_tile(const int32_t (*sums)[bytes_of<uint16_t>::PARTS][4],
                                         int left, int top, const struct grid<Sample> &grid)
{
    constexpr int PARTS = bytes_of<uint16_t>::PARTS;
    constexpr int DROPPED = 48 - samples_of<Sample>::FILTERED - 24; // bits, after the first 24
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int x = left + 8 * n + lane % 4 * 2 + k % 2, y = top + lane / 4 + k / 2 * 8;
            uint32_t sum = 0; // without the lower 24 bits
#pragma unroll
            for (int p = 0; p < PARTS - 1; p++)
                sum = (sum >> 8) + (uint32_t)sums[n][p][k];
            sum += (uint32_t)sums[n][PARTS - 1][k] << 8;
            if (x >= 0 && x < grid.width && y < grid.height)
                grid.filtered[(int64_t)y * grid.pitch + x] =
                    (typename samples_of<Sample>::filtered_type)((sum + (1u << (DROPPED - 1))) >>
                                                                 DROPPED);
        }
}

// A warp has filter_rows results of 16 columns. Shared: at most 10 KB of tables.
template <typename Sample>
static __global__ void __launch_bounds__(FILTER_WARPS *WARP, FILTER_BLOCKS)
    filter_bytes(const __grid_constant__ struct decimated_filter f)
{
    typedef struct bytes_of<uint16_t> bytes;
    __shared__ uint4 tables[2 * MOST_WINDOWS * TABLE_CELLS];
    __shared__ uint32_t line[MOST_RADIUS + 2];
    const struct grid<Sample> grid = find_grid<Sample>(f, f.planes[blockIdx.y]);
    int windows = (STRIP + 2 * f.radius - 1) / WINDOW + 1;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    // Windows begin at multiples of 8 coarse samples.
    int lead = (f.pad - f.radius) & 7, across = (grid.width + lead - 1) / STRIP + 1;
    int items = across * ((grid.height - 1) / f.filter_rows + 1);
    for (int i = (int)threadIdx.x; i <= f.radius + 1; i += FILTER_WARPS * WARP)
        line[i] = i <= f.radius ? f.line[i] : 0;
    __syncthreads(); // weights of other threads
    write_lines((uint32_t *)tables, line, windows, f.radius);
    __syncthreads(); // tables
    start_next();
    wait_for_cells();
    for (int item = (int)blockIdx.x * FILTER_WARPS + warp; item < items;
         item += (int)gridDim.x * FILTER_WARPS) {
        int left = item % across * STRIP - lead, first = item / across * f.filter_rows;
        int end = min(first + f.filter_rows, grid.height);
        uint32_t words[2][2][bytes::ROW_SUM];
        for (int top = first; top < end; top += STRIP) {
            int32_t sums[2][bytes::PARTS][4] = {};
            for (int b = 0; b < windows; b++) {
                int y = top + b * WINDOW;
                if (windows == 1 && top > first)
                    memcpy(words[0], words[1], sizeof words[0]);
                else
                    filter_rows(words[0], left, y, windows, tables, grid, f);
                filter_rows(words[1], left, y + STRIP, windows, tables, grid, f);
                add_block<uint16_t>(sums, words, tables + (windows + b) * TABLE_CELLS + lane);
            }
            store_tile(sums, left, top, grid);
        }
    }
}

#endif
