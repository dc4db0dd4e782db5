// SPDX-License-Identifier: MIT
// Large Gaussians of float32 samples (struct conv_coarse): all numbers are float64 until the end,
// and are added in the defined order. Rows stream through as in decimated.c, which includes this
// file.
#ifndef CONV_KERNELS_STENCIL_CPU_DECIMATED_FLOATS_H
#define CONV_KERNELS_STENCIL_CPU_DECIMATED_FLOATS_H

#include "kernels/stencil/cpu/cpu_internal.h"

#define REACH CONV_COARSE_REACH
#define SAMPLES (2 * REACH) // coarse ones that a pixel counts in, and depends on

#ifdef CONV_ISA_AVX2
#include <immintrin.h>
#define LANES 4 // SAMPLES vectors are in registers
#else
#define LANES 2
#endif
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef float float_lanes __attribute__((vector_size(LANES * sizeof(float))));

struct float_rows {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    const double *near, *line;
    // Of the pixel i after coarse sample m in samples m - REACH + 1 to m + REACH. The last one of i
    // = 0 is too far away: nothing is multiplied by its 0, which may be infinite.
    double down[MOST_STEP][SAMPLES], up[MOST_STEP][SAMPLES];
    int step, radius, pitch;
    int filtered, coarse;  // samples of a line, from -REACH + 1 and -REACH + 1 - radius on
    double *sums[SAMPLES]; // over source rows, for coarse row m: [m mod SAMPLES]
    double *phases;        // one of them with its border, by place after a coarse sample
    double *ring;          // 2 * radius + 1 coarse rows
    double *column;        // sums over these
    double *fine;          // a filtered row
    double *wide[SAMPLES]; // the same at the source's width, for filtered row m
    float *constant;       // a row of border values
};

static int modulo(int m, int n)
{
    return (m % n + n) % n;
}

// Samples of a line of n pixels.
static int count_fine(const struct conv_decimated *d, int n)
{
    return (n - 1) / d->step + SAMPLES;
}

static void plan_floats(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    const struct conv_decimated *d = &stencil->decimated;
    size_t lines = (size_t)(2 * d->radius + 1 + 2 + d->step), step = (size_t)d->step;
    size_t extra = (size_t)(count_fine(d, 1) + 2 * d->radius + SAMPLES + BLOCK + 1);
    plan->cpu.scratch_per_column =
        2 * SAMPLES * sizeof(double) + sizeof(float) + (lines * sizeof(double) + step - 1) / step;
    plan->cpu.scratch_fixed = (lines * extra + SAMPLES * BLOCK) * sizeof(double);
}

// Each product rounded once; without an instruction for it that is a function of the C library.
INLINE double fused(double sum, double weight, double value)
{
    return __builtin_fma(weight, value, sum);
}

INLINE int count_samples(int i)
{
    return i ? SAMPLES : SAMPLES - 1;
}

INLINE lanes fused_lanes(lanes sum, double weight, lanes value)
{
#ifdef CONV_ISA_AVX2
    return (lanes)_mm256_fmadd_pd(_mm256_set1_pd(weight), (__m256d)value, (__m256d)sum);
#else
    for (int n = 0; n < LANES; n++)
        sum[n] = fused(sum[n], weight, value[n]);
    return sum;
#endif
}

// Sums of BLOCK columns, in registers.
#define VECTORS (BLOCK / LANES)

INLINE lanes load_lanes(const double *line, int v)
{
    lanes value;
    memcpy(&value, line + v * LANES, sizeof value);
    return value;
}

INLINE void add_line(lanes sum[VECTORS], double weight, const double *line)
{
#pragma GCC unroll 16
    for (int v = 0; v < VECTORS; v++)
        sum[v] = fused_lanes(sum[v], weight, load_lanes(line, v));
}

// --- from the source to coarse samples -----------------------------------------------------------

// Adds row i, at LANES columns, to `count` sums.
INLINE void add_row(lanes sum[SAMPLES], const struct float_rows *r, const float *row, int i,
                    int count)
{
    float_lanes value;
    memcpy(&value, row, sizeof value);
    lanes wide = __builtin_convertvector(value, lanes);
#pragma GCC unroll 12
    for (int k = 0; k < count; k++)
        sum[k] = fused_lanes(sum[k], r->down[i][k], wide);
}

