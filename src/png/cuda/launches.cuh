// SPDX-License-Identifier: MIT
// The kernels of PNG decoding, to those who launch them (decode.cu).
#ifndef CONV_PNG_CUDA_LAUNCHES_CUH
#define CONV_PNG_CUDA_LAUNCHES_CUH

#include "png/cuda/cuda_decode.h"
#include "png/cuda/symbols.cuh"

// Behind the filtered rows: zeros that the filters' kernel may read, then the image's result once
// more, for that kernel.
#define CONV_DECODE_SLACK 80

ANYWHERE size_t conv_decode_result_at(uint32_t rows_bytes)
{
    return ((size_t)rows_bytes + CONV_DECODE_SLACK + 3) / 4 * 4;
}

extern "C" {
// Each queues one launch. Inflates, checks the Adler-32 and the filters' numbers, writes d_status.
// *name is what the launch is called.
enum conv_status conv_cuda_inflate(const struct conv_decode_batch *batch, const char **name);
// Of the images that were inflated, undoes the filters.
enum conv_status conv_cuda_unfilter(const struct conv_decode_batch *batch, const char **name);
}

#endif
