// SPDX-License-Identifier: MIT
// kernels/layer/cuda/wgmma_tf32.cuh in C++.
#ifndef CONV_EMULATED_WGMMA_TF32_CUH
#define CONV_EMULATED_WGMMA_TF32_CUH

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/layer/cuda/wgmma.cuh"

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