// Adds rows to LANES columns of sums.
INLINE void add_columns(const struct float_rows *r, const float *const *rows, double *const *sums,
                        int x)
{
    lanes sum[SAMPLES];
#pragma GCC unroll 12
    for (int k = 0; k < SAMPLES; k++)
        memcpy(&sum[k], sums[k] + x, sizeof sum[k]);
    add_row(sum, r, rows[0] + x, 0, SAMPLES - 1);
    for (int i = 1; i < r->step; i++)
        add_row(sum, r, rows[i] + x, i, SAMPLES);
#pragma GCC unroll 12
    for (int k = 0; k < SAMPLES; k++)
        memcpy(sums[k] + x, &sum[k], sizeof sum[k]);
}

// Adds the rows after coarse row m to the sums of m - REACH + 1 to m + REACH.
static void add_float_rows(const struct float_rows *r, int m)
{
    const struct conv_stencil_plane *plane = r->plane;
    const float *rows[MOST_STEP];
    double *sums[SAMPLES];
    int width = plane->width, x = 0;
    for (int i = 0; i < r->step; i++) {
        int y = conv_border_index(r->stencil->border, m * r->step + i, plane->height);
        rows[i] =
            y < 0 ? r->constant : (const float *)(const void *)(plane->src + y * plane->src_stride);
    }
    for (int k = 0; k < SAMPLES; k++)
        sums[k] = r->sums[modulo(m - REACH + 1 + k, SAMPLES)];
    memset(sums[SAMPLES - 1], 0, (size_t)width * sizeof(double));
    for (; x + LANES <= width; x += LANES)
        add_columns(r, rows, sums, x);
    for (; x < width; x++)
        for (int i = 0; i < r->step; i++)
            for (int k = 0; k < count_samples(i); k++)
                sums[k][x] = fused(sums[k][x], r->down[i][k], (double)rows[i][x]);
}

static double *ring_row(const struct float_rows *r, int m)
{
    return r->ring + modulo(m, 2 * r->radius + 1) * r->pitch;
}

// Coarse row m from its sums, which the border extends to the left and right.
static void make_coarse_row(const struct float_rows *r, int m)
{
    const double *sums = r->sums[modulo(m, SAMPLES)];
    int step = r->step, width = r->plane->width, x = -step * (r->radius + SAMPLES - 1);
    double *to = ring_row(r, m);
    for (int q = 0; q < r->coarse + SAMPLES - 1; q++, x += step) {
        bool inside = x >= 0 && x + step <= width;
        for (int i = 0; i < step; i++) {
            int from = inside ? x + i : conv_border_index(r->stencil->border, x + i, width);
            r->phases[i * r->pitch + q] = from < 0 ? r->stencil->border_value : sums[from];
        }
    }
    for (int at = 0; at < r->coarse; at += BLOCK) {
        lanes sum[VECTORS] = {{0}};
        for (int k = 0; k < SAMPLES; k++)
            for (int i = k ? 0 : 1; i < step; i++)
                add_line(sum, r->near[abs((k - REACH) * step + i)],
                         r->phases + i * r->pitch + at + k);
        memcpy(to + at, sum, sizeof sum);
    }
}

// --- the coarse image ----------------------------------------------------------------------------

// A line times the weights: of lines before and after the centre, at some column.
INLINE void add_neighbours(const struct float_rows *r, double *to, const double *const *lines,
                           int at)
{
    lanes sum[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        sum[v] = load_lanes(lines[0] + at, v) * r->line[0];
    for (int i = 1; i <= r->radius; i++) {
        const double *before = lines[-i] + at, *after = lines[i] + at;
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++)
            sum[v] = fused_lanes(sum[v], r->line[i], load_lanes(before, v) + load_lanes(after, v));
    }
    memcpy(to + at, sum, sizeof sum);
}

// Filtered row m at the source's width.
static void make_wide_row(const struct float_rows *r, int m)
{
    int width = r->plane->width, whole = (width - 1) / r->step + 1;
    double *wide = r->wide[modulo(m, SAMPLES)];
    const double *above[2 * CONV_DECIMATED_MAX_RADIUS + 1],
        *beside[2 * CONV_DECIMATED_MAX_RADIUS + 1];
    for (int i = 0; i <= 2 * r->radius; i++) {
        above[i] = ring_row(r, m - r->radius + i);
        beside[i] = r->column + i;
    }
    for (int at = 0; at < r->coarse; at += BLOCK)
        add_neighbours(r, r->column, above + r->radius, at);
    for (int at = 0; at < r->filtered; at += BLOCK)
        add_neighbours(r, r->fine, beside + r->radius, at);
    for (int i = 0; i < r->step; i++) {
        double *phase = r->phases + i * r->pitch;
        for (int at = 0; at < whole; at += BLOCK) {
            lanes sum[VECTORS] = {{0}};
            for (int k = 0; k < count_samples(i); k++)
                add_line(sum, r->up[i][k], r->fine + at + k);
            memcpy(phase + at, sum, sizeof sum);
        }
    }
    for (int q = 0, x = 0; q < whole; q++)
        for (int i = 0; i < r->step && x < width; i++, x++)
            wide[x] = r->phases[i * r->pitch + q];
}

