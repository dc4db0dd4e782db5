// SPDX-License-Identifier: MIT
// 8-bit stencils with 16-bit sums (proof in plan.c). Two neighbouring source rows are interleaved
// once into a row of byte pairs; a load then brings two taps of one output row and, with other
// coefficients, two taps of the next, so two output rows are made together. No branch but loops:
// the border lies in the lines, and blocks run over the end of a row into a buffer.
#ifndef CONV_KERNELS_CPU_PAIRS_H
#define CONV_KERNELS_CPU_PAIRS_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

#define PAIR_LANES (VECTOR / (int)sizeof(uint16_t))
#define PAIR_VECTORS 4 // two rows of sums, coefficients and a load in 16 registers
#define PAIR_BLOCK (PAIR_VECTORS * PAIR_LANES)
_Static_assert(PAIR_BLOCK <= CONV_CPU_BLOCK, "blocks fit behind a strip");

enum pair_division { DIVIDE_BY_1, DIVIDE_BY_ODD, DIVIDE_BY_EVEN };

// A pair of taps where it lies for the rows in work.
struct pair_tap {
    const uint16_t *at;
    uint16_t upper, lower;
};

struct pair_job {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    struct conv_cpu_rounding rounding;
    enum pair_division division;
    int pair_count;
    struct conv_cpu_pair pairs[CONV_CPU_MAX_PAIRS];
    struct pair_tap taps[CONV_CPU_MAX_PAIRS];
    uint16_t *ring;    // (height + 1) / 2 rows of CONV_CPU_LINE pairs
    uint8_t *lines[2]; // CONV_CPU_LINE samples each
};

// Proof in plan.c.
ALWAYS_INLINE vec_u16 round_pairs(vec_u16 sum, const struct conv_cpu_rounding *r,
                                  enum pair_division division)
{
    const vec_u16 zero = {0};
    vec_u16 up = min_u16(max_u16(sum, zero + r->floor) - r->base, zero + r->limit);
    if (division == DIVIDE_BY_1)
        return up;
    vec_u16 quotient = divide_u16(up, r->factor, r->shift);
    if (division == DIVIDE_BY_EVEN) {
        vec_u16 tie = (vec_u16)(quotient * r->divisor == up);
        quotient -= quotient & tie & 1;
    }
    return quotient;
}

// PAIR_BLOCK samples at x of two output rows.
ALWAYS_INLINE void filter_pair_block(uint8_t *restrict out_upper, uint8_t *restrict out_lower,
                                     const struct pair_job *job, int x, enum pair_division division)
{
    const struct conv_cpu_rounding rounding = job->rounding;
    vec_u16 upper[PAIR_VECTORS], lower[PAIR_VECTORS];
    for (int v = 0; v < PAIR_VECTORS; v++)
        upper[v] = lower[v] = (vec_u16){0} + rounding.start;
    for (int k = 0; k < job->pair_count; k++) {
        const struct pair_tap *tap = &job->taps[k];
        for (int v = 0; v < PAIR_VECTORS; v++) {
            vec_u16 pair = load_u16(tap->at + x + v * PAIR_LANES);
            upper[v] = add_pair(upper[v], pair, tap->upper);
            lower[v] = add_pair(lower[v], pair, tap->lower);
        }
    }
    for (int v = 0; v < PAIR_VECTORS; v++) {
        store_u8(out_upper + v * PAIR_LANES, round_pairs(upper[v], &rounding, division));
        store_u8(out_lower + v * PAIR_LANES, round_pairs(lower[v], &rounding, division));
    }
}

// `count` samples of an output row and, unless it is NULL, of the one below.
ALWAYS_INLINE void filter_pair_rows(const struct pair_job *job, uint8_t *upper, uint8_t *lower,
                                    int count, enum pair_division division)
{
    int x = 0;
    for (; lower && x + PAIR_BLOCK <= count; x += PAIR_BLOCK)
        filter_pair_block(upper + x, lower + x, job, x, division);
    for (; x < count; x += PAIR_BLOCK) {
        uint8_t block[2][PAIR_BLOCK];
        size_t valid = (size_t)(count - x < PAIR_BLOCK ? count - x : PAIR_BLOCK);
        filter_pair_block(block[0], block[1], job, x, division);
        memcpy(upper + x, block[0], valid);
        if (lower)
            memcpy(lower + x, block[1], valid);
    }
}

// Source rows y and y + 1, interleaved.
static void fill_pair_row(const struct pair_job *job, uint16_t *restrict row, int x, int y,
                          int count)
{
    int line = count + job->stencil->width - 1;
    int x0 = x - job->stencil->width / 2;
    conv_cpu_line(job->lines[0], job->stencil, job->plane, x0, y, line);
    conv_cpu_line(job->lines[1], job->stencil, job->plane, x0, y + 1, line);
    const uint8_t *restrict above = job->lines[0], *restrict below = job->lines[1];
    for (int i = 0; i < line; i++)
        row[i] = (uint16_t)(above[i] | below[i] << 8);
}

static void filter_pair_strip(struct pair_job *job, int x, int count)
{
    const struct conv_stencil_plane *plane = job->plane;
    int ring_rows = (job->stencil->height + 1) / 2;
    int filled = 0; // ring rows so far: row k holds source rows 2k - height / 2 and the one below
    for (int y = 0; y < plane->height; y += 2) {
        for (; filled < y / 2 + ring_rows; filled++)
            fill_pair_row(job, job->ring + filled % ring_rows * CONV_CPU_LINE, x,
                          2 * filled - job->stencil->height / 2, count);
        for (int k = 0; k < job->pair_count; k++) {
            const struct conv_cpu_pair *pair = &job->pairs[k];
            int slot = (y + pair->row) / 2 % ring_rows;
            job->taps[k] = (struct pair_tap){job->ring + slot * CONV_CPU_LINE + pair->column,
                                             pair->upper, pair->lower};
        }
        uint8_t *upper = plane->dst + y * plane->dst_stride + x;
        uint8_t *lower = y + 1 < plane->height ? upper + plane->dst_stride : NULL;
        if (job->division == DIVIDE_BY_1)
            filter_pair_rows(job, upper, lower, count, DIVIDE_BY_1);
        else if (job->division == DIVIDE_BY_ODD)
            filter_pair_rows(job, upper, lower, count, DIVIDE_BY_ODD);
        else
            filter_pair_rows(job, upper, lower, count, DIVIDE_BY_EVEN);
    }
}

static void filter_pairs(const struct conv_stencil *stencil, const struct conv_stencil_batch *batch)
{
    struct pair_job job;
    job.stencil = stencil;
    conv_cpu_rounding_init(&job.rounding, stencil);
    job.division = stencil->divisor == 1       ? DIVIDE_BY_1
                   : stencil->divisor % 2 != 0 ? DIVIDE_BY_ODD
                                               : DIVIDE_BY_EVEN;
    job.pair_count = conv_cpu_pairs_init(job.pairs, stencil);
    size_t ring_rows = ((size_t)stencil->height + 1) / 2;
    job.ring = batch->scratch;
    job.lines[0] = (uint8_t *)(job.ring + ring_rows * CONV_CPU_LINE);
    job.lines[1] = job.lines[0] + CONV_CPU_LINE;
    for (int p = 0; p < batch->count; p++) {
        job.plane = &batch->planes[p];
        for (int x = 0; x < job.plane->width; x += CONV_CPU_STRIP) {
            int left = job.plane->width - x;
            filter_pair_strip(&job, x, left < CONV_CPU_STRIP ? left : CONV_CPU_STRIP);
        }
    }
}

#endif
