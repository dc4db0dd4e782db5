// SPDX-License-Identifier: MIT
// Stands in for bench_cuda_*.c in a build without CUDA.
#include "bench/bench_cuda.h"

const struct conv_bench_cuda *conv_bench_cuda(void)
{
    return NULL;
}
