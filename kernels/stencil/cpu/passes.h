// SPDX-License-Identifier: MIT
// Exact stencils that are a column times a row, in two passes: each line of samples becomes a line
// of sums along the row (dots.h) once, and output rows are sums down the columns of these. All sums
// are modulo 2^16 or 2^32, so the result is right even if intermediate sums wrap. A line of sums is
// stored as it is computed: for each vector of samples, one vector per phase. Speed over one pass
// (AVX2, planes in cache): 1.4 times at 5x5 with 8 bits, 1.5 at 3x3 and 1.6 at 5x5 with 16 bits, 2
// times at 7x7. At 3x3 with 8 bits one pass (direct.h) is faster.
#ifndef CONV_KERNELS_STENCIL_CPU_PASSES_H
#define CONV_KERNELS_STENCIL_CPU_PASSES_H

#include "kernels/stencil/cpu/dots.h"

// The first pass: sums for `bytes` of samples, rounded up to blocks, to `line`.
ALWAYS_INLINE void sum_dot_line(uint8_t *line, const struct conv_cpu_dot_job *job, size_t bytes,
                                enum conv_cpu_sums sums)
{
    for (size_t x = 0; x < bytes; x += DOT_BLOCK(sums)) {
        dot_sums sum;
        start_block(sum, job->plan.lift, sums);
        add_taps(sum, job->taps, x, 0, job->upper_end, 0, 0, sums);
        for (int v = 0; v < DOT_VECTORS(sums); v++)
            for (int phase = 0; phase < DOT_PHASES(sums); phase++, line += VECTOR)
                memcpy(line, &sum[0][phase][v], VECTOR);
    }
}

ALWAYS_INLINE vec_u32 add_column(vec_u32 sum, vec_u8 a, uint32_t coef, bool plain, bool narrow)
{
    vec_u32 c = (vec_u32){0} + coef;
    if (narrow)
        return (vec_u32)((vec_u16)sum + (plain ? (vec_u16)a : (vec_u16)a * (vec_u16)c));
    return sum + (plain ? (vec_u32)a : (vec_u32)a * c);
}

// Adds line `k` of sums to output rows `first` to `last`.
ALWAYS_INLINE void add_line(dot_sums sum, const struct conv_cpu_dot_job *job, size_t at, int k,
                            int first, int last, bool plain, bool narrow, enum conv_cpu_sums sums)
{
    const struct conv_cpu_column_tap *tap = &job->columns[k];
    for (int v = 0; v < DOT_VECTORS(sums); v++)
        for (int phase = 0; phase < DOT_PHASES(sums); phase++)
            for (int r = first; r <= last; r++)
                sum[r][phase][v] =
                    add_column(sum[r][phase][v],
                               load_u8(tap->at + at + (v * DOT_PHASES(sums) + phase) * VECTOR),
                               tap->coefs[r], plain, narrow);
}

// Adds the multiple of the samples at the block's position. keeps: a sum that is near its sample
// times the divisor is replaced by that product (the threshold in stencil.h).
ALWAYS_INLINE void add_samples(dot_sums sum, const struct conv_cpu_dot_job *job,
                               const uint8_t *const samples[2], bool keeps)
{
    vec_u32 coef = (vec_u32){0} + (uint32_t)job->plan.sample;
    vec_u32 divisor = (vec_u32){0} + (uint32_t)job->rounding.divisor;
    vec_i32 below = (vec_i32){0} + job->keep_below;
    for (int r = 0; r < 2; r++)
        for (int v = 0; v < DOT_VECTORS(CONV_CPU_QUADS); v++) {
            vec_u32 four = (vec_u32)load_u8(samples[r] + v * VECTOR);
            for (int phase = 0; phase < DOT_PHASES(CONV_CPU_QUADS); phase++) {
                vec_u32 sample = four >> 8 * phase & 0xff;
                vec_u32 all = sum[r][phase][v] + sample * coef;
                if (keeps) {
                    vec_u32 kept = sample * divisor + job->rounding.start;
                    vec_i32 more = (vec_i32)(all - kept);
                    vec_u32 near = (vec_u32)((more < below) & (more > -below));
                    all = (kept & near) | (all & ~near);
                }
                sum[r][phase][v] = all;
            }
        }
}

// The second pass: DOT_BLOCK bytes at byte x of two output rows. `samples`: the image's samples at
// the same position; read only if plan.sample is not 0, which `sample` repeats.
ALWAYS_INLINE void filter_pass_block(uint8_t *const out[2], const struct conv_cpu_dot_job *job,
                                     const uint8_t *const samples[2], size_t x, bool plain,
                                     bool narrow, bool sample, bool keeps, enum conv_cpu_sums sums)
{
    size_t at = x * DOT_PHASES(sums);
    int height = job->stencil->height;
    dot_sums sum;
    start_block(sum, job->rounding.start, sums);
    add_line(sum, job, at, 0, 0, 0, plain, narrow, sums);
    for (int k = 1; k < height; k++)
        add_line(sum, job, at, k, 0, 1, plain, narrow, sums);
    add_line(sum, job, at, height, 1, 1, plain, narrow, sums);
    if (sample)
        add_samples(sum, job, samples, keeps);
    finish_block(out, sum, job, narrow, sums);
}

#endif
