// SPDX-License-Identifier: MIT
// Separable filters of one size, applied to planes of float32: the components of filter banks.
//
// A filter is a sum of `terms` products of a column and a row, and its response is defined as
//   line[k][y][x] = sum over v of rows[k][v] * src[y][x+v]
//   response[y][x] = sum over u, then over t, of columns[u][t] * line[line_of[t]][y+u][x]
// in float32 with fused multiply-adds in ascending order, each sum starting from 0. Filters share
// lines. A group is one filter, or two whose map is sqrt(a*a + b*b): a*a rounded, then fmaf(b, b,
// a*a), then the correctly rounded root. The CPU and CUDA compute the same bits.
#ifndef CONV_KERNELS_BANK_SEPARABLE_H
#define CONV_KERNELS_BANK_SEPARABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif
