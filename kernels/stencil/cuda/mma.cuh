// SPDX-License-Identifier: MIT
// A row of taps as a product of matrices of bytes, for mma.cu and tma_mma.cu: exact filters of
// 8-bit images up to 17 x 9 whose coefficients fit in 8 bits.
//
// A row of A (16 x 32) is a window of 32 bytes of an image row, whose middle 16 are a segment of
// samples to compute. B (32 x 8) is a Toeplitz matrix: column n holds the taps, shifted down by the
// position of output n, so that A * B is the row of taps applied to 8 outputs of 16 segments. A
// second B computes the other 8.
//
// Which lane holds which element is fixed: PTX ISA, "Matrix Fragments for mma.m16n8k32". With
// g = lane / 4 and t = lane % 4, a lane has of A the bytes 4t ... 4t + 3 and 16 + 4t ... of rows g
// and g + 8, of B the same rows of column g, and of the result the columns 2t and 2t + 1 of rows g
// and g + 8. The order of B's columns is free: column n is output 4(n / 2) + n % 2, in the second B
// that
// + 2. The two results of a lane are then four neighbours: a word to store, without a shuffle.
#pragma once

#include "kernels/stencil/cuda/pack.cuh"

#define MMA_SEGMENT 16 // outputs of one row of A
#define MMA_ROWS 8     // rows of a band: what filter_bands computes of a segment
#define MAX_WIDTH 17
#define MAX_HEIGHT 9

struct byte_taps {
    struct u8_rounding rounding;
    int8_t coef[MAX_HEIGHT][64]; // tap 0 of a row is at 24 - radius, zeros around
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750

// to = A * B + sum.
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
    // Turing multiplies a quarter of that at a time; its registers hold the same elements.
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

// The lane's part of both B for each row of taps.
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

// Filters two bands of 8 rows, all lanes of a warp together. load(i, window) reads the lane's part
// of A: row i of both bands, the halo's rows included. store(band, row, samples) gets four
// neighbouring samples. The sums of TAP_ROWS rows are in registers, and each row of samples is
// added to all of them, to the one that it completes first.
template <int TAP_ROWS, bool TIES, typename Load, typename Store>
__device__ inline void filter_bands(const uint2 (&taps)[TAP_ROWS][2],
                                    const struct u8_rounding &rounding, Load load, Store store)
{
    const int32_t start[4] = {rounding.start, rounding.start, rounding.start, rounding.start};
    int32_t even[TAP_ROWS][4], odd[TAP_ROWS][4];
#pragma unroll
    for (int i = 0; i < MMA_ROWS + TAP_ROWS - 1; i++) {
        uint32_t window[4];
        load(i, window);
#pragma unroll
        for (int j = TAP_ROWS - 1; j >= 0; j--) {
            int row = i - j;
            if (row < 0 || row >= MMA_ROWS)
                continue;
            multiply(even[row % TAP_ROWS], window, taps[j][0], j ? even[row % TAP_ROWS] : start);
            multiply(odd[row % TAP_ROWS], window, taps[j][1], j ? odd[row % TAP_ROWS] : start);
        }
        int row = i - (TAP_ROWS - 1);
        if (row < 0)
            continue;
        const int32_t *e = even[row % TAP_ROWS], *o = odd[row % TAP_ROWS];
        store(0, row, round_sums<TIES>(e[0], e[1], o[0], o[1], rounding));
        store(1, row, round_sums<TIES>(e[2], e[3], o[2], o[3], rounding));
    }
}

#endif

// --- host ----------------------------------------------------------------------------------------

static inline bool fits_bytes(const struct conv_stencil *stencil)
{
    if (!stencil->exact || stencil->depth != 8 || stencil->width > MAX_WIDTH ||
        stencil->height > MAX_HEIGHT)
        return false;
    for (int i = 0; i < stencil->width * stencil->height; i++)
        if (stencil->icoef[i] < -128 || stencil->icoef[i] > 127)
            return false;
    return fits_u8_rounding(stencil);
}

// For a kernel of `rows` rows of taps. *ties: see pack_rounding.
static inline void pack_bytes(struct byte_taps *taps, bool *ties,
                              const struct conv_stencil *stencil, int rows)
{
    pack_rounding(&taps->rounding, ties, stencil);
    int top = rows / 2 - stencil->height / 2;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            taps->coef[top + j][24 - stencil->width / 2 + i] =
                (int8_t)stencil->icoef[j * stencil->width + i];
}
