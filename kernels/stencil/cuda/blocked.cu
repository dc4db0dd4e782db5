// SPDX-License-Identifier: MIT
// Register blocking: a block copies its tile and the halo around it to shared memory by words,
// asynchronously from compute capability 8.0 on, and every thread computes 4 x 8 samples of it. A
// sample is unpacked once for all output rows that it is a tap of, and global memory is accessed by
// whole words of whole warps.
#include "kernels/stencil/cuda/blocked.cuh"

typedef block_shape<8> shape;

// A padded row of taps is at most 32 long: see layout_block.
#define MAX_COEFS (CONV_FILTER_MAX_SIDE * (CONV_FILTER_MAX_SIDE + 1))

// SIDE 3 and 5: filters up to that size, padded with zeros, loops unrolled. 0: any other, also with
// a threshold or float32 samples.
template <int SIDE> struct blocked_filter {
    struct block_params block;
    int32_t row_coefs; // coefficients in a row, a multiple of 4 if SIDE is 0
    int32_t keeps;     // this and the next two as in struct conv_stencil
    int64_t below;
    float fbelow;
    struct rounding rounding;
    int32_t coef[SIDE ? SIDE * SIDE : MAX_COEFS];
};
static_assert(sizeof(struct blocked_filter<0>) <= 4096, "kernel parameters end at 4 KB");

// --- the arithmetic ------------------------------------------------------------------------------

// `from`: see filter_block. A row of input is unpacked once and added to all output rows that it is
// a tap of. Taps are added in row-major order, which defines real filters.
template <int SIDE, typename Sample, typename Sum, typename Result>
static __device__ inline void filter_unrolled(const Sample *from,
                                              const struct conv_stencil_plane &plane, int x, int y,
                                              const struct blocked_filter<SIDE> &f)
{
    constexpr int COLUMNS = shape::COLUMNS, ROWS = shape::ROWS;
    constexpr int PITCH = shape::TILE_WIDTH + 2 * COLUMNS;
    bool aligned = packed4_aligned<Result>(plane.dst, plane.dst_stride);
    Sum sums[ROWS][COLUMNS];
#pragma unroll
    for (int j = 0; j < ROWS + SIDE - 1; j++) {
        operand<Sum> line[3 * COLUMNS];
#pragma unroll
        for (int k = 0; k < 3; k++)
            unpack(line + k * COLUMNS, ((const packed4<Sample> *)(from + j * PITCH))[k]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int tap_row = j - r; // constant once unrolled
            if (tap_row < 0 || tap_row >= SIDE)
                continue;
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                if (tap_row == 0)
                    start_sum(sums[r][k], f.rounding);
#pragma unroll
                for (int i = 0; i < SIDE; i++)
                    add_tap(sums[r][k], f.coef[tap_row * SIDE + i],
                            line[COLUMNS - SIDE / 2 + k + i]);
            }
            if (tap_row == SIDE - 1)
                store_four<Result>(plane, x, y + r, aligned, sums[r], f.rounding);
        }
    }
}

__device__ inline void keep_sample(float &sum, float sample, const struct blocked_filter<0> &f)
{
    float divisor = f.rounding.divisor ? (float)f.rounding.divisor : 1.0f; // real filters have none
    float kept = __fadd_rn(__fmul_rn(sample, divisor), f.rounding.fbias);
    if (fabsf(__fadd_rn(sum, -kept)) < f.fbelow)
        sum = kept;
}

template <typename Sum>
__device__ inline void keep_sample(Sum &sum, int32_t sample, const struct blocked_filter<0> &f)
{
    int64_t kept = sample * f.rounding.divisor + f.rounding.bias, difference = sum - kept;
    if ((difference < 0 ? -difference : difference) < f.below)
        sum = (Sum)kept;
}

