// SPDX-License-Identifier: MIT
// Pooling of a map: sums over the cells of a grid, in one stated order, so that the CPU and CUDA
// compute the same bits.
//
// A cell covers rows [i*height/grid, (i+1)*height/grid) and the columns likewise. In each of its
// rows, sample x of the cell belongs to lane x mod 32; a lane adds its samples from left to right
// in float64, and lanes are added pairwise at distances 16, 8, 4, 2, 1. The sums of the rows are
// added from top to bottom.
#ifndef CONV_KERNELS_BANK_POOLING_H
#define CONV_KERNELS_BANK_POOLING_H

#include <stdint.h>

#include "base/err.h"
#include "kernels/common/place.h"

#ifdef __cplusplus
extern "C" {
#endif

struct conv_pool_sums {
    double sum, squares; // of the samples and of their squares
    double max;          // the largest sample; NaN is ignored, -infinity if there is none
};

// The first sample of cell i, and one past the last of cell i - 1.
CONV_HOST_DEVICE static inline int conv_pool_edge(int size, int grid, int i)
{
    return (int)((int64_t)size * i / grid);
}

// Adds rows first_row to first_row + rows - 1 of a plane (rows of `width` floats without gaps;
// `map` points to its first row) to cells[grid][grid], which begin as conv_pool_start leaves them.
// Each row is added once, in order.
void conv_pool_start(struct conv_pool_sums *cells, int grid);
void conv_pool_add(struct conv_pool_sums *cells, int grid, const float *map, int height, int width,
                   int first_row, int rows);

// The same for `planes` whole planes in device memory, queued into `stream` (a cudaStream_t): cells
// are [planes][grid][grid], row_sums is scratch for [planes][height][grid]. CONV_ERR_DEVICE if a
// launch failed.
enum conv_status conv_cuda_pool(struct conv_pool_sums *d_cells, int grid, const float *d_maps,
                                int64_t planes, int height, int width,
                                struct conv_pool_sums *d_row_sums, void *stream);

// dst[i] is the largest of `count` planes at i, or the root of the sum of squares of two, as
// separable.h defines it; size is the samples of a plane. The largest is the first plane's value
// unless a later one compares greater.
void conv_combine_max(float *dst, const float *planes, int count, int64_t size);
void conv_combine_magnitude(float *dst, const float *planes, int64_t size);
enum conv_status conv_cuda_combine_max(float *d_dst, const float *d_planes, int count, int64_t size,
                                       void *stream);
enum conv_status conv_cuda_combine_magnitude(float *d_dst, const float *d_planes, int64_t size,
                                             void *stream);

#ifdef __cplusplus
}
#endif

#endif