// --- results -------------------------------------------------------------------------------------

// BLOCK columns of row y, of which `count` are stored.
INLINE void write_floats(const struct float_rows *r, int y, int x, int count, bool sharpens)
{
    int m = y / r->step, i = y % r->step;
    const float *src = (const float *)(const void *)(r->plane->src + y * r->plane->src_stride) + x;
    float *dst = (float *)(void *)(r->plane->dst + y * r->plane->dst_stride) + x;
    double amount = r->stencil->coarse.amount, keep = (double)r->stencil->fkeep_below;
    lanes sum[VECTORS] = {{0}};
    double blurred[BLOCK];
    for (int k = 0; k < count_samples(i); k++)
        add_line(sum, r->up[i][k], r->wide[modulo(m - REACH + 1 + k, SAMPLES)] + x);
    memcpy(blurred, sum, sizeof blurred);
    for (int n = 0; n < count && !sharpens; n++)
        dst[n] = (float)blurred[n];
    for (int n = 0; n < count && sharpens; n++) {
        double sample = (double)src[n], change = amount * (sample - blurred[n]);
        dst[n] = (float)(fabs(change) < keep ? sample : sample + change);
    }
}

static void write_float_row(const struct float_rows *r, int y)
{
    int x = 0, width = r->plane->width;
    bool sharpens = r->stencil->coarse.amount != 0;
    for (; x + BLOCK <= width; x += BLOCK)
        write_floats(r, y, x, BLOCK, sharpens);
    if (x < width)
        write_floats(r, y, x, width - x, sharpens);
}

// Rows [from, to), which are rows of the coarse samples first to last.
static void filter_float_plane(const struct float_rows *r, int from, int to)
{
    int first = from / r->step, last = (to - 1) / r->step;
    int coarse = first - REACH + 1 - r->radius;
    for (int m = coarse - REACH; m <= last + SAMPLES - 1 + r->radius; m++) {
        add_float_rows(r, m);
        if (m - REACH + 1 < coarse)
            continue; // begun by rows that were not added
        make_coarse_row(r, m - REACH + 1);
        int filtered = m - REACH + 1 - r->radius, done = filtered - REACH;
        if (filtered < first - REACH + 1)
            continue;
        make_wide_row(r, filtered);
        for (int y = done * r->step; y < (done + 1) * r->step && done >= first; y++)
            if (y >= from && y < to)
                write_float_row(r, y);
    }
}

static enum conv_status run_floats(const struct conv_stencil_plan *plan,
                                   const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    const struct conv_decimated *d = &stencil->decimated;
    struct float_rows r = {.stencil = stencil, .step = d->step, .radius = d->radius};
    r.near = stencil->coarse.near;
    r.line = stencil->coarse.line;
    for (int i = 0; i < r.step; i++)
        for (int k = 0; k < count_samples(i); k++) {
            r.down[i][k] = r.near[abs(i - (k - REACH + 1) * r.step)];
            r.up[i][k] = r.down[i][k] * stencil->coarse.scale[i];
        }
    for (int p = 0; p < batch->count; p++) {
        double *scratch = batch->cpu.scratch;
        r.plane = &batch->planes[p];
        size_t width = (size_t)r.plane->width;
        r.filtered = count_fine(d, r.plane->width);
        r.coarse = r.filtered + 2 * d->radius;
        r.pitch = r.coarse + SAMPLES + BLOCK;
        size_t pitch = (size_t)r.pitch;
        for (int k = 0; k < SAMPLES; k++) {
            r.sums[k] = memset(take(&scratch, width), 0, width * sizeof(double));
            r.wide[k] = take(&scratch, width + BLOCK);
        }
        r.phases = take(&scratch, pitch * (size_t)d->step);
        r.ring = take(&scratch, pitch * (size_t)(2 * d->radius + 1));
        r.column = take(&scratch, pitch);
        r.fine = take(&scratch, pitch);
        r.constant = (float *)scratch;
        for (size_t x = 0; x < width; x++)
            r.constant[x] = stencil->border_value;
        filter_float_plane(&r, batch->cpu.from, conv_cpu_end(batch, r.plane));
    }
    return CONV_OK;
}

#endif