// Any size: a strip of output rows at a time, taps in steps of four, with a window of eight samples
// that moves along each row. Rows of coefficients begin with zeros so that the first window is
// aligned. Taps on float32 samples that are 0 are skipped, since a product with an infinite sample
// would not be 0; the condition is the same for all threads.
template <typename Sample, typename Sum, typename Result>
static __device__ inline void filter_any(const Sample *from, const struct conv_stencil_plane &plane,
                                         int x, int y, const struct blocked_filter<0> &f)
{
    constexpr int COLUMNS = shape::COLUMNS;
    constexpr int STRIP = sizeof(Sum) == 8 ? 2 : 4; // 64-bit sums take two registers
    bool aligned = packed4_aligned<Result>(plane.dst, plane.dst_stride);
    int pitch = f.block.pitch;
#pragma unroll 1
    for (int top = 0; top < shape::ROWS && y + top < plane.height; top += STRIP) {
        Sum sums[STRIP][COLUMNS];
        for (int r = 0; r < STRIP; r++)
            for (int k = 0; k < COLUMNS; k++)
                start_sum(sums[r][k], f.rounding);
#pragma unroll 1
        for (int j = 0; j <= 2 * f.block.radius; j++) {
            const Sample *line = from + (top + j) * pitch;
            const int32_t *coef = f.coef + j * f.row_coefs;
            operand<Sum> window[STRIP][2 * COLUMNS];
#pragma unroll
            for (int r = 0; r < STRIP; r++)
                unpack(window[r], *(const packed4<Sample> *)(line + r * pitch));
#pragma unroll 1
            for (int i = 0; i < f.row_coefs; i += COLUMNS) {
#pragma unroll
                for (int r = 0; r < STRIP; r++) {
                    unpack(window[r] + COLUMNS,
                           *(const packed4<Sample> *)(line + r * pitch + i + COLUMNS));
#pragma unroll
                    for (int t = 0; t < COLUMNS; t++)
                        if (sizeof(Sample) < 4 || __int_as_float(coef[i + t]) != 0)
                            for (int k = 0; k < COLUMNS; k++)
                                add_tap(sums[r][k], coef[i + t], window[r][k + t]);
#pragma unroll
                    for (int k = 0; k < COLUMNS; k++)
                        window[r][k] = window[r][COLUMNS + k];
                }
            }
        }
#pragma unroll
        for (int r = 0; r < STRIP; r++) {
            if (f.keeps) {
                const Sample *centre = from + (top + r + f.block.radius) * pitch + f.block.halo;
                operand<Sum> samples[COLUMNS];
                unpack(samples, *(const packed4<Sample> *)centre);
                for (int k = 0; k < COLUMNS; k++)
                    keep_sample(sums[r][k], samples[k], f);
            }
            store_four<Result>(plane, x, y + top + r, aligned, sums[r], f.rounding);
        }
    }
}

// Blocks of 4 warps compute 128 x 32 samples. Shared memory: the tile with its halo, 34 rows of 136
// samples for 3 x 3, at most 62 of 160 (39,680 bytes of floats). With the bound of 4
// blocks ptxas uses the registers that it needs instead of spilling for more blocks.
template <int SIDE, typename Sample, typename Sum, typename Result>
static __global__ void __launch_bounds__(shape::THREADS, 4)
    blocked(const __grid_constant__ struct blocked_filter<SIDE> f)
{
    auto filter = [&](const Sample *from, const struct conv_stencil_plane &plane, int x, int y) {
        if constexpr (SIDE != 0)
            filter_unrolled<SIDE, Sample, Sum, Result>(from, plane, x, y, f);
        else
            filter_any<Sample, Sum, Result>(from, plane, x, y, f);
    };
    filter_block<shape, SIDE, Sample>(f.block, filter);
}

// --- host ----------------------------------------------------------------------------------------

template <int SIDE>
static void plan_side(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct blocked_filter<SIDE>>>(plan);
    struct blocked_filter<SIDE> &f = constants->filter;
    enum sum_kind kind = conv_cuda_rounding(&f.rounding, stencil);
    struct tap_layout layout = layout_block<shape>(&f.block, stencil, SIDE);
    f.row_coefs = layout.row_taps;
    f.keeps = stencil->keeps;
    f.below = stencil->keep_below;
    f.fbelow = stencil->fkeep_below;
    // Adding -0 times a sample of 0 or more changes no float, not even -0.
    for (int32_t &coef : f.coef)
        coef = kind == SUM_FLOAT ? INT32_MIN : 0;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            if (int32_t coef = conv_cuda_coef(stencil, kind, i, j))
                f.coef[(layout.top + j) * f.row_coefs + layout.left + i] = coef;

    size_t samples = (size_t)f.block.pitch * (shape::TILE_HEIGHT + 2 * f.block.radius);
    constants->shared_bytes = samples * (stencil->depth / 8);
    constants->launch = launch_blocks<shape, struct blocked_filter<SIDE>>;
    if constexpr (SIDE == 0)
        if (stencil->depth == 32) {
            constants->kernel = blocked<SIDE, float, float, float>;
            return;
        }
    with_types(stencil->depth, kind, [&](auto sample, auto sum) {
        typedef decltype(sample) Sample;
        constants->kernel = stencil->floats ? blocked<SIDE, Sample, decltype(sum), float>
                                            : blocked<SIDE, Sample, decltype(sum), Sample>;
    });
}

static void plan_blocked(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    int side = max(stencil->width, stencil->height);
    if (side > 5 || stencil->keeps || stencil->depth == 32)
        plan_side<0>(stencil, plan);
    else if (side > 3)
        plan_side<5>(stencil, plan);
    else
        plan_side<3>(stencil, plan);
}

static bool can_blocked(const struct conv_stencil *stencil)
{
    return !stencil->real.side;
}

CONV_CUDA_VARIANT_OF(FLOAT_RESULTS | FLOAT_SAMPLES | THRESHOLDS, blocked, 75,
                     "tile with halo in shared memory, 4 x 8 samples per thread", can_blocked,
                     score_always<30>, plan_blocked, run_planned, shape::TILE_WIDTH,
                     shape::TILE_HEIGHT);
