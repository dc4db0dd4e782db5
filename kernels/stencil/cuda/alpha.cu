// SPDX-License-Identifier: MIT
// Premultiplied colours before, between and after the filters of a chain: one read of colour and
// alpha, one write.
#include "kernels/stencil/alpha.h"
#include "kernels/stencil/cuda/stencil_device.cuh"

#define BLOCK_WIDTH 32
#define BLOCK_HEIGHT 8
#define BLOCKS_PER_PLANE 64

enum operation { MULTIPLY, DIVIDE, RENEW };

// Row blockIdx.y of the grid is a plane; its 64 blocks of 32 x 8 threads take tiles in turn. Planes
// without alpha are not changed.
template <typename Sample, enum operation OPERATION>
static __global__ void scale_alpha(const struct conv_stencil_plane *planes, uint32_t max)
{
    struct conv_stencil_plane plane = planes[blockIdx.y];
    if (!plane.alpha)
        return;
    int across = (plane.width + BLOCK_WIDTH - 1) / BLOCK_WIDTH;
    int down = (plane.height + BLOCK_HEIGHT - 1) / BLOCK_HEIGHT;
    int64_t tiles = (int64_t)across * down;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int x = (int)(t % across) * BLOCK_WIDTH + (int)threadIdx.x;
        int y = (int)(t / across) * BLOCK_HEIGHT + (int)threadIdx.y;
        if (x >= plane.width || y >= plane.height)
            continue;
        Sample *colour = (Sample *)(plane.dst + y * plane.dst_stride) + x;
        uint32_t alpha = ((const Sample *)(plane.alpha + y * plane.dst_stride))[x];
        uint32_t value = *colour;
        if (OPERATION != MULTIPLY)
            value = conv_alpha_divide_sample(value, alpha, max);
        if (OPERATION != DIVIDE)
            value = conv_alpha_multiply_sample(value, alpha, max);
        *colour = (Sample)value;
    }
}

template <enum operation OPERATION>
static enum conv_status launch_scale(const struct conv_stencil_plane *d_planes, int count,
                                     int depth, void *stream)
{
    dim3 grid(BLOCKS_PER_PLANE, (unsigned)count), block(BLOCK_WIDTH, BLOCK_HEIGHT);
    if (depth == 16)
        scale_alpha<uint16_t, OPERATION><<<grid, block, 0, (cudaStream_t)stream>>>(d_planes, 65535);
    else
        scale_alpha<uint8_t, OPERATION><<<grid, block, 0, (cudaStream_t)stream>>>(d_planes, 255);
    return launch_status();
}

enum conv_status conv_cuda_alpha_renew(const struct conv_stencil_plane *d_planes, int count,
                                       int depth, void *stream)
{
    return launch_scale<RENEW>(d_planes, count, depth, stream);
}

enum conv_status conv_cuda_alpha_multiply(const struct conv_stencil_plane *d_planes, int count,
                                          int depth, void *stream)
{
    return launch_scale<MULTIPLY>(d_planes, count, depth, stream);
}

enum conv_status conv_cuda_alpha_divide(const struct conv_stencil_plane *d_planes, int count,
                                        int depth, void *stream)
{
    return launch_scale<DIVIDE>(d_planes, count, depth, stream);
}
