// SPDX-License-Identifier: MIT
// Filters with a threshold, by register blocking as in blocked.cu: a sum that is near its sample is
// replaced by it. For all sample types and results; with float32 samples, taps that are 0 are
// skipped, as in blocked_floats.cu, and matrices that it cannot do have a threshold of 0 here.
#include "kernels/stencil/cuda/blocked.cuh"

typedef block_shape<8> shape;

// A padded row of taps is at most 32 long: see layout_block.
#define MAX_COEFS (CONV_FILTER_MAX_SIDE * (CONV_FILTER_MAX_SIDE + 1))

struct threshold_filter {
    struct block_params block;
    struct rounding rounding;
    int64_t below;     // as conv_stencil.keep_below
    float fbelow;      // as conv_stencil.fkeep_below
    int32_t row_coefs; // coefficients in a row, a multiple of 4
    int32_t coef[MAX_COEFS];
};
static_assert(sizeof(struct threshold_filter) <= 4096, "kernel parameters end at 4 KB");

// --- the arithmetic ------------------------------------------------------------------------------

__device__ inline void keep_sample(float &sum, float sample, const struct threshold_filter &f)
{
    float divisor = f.rounding.divisor ? (float)f.rounding.divisor : 1.0f; // real filters have none
    float kept = __fadd_rn(__fmul_rn(sample, divisor), f.rounding.fbias);
    if (fabsf(__fadd_rn(sum, -kept)) < f.fbelow)
        sum = kept;
}

template <typename Sum>
__device__ inline void keep_sample(Sum &sum, int32_t sample, const struct threshold_filter &f)
{
    int64_t kept = sample * f.rounding.divisor + f.rounding.bias, difference = sum - kept;
    if ((difference < 0 ? -difference : difference) < f.below)
        sum = (Sum)kept;
}

template <typename Sample, typename Sum, bool FLOATS>
static __device__ inline void store_sums(const struct conv_stencil_plane &plane, int x, int y,
                                         bool aligned, const Sum *sums,
                                         const struct threshold_filter &f)
{
    if constexpr (!FLOATS) {
        store_four<Sample>(plane, x, y, aligned, sums, f.rounding);
    } else if (y < plane.height) {
        float *row = (float *)(plane.dst + y * plane.dst_stride) + x;
        for (int k = 0; k < shape::COLUMNS; k++)
            if (x + k < plane.width)
                row[k] = divide_sum(sums[k], f.rounding);
    }
}

// Like filter_any of blocked.cu: taps in steps of four, with a window of eight samples that moves
// along each row. Rows of coefficients begin with zeros so that the first window is aligned.
template <typename Sample, typename Sum, bool FLOATS>
static __device__ inline void filter_strips(const Sample *from,
                                            const struct conv_stencil_plane &plane, int x, int y,
                                            const struct threshold_filter &f)
{
    constexpr int COLUMNS = shape::COLUMNS, STRIP = sizeof(Sample) == 4 ? 4 : 2; // output rows
    bool aligned = packed4_aligned<Sample>(plane.dst, plane.dst_stride);
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
            const Sample *centre = from + (top + r + f.block.radius) * pitch + f.block.halo;
            operand<Sum> samples[COLUMNS];
            unpack(samples, *(const packed4<Sample> *)centre);
            for (int k = 0; k < COLUMNS; k++)
                keep_sample(sums[r][k], samples[k], f);
            store_sums<Sample, Sum, FLOATS>(plane, x, y + top + r, aligned, sums[r], f);
        }
    }
}

// Blocks of 4 warps compute 128 x 32 samples. Shared memory: the tile with its halo, at most 62
// rows of 160 samples (39,680 bytes of floats). The barrier in load_tile precedes all reads.
template <typename Sample, typename Sum, bool FLOATS>
static __global__ void __launch_bounds__(shape::THREADS, 4)
    threshold(const __grid_constant__ struct threshold_filter f)
{
    auto filter = [&](const Sample *from, const struct conv_stencil_plane &plane, int x, int y) {
        filter_strips<Sample, Sum, FLOATS>(from, plane, x, y, f);
    };
    filter_block<shape, 0, Sample>(f.block, filter);
}

// --- host ----------------------------------------------------------------------------------------

static bool can_threshold(const struct conv_stencil *stencil)
{
    return stencil->depth == 32 ? !stencil->real.side && !stencil->magnitude && !stencil->symmetric
                                : stencil->keeps;
}

static void plan_threshold(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct threshold_filter>>(plan);
    struct threshold_filter &f = constants->filter;
    enum sum_kind kind = conv_cuda_rounding(&f.rounding, stencil);
    struct tap_layout layout = layout_block<shape>(&f.block, stencil, 0);
    f.below = stencil->keep_below;
    f.fbelow = stencil->fkeep_below;
    f.row_coefs = layout.row_taps;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            f.coef[j * f.row_coefs + layout.left + i] = conv_cuda_coef(stencil, kind, i, j);
    constants->shared_bytes = (size_t)f.block.pitch * (shape::TILE_HEIGHT + 2 * f.block.radius) *
                              (size_t)(stencil->depth / 8);
    constants->launch = launch_blocks<shape, struct threshold_filter>;
    if (stencil->depth == 32) {
        constants->kernel = threshold<float, float, true>;
        return;
    }
    with_types(stencil->depth, kind, [&](auto sample, auto sum) {
        constants->kernel = stencil->floats ? threshold<decltype(sample), decltype(sum), true>
                                            : threshold<decltype(sample), decltype(sum), false>;
    });
}

CONV_CUDA_VARIANT_OF(
    FLOAT_RESULTS | FLOAT_SAMPLES | THRESHOLDS, threshold, 75,
    "thresholds, any float32 matrix: tile in shared memory, 4 x 2 or 4 sums per thread",
    can_threshold, score_always<30>, plan_threshold, run_planned, shape::TILE_WIDTH,
    shape::TILE_HEIGHT);
