// SPDX-License-Identifier: MIT
// Premultiplied colours before, between and after the filters of a chain: one read of colour and
// alpha, one write of one of them.
#include "kernels/stencil/alpha.h"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define BLOCK_WIDTH 32
#define BLOCK_HEIGHT 8
#ifndef BLOCKS_PER_PLANE // tests have fewer
#define BLOCKS_PER_PLANE 64
#endif

// Row blockIdx.y of the grid is a plane; its blocks of 32 x 8 threads take tiles in turn. Planes
// without alpha are not changed. The colours of an image all restore the same alpha.
template <typename Sample, enum conv_alpha_step STEP>
static __global__ void scale_alpha(const struct conv_stencil_plane *planes, bool before,
                                   uint32_t max)
{
    struct conv_stencil_plane plane = planes[blockIdx.y];
    if (!plane.alpha)
        return;
    ptrdiff_t to_source = plane.src - plane.dst;
    int across = (plane.width + BLOCK_WIDTH - 1) / BLOCK_WIDTH;
    int down = (plane.height + BLOCK_HEIGHT - 1) / BLOCK_HEIGHT;
    int64_t tiles = (int64_t)across * down;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int x = (int)(t % across) * BLOCK_WIDTH + (int)threadIdx.x;
        int y = (int)(t / across) * BLOCK_HEIGHT + (int)threadIdx.y;
        if (x >= plane.width || y >= plane.height)
            continue;
        ptrdiff_t row = y * plane.dst_stride + (before ? to_source : 0);
        Sample *alpha = (Sample *)((uint8_t *)plane.alpha + row) + x;
        Sample *colour = (Sample *)(plane.dst + row) + x;
        if (STEP == CONV_ALPHA_RESTORE) {
            *alpha = ((const Sample *)(plane.alpha + row + to_source))[x];
            continue;
        }
        uint32_t value = *colour;
        if (STEP != CONV_ALPHA_MULTIPLY)
            value = conv_alpha_divide_sample(value, *alpha, max);
        if (STEP != CONV_ALPHA_DIVIDE)
            value = conv_alpha_multiply_sample(value, *alpha, max);
        *colour = (Sample)value;
    }
}

template <enum conv_alpha_step STEP>
static enum conv_status launch_scale(bool before, const struct conv_stencil_plane *d_planes,
                                     int count, int depth, void *stream)
{
    dim3 grid(BLOCKS_PER_PLANE, (unsigned)count), block(BLOCK_WIDTH, BLOCK_HEIGHT);
    if (depth == 16)
        scale_alpha<uint16_t, STEP>
            <<<grid, block, 0, (cudaStream_t)stream>>>(d_planes, before, 65535);
    else
        scale_alpha<uint8_t, STEP><<<grid, block, 0, (cudaStream_t)stream>>>(d_planes, before, 255);
    return launch_status();
}

enum conv_status conv_cuda_alpha_run(enum conv_alpha_step step, bool before,
                                     const struct conv_stencil_plane *d_planes, int count,
                                     int depth, void *stream)
{
    switch (step) {
    case CONV_ALPHA_NOTHING:
        break;
    case CONV_ALPHA_MULTIPLY:
        return launch_scale<CONV_ALPHA_MULTIPLY>(before, d_planes, count, depth, stream);
    case CONV_ALPHA_DIVIDE:
        return launch_scale<CONV_ALPHA_DIVIDE>(before, d_planes, count, depth, stream);
    case CONV_ALPHA_RENEW:
        return launch_scale<CONV_ALPHA_RENEW>(before, d_planes, count, depth, stream);
    case CONV_ALPHA_RESTORE:
        return launch_scale<CONV_ALPHA_RESTORE>(before, d_planes, count, depth, stream);
    }
    return CONV_OK;
}
