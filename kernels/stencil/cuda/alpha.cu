// SPDX-License-Identifier: MIT
// Premultiplied colours before, between and after the filters of a chain: one read of colour and
// alpha, one write of one of them.
#include "kernels/stencil/alpha.h"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define BLOCK_WIDTH 32 // threads
#define BLOCK_HEIGHT 8
#ifndef ALPHA_BLOCKS // tests have fewer
#define ALPHA_BLOCKS 2048
#endif
#define MOST_PLANES 64 // that share them; of more planes each has a share as large

// conv_alpha_divide_sample. Rounding leaves the estimate within 1/32 of a quotient up to MAX.
template <uint32_t MAX>
__device__ static inline uint32_t divide_sample(uint32_t colour, uint32_t alpha)
{
    uint32_t sum = colour * MAX + alpha / 2;
    auto quotient = (uint32_t)fminf(__fdividef((float)sum, (float)alpha), (float)MAX);
    if (quotient * alpha > sum)
        quotient--;
    else if (sum - quotient * alpha >= alpha && quotient < MAX)
        quotient++;
    return alpha ? quotient : 0;
}

template <typename Sample, enum conv_alpha_step STEP>
__device__ static inline void scale_samples(Sample *colours, const Sample *alphas, int count)
{
    constexpr uint32_t MAX = sizeof(Sample) == 1 ? 255 : 65535;
#pragma unroll
    for (int k = 0; k < count; k++) {
        uint32_t value = colours[k];
        if (STEP != CONV_ALPHA_MULTIPLY)
            value = divide_sample<MAX>(value, alphas[k]);
        if (STEP != CONV_ALPHA_DIVIDE)
            value = conv_alpha_multiply_sample(value, alphas[k], MAX);
        colours[k] = (Sample)value;
    }
}

// Column blockIdx.x of the grid is a plane, so that colours of an image read the same alpha at
// about the same time; its blocks of 32 x 8 threads take tiles in turn. A thread has 16 bytes of a
// row where addresses allow it, else one sample. Planes without alpha are not changed. The colours
// of an image all restore the same alpha.
template <typename Sample, enum conv_alpha_step STEP>
static __global__ void __launch_bounds__(BLOCK_WIDTH *BLOCK_HEIGHT)
    scale_alpha(const struct conv_stencil_plane *planes, bool before)
{
    constexpr int COUNT = 16 / (int)sizeof(Sample);
    struct conv_stencil_plane plane = planes[blockIdx.x];
    if (!plane.alpha)
        return;
    ptrdiff_t to_source = plane.src - plane.dst;
    uintptr_t places = (uintptr_t)plane.alpha | (uintptr_t)plane.dst | (uintptr_t)plane.src;
    int each = (places | (uintptr_t)plane.dst_stride) % 16 ? 1 : COUNT;
    int tile_width = BLOCK_WIDTH * each;
    int across = (plane.width - 1) / tile_width + 1;
    int down = (plane.height - 1) / BLOCK_HEIGHT + 1;
    int64_t tiles = (int64_t)across * down;
    for (int64_t t = blockIdx.y; t < tiles; t += gridDim.y) {
        int x = (int)(t % across) * tile_width + (int)threadIdx.x * each;
        int y = (int)(t / across) * BLOCK_HEIGHT + (int)threadIdx.y;
        if (x >= plane.width || y >= plane.height)
            continue;
        ptrdiff_t row = y * plane.dst_stride + (before ? to_source : 0);
        Sample *alpha = (Sample *)((uint8_t *)plane.alpha + row) + x;
        Sample *colour = (Sample *)(plane.dst + row) + x;
        if (STEP == CONV_ALPHA_RESTORE) {
            const Sample *from = (const Sample *)(plane.alpha + row + to_source) + x;
            for (int k = 0; k < each && x + k < plane.width; k++)
                alpha[k] = from[k];
        } else if (each == COUNT && x + COUNT <= plane.width) {
            uint4 colours = *(const uint4 *)colour, alphas = *(const uint4 *)alpha;
            scale_samples<Sample, STEP>((Sample *)&colours, (const Sample *)&alphas, COUNT);
            *(uint4 *)colour = colours;
        } else {
#pragma unroll 1
            for (int k = 0; k < each && x + k < plane.width; k++)
                scale_samples<Sample, STEP>(colour + k, alpha + k, 1);
        }
    }
}

enum conv_status conv_cuda_alpha_run(enum conv_alpha_step step, bool before,
                                     const struct conv_stencil_plane *d_planes, int count,
                                     int depth, void *stream)
{
    static void (*const kernels[][2])(const struct conv_stencil_plane *, bool) = {
        {NULL, NULL}, // CONV_ALPHA_NOTHING
        {scale_alpha<uint8_t, CONV_ALPHA_MULTIPLY>, scale_alpha<uint16_t, CONV_ALPHA_MULTIPLY>},
        {scale_alpha<uint8_t, CONV_ALPHA_DIVIDE>, scale_alpha<uint16_t, CONV_ALPHA_DIVIDE>},
        {scale_alpha<uint8_t, CONV_ALPHA_RENEW>, scale_alpha<uint16_t, CONV_ALPHA_RENEW>},
        {scale_alpha<uint8_t, CONV_ALPHA_RESTORE>, scale_alpha<uint16_t, CONV_ALPHA_RESTORE>},
    };
    auto *kernel = kernels[step][depth == 16];
    int blocks = ALPHA_BLOCKS / min(count, MOST_PLANES);
    dim3 grid((unsigned)count, (unsigned)max(blocks, 1)), block(BLOCK_WIDTH, BLOCK_HEIGHT);
    if (!kernel)
        return CONV_OK;
    kernel<<<grid, block, 0, (cudaStream_t)stream>>>(d_planes, before);
    return launch_status();
}
