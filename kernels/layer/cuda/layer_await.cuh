// SPDX-License-Identifier: MIT
// The order of multiply-adds after samples are read from shared memory.
#ifndef CONV_KERNELS_LAYER_CUDA_LAYER_AWAIT_CUH
#define CONV_KERNELS_LAYER_CUDA_LAYER_AWAIT_CUH

// Waits for samples that were read, before the first multiply-add. Otherwise the compiler begins
// with those that arrive first, so that each weight is new to several groups of samples: more
// multiply-adds then read three new registers, which takes the register file longer.
template <int N> __device__ inline void layer_await(float (&x)[N])
{
    (void)x; // the emulated device leaves the statement out
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(x[i]));
}

#endif
