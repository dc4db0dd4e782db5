// SPDX-License-Identifier: MIT
// What the textbook tile kernels (shared.cu, unrolled.cu, planes.cu) share: the copy of a tile with
// its halo to shared memory.
#ifndef CONV_KERNELS_STENCIL_CUDA_TILE_CUH
#define CONV_KERNELS_STENCIL_CUDA_TILE_CUH

#include "kernels/stencil/cuda/stencil_device.cuh"

// Threads walk over `columns` x `rows` samples in steps of the block, one sample each, and write
// them `pitch` samples a row. (left, top) is the first one's place in the image; what lies
// outside comes from where the border leads, so that whoever reads the tile need not know of
// borders. The caller puts a barrier behind it.
template <typename Sample>
__device__ inline void
load_tile_samples(Sample *to, int pitch, const struct conv_stencil_plane &plane, int left, int top,
                  int columns, int rows, enum conv_border border, int border_value)
{
    for (int y = (int)threadIdx.y; y < rows; y += (int)blockDim.y) {
        int sy = conv_stencil_border(border, top + y, plane.height);
        const Sample *from = (const Sample *)(plane.src + sy * plane.src_stride);
        for (int x = (int)threadIdx.x; x < columns; x += (int)blockDim.x) {
            int sx = conv_stencil_border(border, left + x, plane.width);
            to[y * pitch + x] = sx < 0 || sy < 0 ? (Sample)border_value : from[sx];
        }
    }
}

// A filter of at most SIDE x SIDE taps in the middle of a square of SIDE, the rest zeros, which
// change no sum. Its size is known at compile time: loops over it unroll.
template <int SIDE> struct square {
    struct rounding rounding;
    int32_t border, border_value;
    int32_t coef[SIDE * SIDE];
};

template <int SIDE>
static enum sum_kind make_square(struct square<SIDE> *square, const struct conv_stencil *stencil)
{
    *square = {};
    enum sum_kind kind = conv_cuda_rounding(&square->rounding, stencil);
    square->border = stencil->border;
    square->border_value = stencil->border_value;
    int left = SIDE / 2 - stencil->width / 2, top = SIDE / 2 - stencil->height / 2;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            square->coef[(top + j) * SIDE + left + i] = conv_cuda_coef(stencil, kind, i, j);
    return kind;
}

// The sum at the middle of SIDE x SIDE samples of a tile, `from` the first of them.
template <int SIDE, typename Sum, typename Sample>
__device__ inline Sum sum_square(const Sample *from, int pitch, const struct square<SIDE> &filter)
{
    Sum sum;
    start_sum(sum, filter.rounding);
#pragma unroll
    for (int j = 0; j < SIDE; j++)
#pragma unroll
        for (int i = 0; i < SIDE; i++)
            add_tap(sum, filter.coef[j * SIDE + i], (operand<Sum>)from[j * pitch + i]);
    return sum;
}

#endif
