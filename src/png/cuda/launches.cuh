// SPDX-License-Identifier: MIT
// Launchers of the kernels of PNG decoding, for decode.cu.
#ifndef CONV_PNG_CUDA_LAUNCHES_CUH
#define CONV_PNG_CUDA_LAUNCHES_CUH

#include "png/cuda/cuda_decode.h"
#include "png/cuda/symbols.cuh"

// After the filtered rows come zeros, which the unfilter kernel may read, and a copy of the image's
// result for that kernel.
#define CONV_DECODE_SLACK 80

ANYWHERE size_t conv_decode_result_at(uint32_t rows_bytes)
{
    return ((size_t)rows_bytes + CONV_DECODE_SLACK + 3) / 4 * 4;
}

extern "C" {
// Each enqueues one launch and sets *name to its name. This one inflates, checks the Adler-32 and
// the filter bytes, and writes d_status.
enum conv_status conv_cuda_inflate(const struct conv_decode_batch *batch, const char **name);
// Reverses the filters of the images that were inflated.
enum conv_status conv_cuda_unfilter(const struct conv_decode_batch *batch, const char **name);
}

#endif
