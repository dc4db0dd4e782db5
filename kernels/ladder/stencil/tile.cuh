// SPDX-License-Identifier: MIT
// For the textbook tile kernels (shared.cu, unrolled.cu, planes.cu): copying a tile with its halo
// to shared memory.
#pragma once

#include "kernels/ladder/ladder.h"
#include "kernels/stencil/cuda/stencil_device.cuh"

// Copies `columns` x `rows` samples, the first of which is (left, top) of the plane, in steps of
// the block, one sample per thread. `pitch`: samples from a row of `to` to the next. Samples
// outside the plane are those that the border defines. A barrier must follow before `to` is read.
template <typename Sample>
__device__ inline void
load_tile_samples(Sample *to, int pitch, const struct conv_stencil_plane &plane, int left, int top,
                  int columns, int rows, enum conv_border border, float border_value)
{
    for (int y = (int)threadIdx.y; y < rows; y += (int)blockDim.y) {
        int sy = conv_border_index(border, top + y, plane.height);
        const Sample *from = (const Sample *)(plane.src + sy * plane.src_stride);
        for (int x = (int)threadIdx.x; x < columns; x += (int)blockDim.x) {
            int sx = conv_border_index(border, left + x, plane.width);
            to[y * pitch + x] = sx < 0 || sy < 0 ? (Sample)border_value : from[sx];
        }
    }
}

// A filter of at most SIDE x SIDE taps in the middle of a square of zeros, so that loops over taps
// can be unrolled.
template <int SIDE> struct square {
    struct rounding rounding;
    int32_t border;
    float border_value;
    int32_t coef[SIDE * SIDE];
};

template <int SIDE> struct square_constants {
    enum sum_kind kind;
    struct square<SIDE> filter;
};

// Calls call(side) with the smallest compiled side that holds the filter, an integral_constant.
template <typename Call> static void with_side(const struct conv_stencil *stencil, Call call)
{
    int side = max(stencil->width, stencil->height);
    if (side <= 3)
        call(std::integral_constant<int, 3>());
    else if (side <= 5)
        call(std::integral_constant<int, 5>());
    else
        call(std::integral_constant<int, 7>());
}

static inline bool can_square(const struct conv_stencil *stencil)
{
    return max(stencil->width, stencil->height) <= 7;
}

static inline void plan_square(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    with_side(stencil, [&](auto side) {
        constexpr int SIDE = decltype(side)::value;
        auto *constants = constants_of<struct square_constants<SIDE>>(plan);
        struct square<SIDE> *filter = &constants->filter;
        enum sum_kind kind = conv_cuda_rounding(&filter->rounding, stencil);
        constants->kind = kind;
        filter->border = stencil->border;
        filter->border_value = stencil->border_value;
        int left = SIDE / 2 - stencil->width / 2, top = SIDE / 2 - stencil->height / 2;
        for (int j = 0; j < stencil->height; j++)
            for (int i = 0; i < stencil->width; i++)
                filter->coef[(top + j) * SIDE + left + i] = conv_cuda_coef(stencil, kind, i, j);
    });
}

// The sum of SIDE x SIDE samples of a tile, beginning at `from`.
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
