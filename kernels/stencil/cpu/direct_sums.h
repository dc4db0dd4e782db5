// SPDX-License-Identifier: MIT
// The sums of direct.h: a vector of each of two output rows. A 3x3 stencil takes the method with
// the fewest multiplications and coefficients. In general these are 24 and 12; the coefficients of
// AVX2 do not fit its registers, and 32 bytes of two rows take 18.6 cycles (Zen 5). With the
// relations that usual filters have, 16 multiplications by 4 coefficients take 13.7 (emboss)
// and 15.7 (blur).
#ifndef CONV_KERNELS_STENCIL_CPU_DIRECT_SUMS_H
#define CONV_KERNELS_STENCIL_CPU_DIRECT_SUMS_H

#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/cpu/round.h"
#include "kernels/stencil/cpu/vector.h"

#define DIRECT_MOST_SIDE 5
#define DIRECT_LINES (DIRECT_MOST_SIDE + 1) // source rows that two output rows need

enum direct_method {
    DIRECT_3X3,
    DIRECT_5X5,
    // 3x3 stencils whose divisions are signed (enum conv_cpu_division):
    // Top left to bottom right: the right tap of the top row and the left one of the bottom row are
    // 0, as in emboss and sharpen. Four pairs cover the rest.
    DIRECT_FALLING,
    DIRECT_RISING, // bottom left to top right
    DIRECT_EQUAL,  // three equal rows, as in blur: the sums along a row serve three output rows
    DIRECT_SMOOTH, // rows times 1, 2 and 1, as in gaussian: likewise
};

// By row of taps, by load, for the first and the second output sample of a lane. Four pairs: by
// row, by pair of the row, [0] for both.
typedef vec_u32 direct_coefs[DIRECT_MOST_SIDE][(DIRECT_MOST_SIDE + 1) / 2][2];

// The constants of a sum.
struct direct_sums {
    direct_coefs coefs;
    struct conv_cpu_rounding rounding;
};

typedef vec_u16 direct_vectors[2][2]; // by output row, by sample of a lane

// Any stencil: a lane's two samples have their own coefficients, so that they share the loads.
ALWAYS_INLINE void sum_rows(direct_vectors sum, const struct direct_sums *sums,
                            const uint8_t *const *lines, size_t x, int side)
{
    for (int r = 0; r < 2; r++)
        sum[r][0] = sum[r][1] = (vec_u16)((vec_u32){0} + sums->rounding.start);
#pragma GCC unroll 6
    for (int k = 0; k <= side; k++) {
#pragma GCC unroll 3
        for (int i = 0; i <= side / 2; i++) {
            vec_u8 samples = load_u8(lines[k] + x + 2 * i);
#pragma GCC unroll 2
            for (int r = 0; r < 2; r++) {
                if (k < r || k - r >= side)
                    continue;
#pragma GCC unroll 2
                for (int phase = 0; phase < 2; phase++) {
                    sum[r][phase] = dot_pairs(sum[r][phase], samples, sums->coefs[k - r][i][phase]);
                    SETTLE(sum[r][phase]);
                }
            }
        }
    }
}

// The top row's pair of taps begins at column `top`, the bottom row's at 1 - top. A lane's second
// sample is computed from loads that begin one sample later, so it has the same coefficients. The
// rows' loads must be shared: with a list of four addresses, 16 instead of 10 loads, of which 12
// instead of 6 are unaligned, emboss took 1.7 times as long.
ALWAYS_INLINE void sum_four(direct_vectors sum, const struct direct_sums *sums,
                            const uint8_t *const *lines, size_t x, int top)
{
    for (int r = 0; r < 2; r++)
        sum[r][0] = sum[r][1] = (vec_u16)((vec_u32){0} + sums->rounding.start);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++) {
            vec_u8 samples = load_u8(lines[k] + x + i);
            SETTLE(samples);
#pragma GCC unroll 2
            for (int r = 0; r < 2; r++) {
                int row = k - r;
                if (row < 0 || row > 2)
                    continue;
                for (int phase = 0; phase < 2; phase++) {
                    int column = i - phase;
                    bool pair = row == 0   ? column == top
                                : row == 1 ? column == 0 || column == 1
                                           : column == 1 - top;
                    if (!pair)
                        continue;
                    sum[r][phase] = dot_pairs(sum[r][phase], samples,
                                              sums->coefs[row][row == 1 ? column : 0][0]);
                    SETTLE(sum[r][phase]);
                }
            }
        }
    }
}

// Rows of samples are multiplied by the first row of taps, once for both output rows.
ALWAYS_INLINE void sum_columns(direct_vectors sum, const struct direct_sums *sums,
                               const uint8_t *const *lines, size_t x, bool smooth)
{
    vec_u16 along[4][2];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vec_u8 first = load_u8(lines[k] + x), second = load_u8(lines[k] + x + 2);
        SETTLE(first);
        SETTLE(second);
#pragma GCC unroll 2
        for (int phase = 0; phase < 2; phase++) {
            along[k][phase] = dot_pairs((vec_u16){0}, first, sums->coefs[0][0][phase]);
            along[k][phase] = dot_pairs(along[k][phase], second, sums->coefs[0][1][phase]);
            SETTLE(along[k][phase]);
        }
    }
#pragma GCC unroll 2
    for (int phase = 0; phase < 2; phase++) {
        vec_u16 shared = along[1][phase] + along[2][phase];
        shared += (vec_u16)((vec_u32){0} + sums->rounding.start);
        SETTLE(shared);
        for (int r = 0; r < 2; r++) {
            vec_u16 other = along[3 * r][phase];
            if (smooth)
                other += along[1 + r][phase];
            sum[r][phase] = shared + other;
        }
    }
}

// A vector of two output rows. x: from column 0 of the source to the first sample of the first tap.
ALWAYS_INLINE void sum_direct(vec_u8 out[2], const struct direct_sums *sums,
                              const uint8_t *const *lines, size_t x, enum direct_method method,
                              enum conv_cpu_division division)
{
    direct_vectors sum;
    if (method == DIRECT_FALLING || method == DIRECT_RISING)
        sum_four(sum, sums, lines, x, method == DIRECT_RISING);
    else if (method == DIRECT_EQUAL || method == DIRECT_SMOOTH)
        sum_columns(sum, sums, lines, x, method == DIRECT_SMOOTH);
    else
        sum_rows(sum, sums, lines, x, method == DIRECT_5X5 ? 5 : 3);
    for (int r = 0; r < 2; r++)
        out[r] = join_u16(round_u16(sum[r][0], &sums->rounding, division),
                          round_u16(sum[r][1], &sums->rounding, division));
}

#endif
