// SPDX-License-Identifier: MIT
// Sums over cells and the largest of maps on a CUDA device.
#include <cuda_runtime.h>

#include "kernels/bank/bank_kernels.h"

#define WARP 32
#define WARPS 8 // of a block
#define FULL 0xffffffffu

static __device__ double shuffle_down(double value, int distance)
{
    return __shfl_down_sync(FULL, value, (unsigned)distance);
}

// A warp sums one row of one plane, cell after cell: its lanes are those of bank_kernels.h.
static __global__ void sum_rows(struct conv_pool_sums *row_sums, int grid, const float *maps,
                                int64_t rows, int width)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (row >= rows)
        return;
    const float *map = maps + row * width;
    for (int j = 0; j < grid; j++) {
        int left = conv_pool_edge(width, grid, j), right = conv_pool_edge(width, grid, j + 1);
        double sum = 0, squares = 0, max = -(double)INFINITY;
        for (int x = left + (int)threadIdx.x; x < right; x += WARP) {
            double value = map[x];
            sum += value;
            squares = fma(value, value, squares); // the product is exact: as two operations
            max = value > max ? value : max;
        }
        for (int distance = WARP / 2; distance > 0; distance /= 2) {
            sum += shuffle_down(sum, distance);
            squares += shuffle_down(squares, distance);
            double other = shuffle_down(max, distance);
            max = other > max ? other : max;
        }
        if (threadIdx.x == 0) {
            struct conv_pool_sums *to = &row_sums[row * grid + j];
            to->sum = sum;
            to->squares = squares;
            to->max = max;
        }
    }
}

// A warp adds the rows of one cell, 32 at a time: every lane reads one of them, then all lanes add
// the 32 sums in order.
static __global__ void sum_cells(struct conv_pool_sums *cells, int grid,
                                 const struct conv_pool_sums *row_sums, int64_t count, int height)
{
    int64_t cell = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (cell >= count)
        return;
    int64_t plane = cell / (grid * grid);
    int i = (int)(cell / grid % grid), j = (int)(cell % grid);
    int top = conv_pool_edge(height, grid, i), bottom = conv_pool_edge(height, grid, i + 1);
    double sum = 0, squares = 0, max = -(double)INFINITY;
    for (int y = top; y < bottom; y += WARP) {
        int rows = min(bottom - y, WARP);
        struct conv_pool_sums own = {0, 0, 0};
        if ((int)threadIdx.x < rows)
            own = row_sums[(plane * height + y + threadIdx.x) * grid + j];
        for (int lane = 0; lane < rows; lane++) {
            sum += __shfl_sync(FULL, own.sum, lane);
            squares += __shfl_sync(FULL, own.squares, lane);
            double other = __shfl_sync(FULL, own.max, lane);
            max = other > max ? other : max;
        }
    }
    if (threadIdx.x == 0) {
        cells[cell].sum = sum;
        cells[cell].squares = squares;
        cells[cell].max = max;
    }
}

static enum conv_status launch_status(void)
{
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

enum conv_status conv_cuda_pool(struct conv_pool_sums *d_cells, int grid, const float *d_maps,
                                int64_t planes, int height, int width,
                                struct conv_pool_sums *d_row_sums, void *stream)
{
    int64_t rows = planes * height, cells = planes * grid * grid;
    dim3 block(WARP, WARPS);
    sum_rows<<<(unsigned)((rows - 1) / WARPS + 1), block, 0, (cudaStream_t)stream>>>(
        d_row_sums, grid, d_maps, rows, width);
    sum_cells<<<(unsigned)((cells - 1) / WARPS + 1), block, 0, (cudaStream_t)stream>>>(
        d_cells, grid, d_row_sums, cells, height);
    return launch_status();
}

#define THREADS 256

static __global__ void combine_max(float *dst, const float *planes, int count, int64_t size)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= size)
        return;
    float max = planes[i];
    for (int p = 1; p < count; p++) {
        float value = planes[p * size + i];
        max = value > max ? value : max;
    }
    dst[i] = max;
}

enum conv_status conv_cuda_combine_max(float *d_dst, const float *d_planes, int count, int64_t size,
                                       void *stream)
{
    combine_max<<<(unsigned)((size - 1) / THREADS + 1), THREADS, 0, (cudaStream_t)stream>>>(
        d_dst, d_planes, count, size);
    return launch_status();
}
