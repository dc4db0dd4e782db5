// SPDX-License-Identifier: MIT
// kernels/layer/cuda/wgmma.cuh in C++: each thread computes its part when it issues the
// instruction. Reading the result too early, or a missing fence, is not detected.
#ifndef CONV_EMULATED_WGMMA_CUH
#define CONV_EMULATED_WGMMA_CUH

#include <cstdint>

#include "block.h"
#include "shared.h"
#include "tensor/half.h"

static inline void wgmma_fence(void)
{
}

static inline void wgmma_commit(void)
{
}

static inline void wgmma_wait(void)
{
}

static inline void wgmma_wait_but_one(void)
{
}

static inline void wgmma_fence_shared(void)
{
}

// 8 numbers of row `row`, at columns 8 * half and on.
static inline const uint16_t *wgmma_row(uint64_t descriptor, int row, int half)
{
    uint32_t address = (uint32_t)(descriptor & 0x3fff), columns = descriptor >> 16 & 0x3fff;
    uint32_t rows = descriptor >> 32 & 0x3fff;
    address += (uint32_t)half * columns + (uint32_t)(row / 8) * rows + (uint32_t)(row % 8);
    return (const uint16_t *)emulated::shared_at((address & 0x3fff) << 4, 16, 16);
}

template <int N> static inline void wgmma(float *d, uint64_t a, uint64_t b, int accumulate)
{
    int thread = (int)emulated::thread_index().x % 128;
    for (int k = 0; k < N / 2; k++) {
        int row = thread / 32 * 16 + thread % 32 / 4 + k % 4 / 2 * 8;
        int column = k / 4 * 8 + thread % 4 * 2 + k % 2;
        double sum = accumulate ? d[k] : 0;
        for (int half = 0; half < 2; half++) {
            const uint16_t *x = wgmma_row(a, row, half), *w = wgmma_row(b, column, half);
            for (int i = 0; i < 8; i++)
                sum += (double)conv_half_to_float(x[i]) * conv_half_to_float(w[i]);
        }
        d[k] = (float)sum;
    }
}

#endif
