// SPDX-License-Identifier: MIT
// kernels/layer/cuda/wgmma_rows.cuh in C++.
#ifndef CONV_EMULATED_WGMMA_ROWS_CUH
#define CONV_EMULATED_WGMMA_ROWS_CUH

#include "kernels/layer/cuda/wgmma.cuh"
#include "ptx.h"

// The 8 numbers of column `column` of b from row 8 * half on.
static inline const uint16_t *wgmma_column(uint64_t descriptor, int column, int half)
{
    uint32_t address = (uint32_t)(descriptor & 0x3fff), rows = descriptor >> 16 & 0x3fff;
    uint32_t columns = descriptor >> 32 & 0x3fff;
    address += (uint32_t)half * rows + (uint32_t)(column / 8) * columns + (uint32_t)(column % 8);
    return (const uint16_t *)emulated::shared_at((address & 0x3fff) << 4, 16, 16);
}

static inline void wgmma_load_rows(uint32_t (&a)[4], uint32_t address)
{
    ptx::ldmatrix_sync_aligned_m8n8_x4_shared_b16(a[0], a[1], a[2], a[3], address);
}

struct wgmma_fragment {
    uint32_t a[4];
};

template <int N, int ACCUMULATE = 1>
static inline void wgmma_rows(float *d, const uint32_t (&a)[4], uint64_t b,
                              const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    auto all =
        emulated::exchange<wgmma_fragment>({file, line}, 0xffffffffu, {{a[0], a[1], a[2], a[3]}});
    int lane = emulated::lane();
    for (int k = 0; k < N / 2; k++) {
        int column = k / 4 * 8 + lane % 4 * 2 + k % 2;
        double sum = ACCUMULATE ? d[k] : 0;
        for (int half = 0; half < 2; half++) {
            const uint16_t *w = wgmma_column(b, column, half);
            for (int i = 0; i < 8; i++) {
                uint32_t pair = all[lane / 4 * 4 + i / 2].a[k % 4 / 2 + half * 2];
                sum += (double)ptx::half_of(pair, i % 2) * conv_half_to_float(w[i]);
            }
        }
        d[k] = (float)sum;
    }
}

#endif
