// SPDX-License-Identifier: MIT
// Like kernels/stencil/cuda/blocked.cu, but samples stay bytes: dp4a multiplies four unsigned
// samples by four signed coefficients and adds the products to a sum, in one instruction. For exact
// filters of 8-bit images whose coefficients fit in a byte. The only other work is to shift four
// neighbours into one word.
#include "kernels/ladder/ladder.h"
#include "kernels/stencil/cuda/blocked.cuh"

typedef block_shape<8> shape;

#define DOT_TAPS 4 // samples in a word, taps of a dp4a
// Words in the longest row of taps: 30 + 1 or 28 + 3 samples, see layout_block.
#define MAX_ROW_WORDS ((CONV_FILTER_MAX_SIDE + 1) / DOT_TAPS)

// SIDE 3, 5 and 7: filters up to that size, padded with zeros, loops unrolled. 0: any other.
template <int SIDE> struct dp4a_filter {
    struct block_params block;
    int32_t row_words; // words of coefficients in a row
    struct rounding rounding;
    uint32_t coef[SIDE ? SIDE * ((SIDE + DOT_TAPS - 1) / DOT_TAPS)
                       : CONV_FILTER_MAX_SIDE * MAX_ROW_WORDS];
};
static_assert(sizeof(struct dp4a_filter<0>) <= 4096, "kernel parameters end at 4 KB");

// sum + samples[0] * coefs[0] + ... + samples[3] * coefs[3], samples unsigned, coefficients signed.
static __device__ int32_t dot4_u8(int32_t sum, uint32_t samples, uint32_t coefs)
{
    int32_t result;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(samples), "r"(coefs), "r"(sum));
    return result;
}

// Sums are integers, rounded as floats or as integers. Those rounded as floats start at the bits of
// INTEGER_FLOATS, so that the final integer is the bits of INTEGER_FLOATS + sum.
static __device__ int32_t first_sum(float, const struct rounding &r)
{
    return __float_as_int(INTEGER_FLOATS) + (int32_t)r.bias;
}

static __device__ int32_t first_sum(int32_t, const struct rounding &r)
{
    return (int32_t)r.bias;
}

static __device__ void finish_sum(float &to, int32_t sum)
{
    to = __fadd_rn(__int_as_float(sum), -INTEGER_FLOATS);
}

static __device__ void finish_sum(int32_t &to, int32_t sum)
{
    to = sum;
}

template <typename Sum, int SIDE>
static __device__ void store_sums(const struct conv_stencil_plane &plane, int x, int y,
                                  bool aligned, const int32_t *sums,
                                  const struct dp4a_filter<SIDE> &f)
{
    Sum finished[shape::COLUMNS];
    for (int k = 0; k < shape::COLUMNS; k++)
        finish_sum(finished[k], sums[k]);
    store_four<uint8_t>(plane, x, y, aligned, finished, f.rounding);
}

// `from`: see filter_block. The 12 samples from there on hold every tap of the thread's four
// columns up to 9 x 9. The first four taps of column k apply to the bytes b ... b + 3, where
// b = 4 - SIDE / 2 + k.
template <int SIDE, typename Sum>
static __device__ void filter_unrolled(const uint8_t *from, const struct conv_stencil_plane &plane,
                                       int x, int y, const struct dp4a_filter<SIDE> &f)
{
    constexpr int COLUMNS = shape::COLUMNS, ROWS = shape::ROWS;
    constexpr int PITCH = shape::TILE_WIDTH + 2 * COLUMNS, WORDS = (SIDE + DOT_TAPS - 1) / DOT_TAPS;
    bool aligned = packed4_aligned<uint8_t>(plane.dst, plane.dst_stride);
    int32_t sums[ROWS][COLUMNS];
#pragma unroll
    for (int j = 0; j < ROWS + SIDE - 1; j++) {
        uint32_t line[4] = {0, 0, 0, 0}; // only zero taps apply to the last word
#pragma unroll
        for (int k = 0; k < 3; k++)
            line[k] = ((const uint32_t *)(from + j * PITCH))[k];
        uint32_t window[COLUMNS][WORDS];
#pragma unroll
        for (int k = 0; k < COLUMNS; k++)
#pragma unroll
            for (int g = 0; g < WORDS; g++) {
                int b = DOT_TAPS - SIDE / 2 + k + g * DOT_TAPS;
                window[k][g] = __funnelshift_r(line[b / DOT_TAPS], line[b / DOT_TAPS + 1],
                                               (unsigned)(b % DOT_TAPS * 8));
            }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int tap_row = j - r; // constant once unrolled
            if (tap_row < 0 || tap_row >= SIDE)
                continue;
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                if (tap_row == 0)
                    sums[r][k] = first_sum(Sum(), f.rounding);
#pragma unroll
                for (int g = 0; g < WORDS; g++)
                    sums[r][k] = dot4_u8(sums[r][k], window[k][g], f.coef[tap_row * WORDS + g]);
            }
            if (tap_row == SIDE - 1)
                store_sums<Sum>(plane, x, y + r, aligned, sums[r], f);
        }
    }
}

