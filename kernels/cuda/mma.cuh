// SPDX-License-Identifier: MIT
// A filter's row of taps as a product of matrices of bytes, for the rows that let tensor cores do
// it (mma.cu, tensor.cu): exact filters of 8-bit pictures up to 17 x 9 whose coefficients fit in 8
// bits.
//
// Taps: one mma m16n8k32 multiplies 16 segments of a row (A: 32 bytes each, of which the middle 16
// are samples to make) by one row of taps, laid out for 8 of the 16 (B: as a Toeplitz matrix). B's
// columns are in such an order that a lane ends up with four neighbours: a word to store, without
// a shuffle.
// Rounding: sums start at the bits of 2^23, are floats therefore, and one FMA divides them; the
// conversion to a byte rounds half-even and clamps. See fits_division for the proof.
#ifndef CONV_KERNELS_CUDA_MMA_CUH
#define CONV_KERNELS_CUDA_MMA_CUH

#include <math.h>

#include "kernels/cuda/samples.cuh"

#define MMA_SEGMENT 16 // samples of a row that one row of the matrix A makes
#define BAND 8         // rows that a lane makes of each of its two segments
#define MAX_WIDTH 17
#define MAX_HEIGHT 9

// Sums start at the bits of 2^23: as a float, a sum N from 0 to 2^23 - 1 then reads 2^23 + N. What
// is below 0 reads as less than 2^23, and any such sum gives the sample 0.
#define SUM_START 0x4b000000
#define SUM_LIMIT 8388608
#define TIES_GRID 3072.0f // floats around it are the multiples of 2^-12

struct byte_taps {
    int32_t start;               // of a sum: SUM_START + bias
    float scale, offset;         // sample = (2^23 + N) * scale + offset, rounded half-even
    int8_t coef[MAX_HEIGHT][64]; // tap 0 of a row lies at 24 - radius: zeros around
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750

// One row of taps for one half of the samples: to = A * B + sum.
__device__ inline void multiply(int32_t (&to)[4], const uint32_t (&a)[4], uint2 b,
                                const int32_t *sum)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(sum[0]), "r"(sum[1]),
          "r"(sum[2]), "r"(sum[3]));
#else
    // Turing multiplies a quarter of that at a time; the registers hold the same parts.
    int32_t half[4];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
            : "=r"(half[2 * k]), "=r"(half[2 * k + 1])
            : "r"(a[k]), "r"(b.x), "r"(sum[2 * k]), "r"(sum[2 * k + 1]));
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
            : "=r"(to[2 * k]), "=r"(to[2 * k + 1])
            : "r"(a[k + 2]), "r"(b.y), "r"(half[2 * k]), "r"(half[2 * k + 1]));
    }
#endif
}

template <bool TIES>
__device__ inline uint32_t round_sums(int32_t s0, int32_t s1, int32_t s2, int32_t s3,
                                      const struct byte_taps &taps)
{
    int32_t sums[4] = {s0, s1, s2, s3};
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[k] = __fmaf_rn(__int_as_float(sums[k]), taps.scale, taps.offset);
        if (TIES)
            v[k] = __fadd_rn(v[k], -TIES_GRID);
    }
    return round_to_bytes(v[0], v[1], v[2], v[3]);
}

// The lane's part of B for each row of taps: bytes 4t ... 4t + 3 and 16 behind them meet the
// outputs 4(g/2) + g%2 and, in the second matrix, those + 2.
template <int TAPS> __device__ inline void load_taps(uint2 (&to)[TAPS][2], const int8_t (*coef)[64])
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int8_t *from = coef[j] + 24 + 4 * t - 8 - (g / 2 * 4 + g % 2 + 2 * half);
            uint32_t word[2];
            for (int w = 0; w < 2; w++) {
                word[w] = 0;
                for (int k = 0; k < 4; k++)
                    word[w] |= (uint32_t)(uint8_t)from[16 * w + k] << 8 * k;
            }
            to[j][half] = make_uint2(word[0], word[1]);
        }
    }
}

#endif

// --- host ----------------------------------------------------------------------------------------

static bool is_power_of_two(int64_t value)
{
    return (value & (value - 1)) == 0;
}

// Does N * scale, rounded to a float, give every tie between samples exactly?
static bool meets_ties(int64_t divisor, float scale)
{
    for (int k = 0; k < 256; k++) {
        double tie = (double)(divisor / 2 * (2 * k + 1)); // times 24 bits: exact
        if ((float)(tie * scale) != (float)k + 0.5f)
            return false;
    }
    return true;
}

// 1 / divisor, to the nearest float, or to one beside it that meets ties where that does not.
static float choose_scale(int64_t divisor, bool *ties)
{
    float nearest = 1.0f / (float)divisor;
    float candidates[3] = {nearest, nextafterf(nearest, 1), nextafterf(nearest, 0)};
    *ties = divisor % 2 == 0 && !is_power_of_two(divisor);
    for (int i = 0; *ties && i < 3; i++) {
        if (meets_ties(divisor, candidates[i])) {
            *ties = false;
            return candidates[i];
        }
    }
    return nearest;
}

// 2^23 * scale is a float, so that one FMA rounds N * scale, once. scale is off by at most 1.5 *
// 2^-23 of itself: up to 256, N * scale is off from q = N / d by less than 1.5 * 2^-15, and
// rounding it to a float adds 2^-17. What is beyond stays beyond, and is clamped. d a power of two:
// all of this is exact. d odd: there are no ties, and q is at least 1 / (2d) away from one: enough
// for d < 5462. d even: what is no tie is at least 1 / d away from one. Ties come out exact with a
// scale that was found to do that (choose_scale). For the other divisors, the FMA rounds to a grid
// of 2^-12, where ties come out exact as well, and what is no tie moves by less than 2^-14 + 2^-13
// < 1 / d.
static bool fits_division(int64_t divisor)
{
    return is_power_of_two(divisor) || divisor < 5462;
}

static bool fits_bytes(const struct conv_stencil *stencil)
{
    if (!stencil->exact || stencil->depth != 8 || stencil->width > MAX_WIDTH ||
        stencil->height > MAX_HEIGHT)
        return false;
    int64_t low = stencil->bias, high = stencil->bias;
    for (int i = 0; i < stencil->width * stencil->height; i++) {
        int32_t coef = stencil->icoef[i];
        if (coef < -128 || coef > 127)
            return false;
        *(coef < 0 ? &low : &high) += 255 * coef;
    }
    if (low <= -SUM_LIMIT || high >= SUM_LIMIT)
        return false;
    return fits_division(stencil->divisor);
}

// For a kernel of `rows` rows of taps. *ties: it must round by way of the grid.
static void pack_bytes(struct byte_taps *taps, bool *ties, const struct conv_stencil *stencil,
                       int rows)
{
    taps->start = SUM_START + (int32_t)stencil->bias;
    taps->scale = choose_scale(stencil->divisor, ties);
    // Exact: 2^23 * scale has 24 bits and is at least 1536 where there are ties.
    taps->offset = (*ties ? TIES_GRID : 0.0f) - 8388608.0f * taps->scale;
    int top = rows / 2 - stencil->height / 2;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            taps->coef[top + j][24 - stencil->width / 2 + i] =
                (int8_t)stencil->icoef[j * stencil->width + i];
}

#endif
