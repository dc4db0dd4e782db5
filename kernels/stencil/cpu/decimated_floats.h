// SPDX-License-Identifier: MIT
// Large Gaussians of float32 samples (struct conv_coarse): all numbers are float64 until the end,
// and are added in the defined order. Rows stream through as in decimated.c, which includes this
// file, in strips of columns that the second-level cache holds. Pixels of several channels stay as
// they are: their samples are neighbours in every line.
#pragma once

#include "kernels/stencil/cpu/cpu_internal.h"

#define REACH CONV_COARSE_REACH
#define SAMPLES (2 * REACH) // coarse ones that a pixel counts in, and depends on
#define AHEAD 4             // coarse rows whose source rows are added at a time
#define STRIP 3072          // samples of a row, if that is at least LEAST_HALOS times as many as
#define LEAST_HALOS 4       // those around it that its results depend on
#define MOST_CHANNELS 4
#define PREFETCH 128 // samples
#define ALIGN 8      // of lines, in samples

// FUSED: each product rounded once; without an instruction for it that is a function of the C
// library.
#if defined CONV_ISA_AVX512
#include <immintrin.h>
typedef __m512d lanes;
#define FUSED(sum, weight, value) _mm512_fmadd_pd(_mm512_set1_pd(weight), value, sum)
#define LOAD_FLOATS(from) _mm512_cvtps_pd(_mm256_loadu_ps(from))
#define STORE_FLOATS(to, value) _mm256_storeu_ps(to, _mm512_cvtpd_ps(value))
#elif defined CONV_ISA_AVX2
#include <immintrin.h>
typedef __m256d lanes;
#define FUSED(sum, weight, value) _mm256_fmadd_pd(_mm256_set1_pd(weight), value, sum)
#define LOAD_FLOATS(from) _mm256_cvtps_pd(_mm_loadu_ps(from))
#define STORE_FLOATS(to, value) _mm_storeu_ps(to, _mm256_cvtpd_ps(value))
#else
typedef double lanes __attribute__((vector_size(2 * sizeof(double))));
#define FUSE(sum, weight, value, n) __builtin_fma(weight, (value)[n], (sum)[n])
#define FUSED(sum, weight, value)                                                                  \
    ((lanes){FUSE(sum, weight, value, 0), FUSE(sum, weight, value, 1)})
#define LOAD_FLOATS(from) ((lanes){(from)[0], (from)[1]})
#define STORE_FLOATS(to, value) ((to)[0] = (float)(value)[0], (to)[1] = (float)(value)[1])
#endif
#define LANES (int)(sizeof(lanes) / sizeof(double))