// Any size: a strip of output rows at a time, taps by words, with a window of two words that moves
// along each row. Rows of coefficients begin with zeros so that the first window is aligned.
template <typename Sum>
static __device__ void filter_any(const uint8_t *from, const struct conv_stencil_plane &plane,
                                  int x, int y, const struct dp4a_filter<0> &f)
{
    constexpr int COLUMNS = shape::COLUMNS;
    constexpr int STRIP = 4;
    bool aligned = packed4_aligned<uint8_t>(plane.dst, plane.dst_stride);
#pragma unroll 1
    for (int top = 0; top < shape::ROWS && y + top < plane.height; top += STRIP) {
        int32_t sums[STRIP][COLUMNS];
        for (int r = 0; r < STRIP; r++)
            for (int k = 0; k < COLUMNS; k++)
                sums[r][k] = first_sum(Sum(), f.rounding);
#pragma unroll 1
        for (int j = 0; j <= 2 * f.block.radius; j++) {
            const uint8_t *line = from + (top + j) * f.block.pitch;
            const uint32_t *coef = f.coef + j * f.row_words;
            uint32_t window[STRIP];
#pragma unroll
            for (int r = 0; r < STRIP; r++)
                window[r] = *(const uint32_t *)(line + r * f.block.pitch);
#pragma unroll 1
            for (int i = 0; i < f.row_words; i++) {
#pragma unroll
                for (int r = 0; r < STRIP; r++) {
                    uint32_t next =
                        *(const uint32_t *)(line + r * f.block.pitch + (i + 1) * DOT_TAPS);
#pragma unroll
                    for (int k = 0; k < COLUMNS; k++)
                        sums[r][k] =
                            dot4_u8(sums[r][k], __funnelshift_r(window[r], next, (unsigned)(k * 8)),
                                    coef[i]);
                    window[r] = next;
                }
            }
        }
#pragma unroll
        for (int r = 0; r < STRIP; r++)
            store_sums<Sum>(plane, x, y + top + r, aligned, sums[r], f);
    }
}

// Blocks of 4 warps compute 128 x 32 samples, as in blocked.cu. Shared memory: the tile with its
// halo, 34 rows of 136 samples for 3 x 3, at most 62 of 160.
template <int SIDE, typename Sum>
static __global__ void __launch_bounds__(shape::THREADS)
    dp4a(const __grid_constant__ struct dp4a_filter<SIDE> f)
{
    auto filter = [&](const uint8_t *from, const struct conv_stencil_plane &plane, int x, int y) {
        if constexpr (SIDE != 0)
            filter_unrolled<SIDE, Sum>(from, plane, x, y, f);
        else
            filter_any<Sum>(from, plane, x, y, f);
    };
    filter_block<shape, SIDE, uint8_t>(f.block, filter);
}

// --- host ----------------------------------------------------------------------------------------

template <int SIDE>
static void plan_side(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    auto *constants = constants_of<struct kernel_constants<struct dp4a_filter<SIDE>>>(plan);
    struct dp4a_filter<SIDE> &f = constants->filter;
    enum sum_kind kind = conv_cuda_rounding(&f.rounding, stencil);
    struct tap_layout layout = layout_block<shape>(&f.block, stencil, SIDE);
    f.row_words = (layout.row_taps + DOT_TAPS - 1) / DOT_TAPS;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++) {
            int tap = layout.left + i;
            uint32_t byte = (uint8_t)stencil->icoef[j * stencil->width + i];
            f.coef[(layout.top + j) * f.row_words + tap / DOT_TAPS] |= byte << tap % DOT_TAPS * 8;
        }

    constants->shared_bytes = (size_t)f.block.pitch * (shape::TILE_HEIGHT + 2 * f.block.radius);
    constants->launch = launch_blocks<shape, struct dp4a_filter<SIDE>>;
    constants->kernel = kind == SUM_FLOAT ? dp4a<SIDE, float> : dp4a<SIDE, int32_t>;
}

static void plan_dp4a(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    int side = max(stencil->width, stencil->height);
    if (side <= 3)
        plan_side<3>(stencil, plan);
    else if (side <= 5)
        plan_side<5>(stencil, plan);
    else if (side <= 7)
        plan_side<7>(stencil, plan);
    else
        plan_side<0>(stencil, plan);
}

// Every partial sum must stay within the range of 2^22 on either side of INTEGER_FLOATS.
static bool can_dp4a(const struct conv_stencil *stencil)
{
    if (!stencil->exact || stencil->depth != 8)
        return false;
    int64_t bound = stencil->bias < 0 ? -stencil->bias : stencil->bias;
    for (int i = 0; i < stencil->width * stencil->height; i++) {
        if (stencil->icoef[i] < -128 || stencil->icoef[i] > 127)
            return false;
        bound += (int64_t)stencil->max * abs(stencil->icoef[i]);
    }
    return bound < 1 << 22;
}

CONV_CUDA_VARIANT(dp4a, 75, "4 x 8 samples per thread, four taps per instruction on bytes",
                  can_dp4a, score_always<35>, plan_dp4a, run_planned, shape::TILE_WIDTH,
                  shape::TILE_HEIGHT);
