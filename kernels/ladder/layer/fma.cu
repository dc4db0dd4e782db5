// SPDX-License-Identifier: MIT
// Only multiply-adds in registers: no kernel of float32 arithmetic can be faster.
#include "kernels/ladder/ladder.h"

#include <cuda_runtime.h>

#define THREADS 256
#define CHAINS 8  // independent sums: more than the latency, 4 cycles
#define REPEATS 8 // of each turn, so that the loop itself costs nothing

// Blocks of 256 threads, no memory. The result is never -1, but the compiler does not know.
static __global__ void multiply_add(float *out, int turns, float factor)
{
    float sums[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        sums[i] = (float)(threadIdx.x + i);
    for (int turn = 0; turn < turns; turn++)
#pragma unroll
        for (int repeat = 0; repeat < REPEATS; repeat++)
#pragma unroll
            for (int i = 0; i < CHAINS; i++)
                sums[i] = fmaf(sums[i], factor, 1.0f);
    float sum = 0;
    for (int i = 0; i < CHAINS; i++)
        sum += sums[i];
    if (sum == -1)
        *out = sum;
}

enum conv_status conv_cuda_ladder_fma(float *d_out, int blocks, int turns, void *stream)
{
    multiply_add<<<blocks, THREADS, 0, (cudaStream_t)stream>>>(d_out, turns, 0.5f);
    return cudaPeekAtLastError() == cudaSuccess ? CONV_OK : CONV_ERR_DEVICE;
}

double conv_cuda_ladder_fma_flops(int blocks, int turns)
{
    return 2.0 * CHAINS * REPEATS * THREADS * blocks * turns;
}