struct float_rows {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    const double *near, *line;
    // Of the pixel i after coarse sample m in samples m - REACH + 1 to m + REACH. The last one of i
    // = 0 is too far away: nothing is multiplied by its 0, which may be infinite.
    double down[MOST_STEP][SAMPLES], up[MOST_STEP][SAMPLES];
    int step, radius, channels;
    int width;       // pixels of the plane
    int first, last; // of the strip
    int from, to;    // pixels that these depend on
    int pitch;       // samples of a line of coarse ones
    // Coarse samples times channels, from -REACH + 1 and -REACH + 1 - radius before the strip on.
    int filtered, coarse;
    // Sums over source rows, of columns `from` to `to`: complete ones, and those of the SAMPLES - 1
    // rows after them.
    double *sums[AHEAD + SAMPLES - 1];
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

// Coarse samples of `n` pixels.
static int count_fine(int n, int step)
{
    return (n - 1) / step + SAMPLES;
}

static void plan_floats(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    const struct conv_decimated *d = &stencil->decimated;
    size_t lines = (size_t)(2 * d->radius + 1 + 2 + d->step), step = (size_t)d->step;
    size_t extra = (size_t)((count_fine(1, d->step) + 2 * d->radius + SAMPLES) * MOST_CHANNELS +
                            BLOCK + ALIGN);
    plan->cpu.scratch_per_column = (AHEAD + 2 * SAMPLES - 1) * sizeof(double) + sizeof(float) +
                                   (lines * sizeof(double) + step - 1) / step;
    plan->cpu.scratch_fixed = (lines * extra + (AHEAD + 2 * SAMPLES) * BLOCK) * sizeof(double);
}

INLINE int count_samples(int i)
{
    return i ? SAMPLES : SAMPLES - 1;
}

INLINE lanes load_lanes(const double *line)
{
    lanes value;
    memcpy(&value, line, sizeof value);
    return value;
}

// Sums of BLOCK columns, in registers.
#define VECTORS (BLOCK / LANES)

INLINE void add_line(lanes sum[VECTORS], double weight, const double *line)
{
#pragma GCC unroll 16
    for (int v = 0; v < VECTORS; v++)
        sum[v] = FUSED(sum[v], weight, load_lanes(line + v * LANES));
}

// --- from the source to coarse samples -----------------------------------------------------------

// Adds row i, at LANES columns, to `count` sums.
INLINE void add_row(lanes sum[SAMPLES], const struct float_rows *r, const float *row, int i,
                    int count)
{
    lanes value = LOAD_FLOATS(row);
    __builtin_prefetch(row + PREFETCH);
#pragma GCC unroll 12
    for (int k = 0; k < count; k++)
        sum[k] = FUSED(sum[k], r->down[i][k], value);
}

// Adds rows, from `at` on, to LANES columns of sums.
INLINE void add_columns(const struct float_rows *r, const float *const *rows, int at, int x)
{
    lanes sum[AHEAD + SAMPLES - 1];
#pragma GCC unroll 12
    for (int k = 0; k < SAMPLES - 1; k++)
        sum[k] = load_lanes(r->sums[AHEAD + k] + x);
#pragma GCC unroll 4
    for (int m = 0; m < AHEAD; m++, rows += r->step) {
        sum[SAMPLES - 1 + m] = (lanes){0};
        add_row(sum + m, r, rows[0] + at, 0, SAMPLES - 1);
        for (int i = 1; i < r->step; i++)
            add_row(sum + m, r, rows[i] + at, i, SAMPLES);
    }
#pragma GCC unroll 16
    for (int k = 0; k < AHEAD + SAMPLES - 1; k++)
        memcpy(r->sums[k] + x, &sum[k], sizeof sum[k]);
}

// Adds the rows after coarse rows m to m + AHEAD - 1; the first sums are then complete.
static void add_float_rows(const struct float_rows *r, int m)
{
    const struct conv_stencil_plane *plane = r->plane;
    const float *rows[AHEAD * MOST_STEP];
    float end[AHEAD * MOST_STEP][LANES] = {0};
    int count = (r->to - r->from) * r->channels, x = 0;
    for (int i = 0; i < AHEAD * r->step; i++) {
        int y = conv_border_index(r->stencil->border, m * r->step + i, plane->height);
        rows[i] = r->constant;
        if (y >= 0)
            rows[i] = (const float *)(const void *)(plane->src + y * plane->src_stride) +
                      r->from * r->channels;
    }
    for (; x + LANES <= count; x += LANES)
        add_columns(r, rows, x, x);
    if (x == count)
        return;
    for (int i = 0; i < AHEAD * r->step; i++) {
        memcpy(end[i], rows[i] + x, (size_t)(count - x) * sizeof(float));
        rows[i] = end[i];
    }
    add_columns(r, rows, 0, x);
}

static double *ring_row(const struct float_rows *r, int m)
{
    return r->ring + modulo(m, 2 * r->radius + 1) * r->pitch;
}

// Copies `count` pixels, a number of pixels apart.
INLINE void copy_pixels(double *to, int to_step, const double *from, int from_step, int count,
                        int channels)
{
    for (int q = 0; q < count; q++)
        for (int c = 0; c < channels; c++)
            to[q * to_step * channels + c] = from[q * from_step * channels + c];
}

// Compiled for the usual numbers.
static void move_pixels(double *to, int to_step, const double *from, int from_step, int count,
                        int channels)
{
    if (channels == 1 && from_step == 2)
        copy_pixels(to, 1, from, 2, count, 1);
    else if (channels == 1 && to_step == 2)
        copy_pixels(to, 2, from, 1, count, 1);
    else if (channels == 1)
        copy_pixels(to, to_step, from, from_step, count, 1);
    else if (channels == 3)
        copy_pixels(to, to_step, from, from_step, count, 3);
    else
        copy_pixels(to, to_step, from, from_step, count, channels);
}

// Sums of a row by their place after a coarse sample, from q coarse samples on; those outside the
// plane by its border.
static void place_sums(const struct float_rows *r, const double *sums, int q, int count)
{
    int x = r->first + (q - r->radius - SAMPLES + 1) * r->step;
    for (int i = 0; i < r->step; i++) {
        double *to = r->phases + i * r->pitch + q * r->channels;
        if (x + i >= 0 && x + i + (count - 1) * r->step < r->width) {
            move_pixels(to, 1, sums + (x + i - r->from) * r->channels, r->step, count, r->channels);
            continue;
        }
        for (int n = 0; n < count; n++) {
            int at = conv_border_index(r->stencil->border, x + i + n * r->step, r->width);
            for (int c = 0; c < r->channels; c++)
                to[n * r->channels + c] =
                    at < 0 ? r->stencil->border_value : sums[(at - r->from) * r->channels + c];
        }
    }
}

static void make_coarse_row(const struct float_rows *r, int m, const double *sums)
{
    double *to = ring_row(r, m);
    int count = r->coarse / r->channels + SAMPLES - 1, around = r->radius + SAMPLES;
    int inside = count - 2 * around - 1; // about
    place_sums(r, sums, 0, inside > 0 ? around : count);
    if (inside > 0) {
        place_sums(r, sums, around, inside);
        place_sums(r, sums, around + inside, count - around - inside);
    }
    for (int at = 0; at < r->coarse; at += BLOCK) {
        lanes sum[VECTORS] = {{0}};
        for (int k = 0; k < SAMPLES; k++)
            for (int i = k ? 0 : 1; i < r->step; i++)
                add_line(sum, r->near[abs((k - REACH) * r->step + i)],
                         r->phases + i * r->pitch + at + k * r->channels);
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
        sum[v] = load_lanes(lines[0] + at + v * LANES) * r->line[0];
    for (int i = 1; i <= r->radius; i++) {
        const double *before = lines[-i] + at, *after = lines[i] + at;
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) {
            lanes both = load_lanes(before + v * LANES) + load_lanes(after + v * LANES);
            sum[v] = FUSED(sum[v], r->line[i], both);
        }
    }
    memcpy(to + at, sum, sizeof sum);
}

// The pixel that is i after a coarse sample, from the filtered samples around it.
INLINE lanes enlarge(const struct float_rows *r, const lanes value[SAMPLES], int i)
{
    lanes sum = {0};
#pragma GCC unroll 12
    for (int k = 0; k < SAMPLES - 1; k++)
        sum = FUSED(sum, r->up[i][k], value[k]);
    return i ? FUSED(sum, r->up[i][SAMPLES - 1], value[SAMPLES - 1]) : sum;
}

INLINE void load_samples(lanes value[SAMPLES], const double *const *lines, int at)
{
#pragma GCC unroll 12
    for (int k = 0; k < SAMPLES; k++)
        value[k] = load_lanes(lines[k] + at);
}

// Filtered row m at the source's width.
static void make_wide_row(const struct float_rows *r, int m)
{
    double *wide = r->wide[modulo(m, SAMPLES)];
    const double *above[2 * CONV_DECIMATED_MAX_RADIUS + 1],
        *beside[2 * CONV_DECIMATED_MAX_RADIUS + 1], *around[SAMPLES];
    for (int i = 0; i <= 2 * r->radius; i++) {
        above[i] = ring_row(r, m - r->radius + i);
        beside[i] = r->column + i * r->channels;
    }
    for (int k = 0; k < SAMPLES; k++)
        around[k] = r->fine + k * r->channels;
    for (int at = 0; at < r->coarse; at += BLOCK)
        add_neighbours(r, r->column, above + r->radius, at);
    for (int at = 0; at < r->filtered; at += BLOCK)
        add_neighbours(r, r->fine, beside + r->radius, at);
    for (int at = 0; at < r->filtered - (SAMPLES - 1) * r->channels; at += LANES) {
        lanes value[SAMPLES];
        load_samples(value, around, at);
        for (int i = 0; i < r->step; i++) {
            lanes sum = enlarge(r, value, i);
            memcpy(r->phases + i * r->pitch + at, &sum, sizeof sum);
        }
    }
    for (int i = 0, count = r->last - r->first; i < r->step && i < count; i++)
        move_pixels(wide + i * r->channels, r->step, r->phases + i * r->pitch, 1,
                    (count - i - 1) / r->step + 1, r->channels);
}

// --- results -------------------------------------------------------------------------------------

// LANES results at dst, of which `count` are stored.
INLINE void write_floats(const struct float_rows *r, float *dst, const float *src, lanes blurred,
                         int count, bool sharpens)
{
    float results[LANES];
    float *to = sharpens || count < LANES ? results : dst;
    STORE_FLOATS(to, blurred);
    if (sharpens) {
        double amount = r->stencil->coarse.amount, keep = (double)r->stencil->fkeep_below;
        double blur[LANES];
        memcpy(blur, &blurred, sizeof blur);
        for (int n = 0; n < count; n++) {
            double sample = (double)src[n], change = amount * (sample - blur[n]);
            results[n] = (float)(fabs(change) < keep ? sample : sample + change);
        }
    }
    if (sharpens || count < LANES)
        memcpy(dst, results, (size_t)count * sizeof(float));
}

// Rows `from` to `to` - 1 after coarse row m.
INLINE void write_rows_after(const struct float_rows *r, int m, int from, int to, bool sharpens)
{
    const struct conv_stencil_plane *plane = r->plane;
    const double *lines[SAMPLES];
    int count = (r->last - r->first) * r->channels;
    for (int k = 0; k < SAMPLES; k++)
        lines[k] = r->wide[modulo(m - REACH + 1 + k, SAMPLES)];
    for (int x = 0; x < count; x += LANES) {
        size_t at = (size_t)(r->first * r->channels + x) * sizeof(float);
        lanes value[SAMPLES];
        load_samples(value, lines, x);
        for (int i = from; i < to; i++) {
            int y = m * r->step + i;
            write_floats(r, (float *)(void *)(plane->dst + y * plane->dst_stride + at),
                         (const float *)(const void *)(plane->src + y * plane->src_stride + at),
                         enlarge(r, value, i), count - x < LANES ? count - x : LANES, sharpens);
        }
    }
}

// Rows [from, to) of the strip, which are rows of the coarse samples first to last.
static void filter_float_strip(const struct float_rows *r, int from, int to)
{
    int first = from / r->step, last = (to - 1) / r->step;
    int coarse = first - REACH + 1 - r->radius, end = last + REACH + r->radius;
    for (int m = coarse - REACH; m - REACH < end; m += AHEAD) {
        add_float_rows(r, m);
        // Before `coarse`, sums began with rows that were not added.
        for (int k = 0, row = m - REACH + 1; k < AHEAD && row <= end; k++, row++) {
            int filtered = row - r->radius, done = filtered - REACH;
            if (row >= coarse)
                make_coarse_row(r, row, r->sums[k]);
            if (filtered >= first - REACH + 1)
                make_wide_row(r, filtered);
            if (done < first)
                continue;
            int top = from - done * r->step, bottom = to - done * r->step;
            top = top > 0 ? top : 0;
            bottom = bottom < r->step ? bottom : r->step;
            if (r->stencil->coarse.amount != 0)
                write_rows_after(r, done, top, bottom, true);
            else
                write_rows_after(r, done, top, bottom, false);
        }
    }
}

// Sets everything that depends on the strip.
static void set_strip(struct float_rows *r, int first, int last, double *scratch)
{
    int from = first - r->step * (r->radius + SAMPLES - 1), channels = r->channels;
    int count = count_fine(last - first, r->step), to = first + r->step * (count + r->radius);
    r->first = first;
    r->last = last;
    r->from = from > 0 ? from : 0;
    r->to = to < r->width ? to : r->width;
    r->filtered = count * channels;
    r->coarse = (count + 2 * r->radius) * channels;
    r->pitch = ((r->coarse + SAMPLES * channels + BLOCK) / ALIGN + 1) * ALIGN;
    size_t pitch = (size_t)r->pitch;
    size_t columns = (size_t)((r->to - r->from) * channels / ALIGN + 1) * ALIGN;
    for (int k = 0; k < AHEAD + SAMPLES - 1; k++)
        r->sums[k] = memset(take(&scratch, columns), 0, columns * sizeof(double));
    for (int k = 0; k < SAMPLES; k++)
        r->wide[k] = take(&scratch, columns);
    r->phases = take(&scratch, pitch * (size_t)r->step);
    r->ring = take(&scratch, pitch * (size_t)(2 * r->radius + 1));
    r->column = take(&scratch, pitch);
    r->fine = take(&scratch, pitch);
    r->constant = (float *)scratch;
    for (size_t x = 0; x < columns; x++)
        r->constant[x] = r->stencil->border_value;
}

static enum conv_status run_floats(const struct conv_stencil_plan *plan,
                                   const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    const struct conv_decimated *d = &stencil->decimated;
    struct float_rows r = {.stencil = stencil, .step = d->step, .radius = d->radius};
    r.near = stencil->coarse.near;
    r.line = stencil->coarse.line;
    r.channels = stencil->channels;
    for (int i = 0; i < r.step; i++)
        for (int k = 0; k < count_samples(i); k++) {
            r.down[i][k] = r.near[abs(i - (k - REACH + 1) * r.step)];
            r.up[i][k] = r.down[i][k] * stencil->coarse.scale[i];
        }
    // A multiple of the step, and longer than the border's samples reach into the plane.
    int least = LEAST_HALOS * 2 * (r.radius + SAMPLES), strip = STRIP / r.channels / r.step;
    strip = (strip > least ? strip : least) * r.step;
    for (int p = 0; p < batch->count; p++) {
        r.plane = &batch->planes[p];
        r.width = r.plane->width / r.channels;
        bool whole = stencil->border == CONV_BORDER_WRAP; // whose border is at the other end
        for (int x = 0, end; x < r.width; x = end) {
            end = whole || r.width - x < strip + strip / 2 ? r.width : x + strip;
            set_strip(&r, x, end, batch->cpu.scratch);
            filter_float_strip(&r, batch->cpu.from, conv_cpu_end(batch, r.plane));
        }
    }
    return CONV_OK;
}
