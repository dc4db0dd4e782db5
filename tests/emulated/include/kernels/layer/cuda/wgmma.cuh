// SPDX-License-Identifier: MIT
// kernels/layer/cuda/wgmma.cuh in C++: each thread computes its part when it issues the
// instruction. Reading the result too early, or a missing fence, is not detected.
#ifndef CONV_EMULATED_WGMMA_CUH
#define CONV_EMULATED_WGMMA_CUH

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "block.h"
#include "ptx.h"
#include "shared.h"
#include "tensor/element.h"

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

// --- operands in registers -----------------------------------------------------------------------

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

// --- TF32 ----------------------------------------------------------------------------------------

struct wgmma_tf32_fragment {
    uint32_t a[4];
};

// What a tensor core does with other bits is not documented.
static inline double wgmma_tf32_number(uint32_t bits)
{
    float value;
    if (bits & 0x1fff)
        std::abort();
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <int N>
static inline void wgmma_tf32(float *d, const uint32_t (&a)[4], uint64_t b,
                              const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    auto all = emulated::exchange<wgmma_tf32_fragment>({file, line}, 0xffffffffu,
                                                       {{a[0], a[1], a[2], a[3]}});
    int lane = emulated::lane();
    uint32_t halves = b >> 16 & 0x3fff, blocks = b >> 32 & 0x3fff;
    for (int k = 0; k < N / 2; k++) {
        int column = k / 4 * 8 + lane % 4 * 2 + k % 2;
        double sum = d[k];
        for (int i = 0; i < 8; i++) {
            uint32_t at = (uint32_t)(b & 0x3fff) + (uint32_t)(i / 4) * halves +
                          (uint32_t)(column / 8) * blocks + (uint32_t)(column % 8);
            const uint32_t *w = (const uint32_t *)emulated::shared_at((at & 0x3fff) << 4, 16, 16);
            sum += wgmma_tf32_number(all[lane / 4 * 4 + i % 4].a[k % 4 / 2 + i / 4 * 2]) *
                   wgmma_tf32_number(w[i % 4]);
        }
        d[k] = (float)sum;
    }
}

#endif
