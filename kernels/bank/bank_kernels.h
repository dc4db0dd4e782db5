// SPDX-License-Identifier: MIT
// The kernels of filter banks: separable filters, and pooling of their maps. The CPU and CUDA
// compute the same bits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/common/place.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- separable filters ---------------------------------------------------------------------------

// Filters of one size, applied to planes of float32: the components of filter banks.
//
// A filter is a sum of `terms` products of a column and a row, and its response is defined as
//   line[k][y][x] = sum over v of rows[k][v] * src[y][x+v]
//   response[y][x] = sum over u, then over t, of columns[u][t] * line[line_of[t]][y+u][x]
// in float32 with fused multiply-adds in ascending order, each sum starting from 0. Filters share
// lines. A group is one filter, or two whose map is sqrt(a*a + b*b): a*a rounded, then fmaf(b, b,
// a*a), then the correctly rounded root.

#define CONV_SEPARABLE_MAX_SIDE 63
#define CONV_SEPARABLE_MAX_TERMS 3

// The arrays are in the memory of the device that uses them, and outlive every run.
struct conv_separable {
    int height, width;      // taps, 1 to CONV_SEPARABLE_MAX_SIDE
    int lines;              // different rows
    int groups;             // maps
    int parts;              // filters per group: 1, or 2 for magnitudes
    int terms;              // 1 to CONV_SEPARABLE_MAX_TERMS
    const float *rows;      // [lines][width]
    const int32_t *line_of; // [groups][terms]
    const float *columns;   // [groups][height][terms][parts]
};

// src points to the sample under the top left tap of the first output; there are
// out_height + height - 1 rows of out_width + width - 1 samples. Strides in floats.
struct conv_separable_batch {
    int64_t images;
    const float *src;
    int64_t src_row, src_image;
    int out_height, out_width;
    float *dst; // rows without gaps
    int64_t dst_map, dst_image;
    // CPU: the output rows to compute, and conv_separable_scratch floats for this run only, 64-byte
    // aligned.
    int first_row, rows;
    // CUDA: conv_cuda_separable_scratch floats for this run only, 256-byte aligned.
    float *scratch;
    void *stream; // a cudaStream_t
};

// Floats of scratch for a CPU run.
size_t conv_separable_scratch(const struct conv_separable *filters, int out_width);

// Computes rows first_row to first_row + rows - 1 of all maps, on the calling thread, with the
// fastest code for this processor.
void conv_separable_run(const struct conv_separable *filters,
                        const struct conv_separable_batch *batch);

// The same on a CUDA device: all rows, queued into batch->stream. CONV_ERR_DEVICE if a launch
// failed.
size_t conv_cuda_separable_scratch(const struct conv_separable *filters, int out_height,
                                   int out_width, int64_t images);
enum conv_status conv_cuda_separable_run(const struct conv_separable *filters,
                                         const struct conv_separable_batch *batch);

// --- for the CPU's code, compiled once per instruction set -------------------------------------

// Output rows whose lines are kept at a time: at 31 taps and 768 columns two lines of a band take
// 380 KB, which second-level caches hold.
#define CONV_SEPARABLE_BAND 32

// Floats from one row of a line to the next.
static inline int64_t conv_separable_pitch(int out_width)
{
    return (out_width + 15) / 16 * 16;
}

typedef void (*conv_separable_fn)(const struct conv_separable *filters,
                                  const struct conv_separable_batch *batch);

// Like conv_separable_run; the processor must have the instructions. May run on any thread.
void conv_separable_portable(const struct conv_separable *filters,
                             const struct conv_separable_batch *batch);
void conv_separable_avx2(const struct conv_separable *filters,
                         const struct conv_separable_batch *batch);
void conv_separable_avx512(const struct conv_separable *filters,
                           const struct conv_separable_batch *batch);

// --- pooling -------------------------------------------------------------------------------------

// Sums of a map over the cells of a grid, in one stated order.
//
// A cell covers rows [i*height/grid, (i+1)*height/grid) and the columns likewise. In each of its
// rows, sample x of the cell belongs to lane x mod 32; a lane adds its samples from left to right
// in float64, and lanes are added pairwise at distances 16, 8, 4, 2, 1. The sums of the rows are
// added from top to bottom.

struct conv_pool_sums {
    double sum, squares; // of the samples and of their squares
    double max;          // the largest sample; NaN is ignored, -infinity if there is none
};

// The first sample of cell i, and one past the last of cell i - 1.
CONV_HOST_DEVICE static inline int conv_pool_edge(int size, int grid, int i)
{
    return (int)((int64_t)size * i / grid);
}

// cells[grid][grid] of a plane, `height` rows of `width` floats without gaps.
void conv_pool_sum(struct conv_pool_sums *cells, int grid, const float *map, int height, int width);

// The same for `planes` whole planes in device memory, queued into `stream` (a cudaStream_t): cells
// are [planes][grid][grid], row_sums is scratch for [planes][height][grid]. CONV_ERR_DEVICE if a
// launch failed.
enum conv_status conv_cuda_pool(struct conv_pool_sums *d_cells, int grid, const float *d_maps,
                                int64_t planes, int height, int width,
                                struct conv_pool_sums *d_row_sums, void *stream);

// dst[i] is the largest of `count` planes at i; size is the samples of a plane. The largest is the
// first plane's value unless a later one compares greater.
void conv_combine_max(float *dst, const float *planes, int count, int64_t size);
enum conv_status conv_cuda_combine_max(float *d_dst, const float *d_planes, int count, int64_t size,
                                       void *stream);

#ifdef __cplusplus
}
#endif
