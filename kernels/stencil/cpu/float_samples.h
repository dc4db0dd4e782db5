// SPDX-License-Identifier: MIT
// Stencils of float32 samples: sums of taps and magnitudes in float32, those of real coefficients,
// columns times rows as well, in float64. Source rows are copied once, with their borders, to a
// ring of lines; pixels of several channels are filtered as they are, with taps that many samples
// apart.
#pragma once

#include <math.h>

#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/cpu/vector.h"

#define NOT_INLINE static __attribute__((noinline)) // as many sums as registers
#define LINE_LANES DOUBLE_LANES                     // also the rows that are filtered at a time
#define LINE_VECTORS 2 // each with as many sums; enough to hide the latency of an addition
#define LINE_CHUNK (4 * LINE_VECTORS * LINE_LANES)
#define MOST_CHANNELS 4
#define MOST_HALO ((CONV_REAL_MAX_SIDE - 1) * MOST_CHANNELS)
// Samples of a line: those of a strip up to the end of the last block, and the halo.
#define SAMPLE_LINE (CONV_CPU_STRIP + CONV_CPU_BLOCK + 160)
_Static_assert(LINE_CHUNK <= CONV_CPU_BLOCK && MOST_HALO <= 160, "a chunk and the halo fit");

struct sample_tap {
    int column, row; // samples from the first tap's, and rows
    union {
        float coef;
        double precise; // for sums of float64
    };
};

// Rows of samples, topmost first, from the first tap of a result on.
typedef const float *tap_lines[CONV_REAL_MAX_SIDE];

// Derived once per plan.
struct sample_constants {
    int tap_count, singles; // the others two by two: see conv_cpu_order
    // Those that are not 0; of magnitudes, after them as many for the transposed image.
    struct sample_tap taps[CONV_FILTER_MAX_TAPS];
};

// Replaces sums that are near their samples, as stencil.h defines.
ALWAYS_INLINE void keep_samples(float *sums, const struct conv_stencil *stencil,
                                const float *samples, int count)
{
    float start = stencil->fbias, below = stencil->fkeep_below;
    for (int i = 0; i < count; i++) {
        float kept = samples[i] + start;
        sums[i] = fabsf(sums[i] - kept) < below ? kept : sums[i];
    }
}

static void write_results(uint8_t *row, const uint8_t *from, size_t bytes, bool streams)
{
    size_t at = streams ? -(uintptr_t)row % VECTOR : bytes;
    at = at < bytes ? at : bytes;
    memcpy(row, from, at);
    for (; at + VECTOR <= bytes; at += VECTOR)
        stream(row + at, load_u8(from + at));
    memcpy(row + at, from + at, bytes - at);
}

// --- taps ----------------------------------------------------------------------------------------

// Rows of results are sums over the source rows where these are. Only at both ends of a row, where
// taps lie beyond the plane, samples are copied first, with their border.

#define TAP_VECTORS 8 // enough to hide the latency of an addition
#define TAP_BLOCK (TAP_VECTORS * FLOAT_LANES)
// An end of a row is as long as the filter reaches, and up to an aligned address; a row with less
// than SHORT_ROW between its ends is one end.
#define SHORT_ROW (4 * TAP_BLOCK)
#define END_LINE (2 * MOST_HALO + SHORT_ROW + TAP_BLOCK + FLOAT_LANES)

struct tap_job {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    const struct sample_constants *constants;
    int reach;                 // samples before and after one that its result depends on
    float *ends[2], *constant; // rings of `height` lines; a row of border values
    bool streams;
};

// Sums of `count` taps for vectors of results from column x on; see conv_cpu_order.
ALWAYS_INLINE void sum_taps(vec_f32 *sum, const struct sample_tap *tap, int singles, int count,
                            const tap_lines lines, int x, float start, int vectors)
{
    const struct sample_tap *pairs = tap + singles, *end = tap + count;
    for (int v = 0; v < vectors; v++)
        sum[v] = every_f32(start);
    for (; tap < pairs; tap++) {
        const float *at = lines[tap->row] + tap->column + x;
        vec_f32 coef = every_f32(tap->coef);
        for (int v = 0; v < vectors; v++)
            sum[v] = add_tap(sum[v], load_f32(at + v * FLOAT_LANES), coef);
    }
    for (; tap < end; tap += 2) {
        const float *at = lines[tap[0].row] + tap[0].column + x;
        const float *other = lines[tap[1].row] + tap[1].column + x;
        vec_f32 coef = every_f32(tap->coef);
        for (int v = 0; v < vectors; v++) {
            vec_f32 pair = load_f32(at + v * FLOAT_LANES) + load_f32(other + v * FLOAT_LANES);
            sum[v] = add_tap(sum[v], pair, coef);
        }
    }
}

// Sums of half a vector of floats each.
ALWAYS_INLINE void sum_precise_taps(float *out, const struct tap_job *job, const tap_lines lines,
                                    int x, int vectors)
{
    vec_f64 sum[2 * TAP_VECTORS];
    for (int v = 0; v < 2 * vectors; v++)
        sum[v] = every_f64((double)job->stencil->fbias);
    for (int k = 0; k < job->constants->tap_count; k++) {
        const struct sample_tap *tap = &job->constants->taps[k];
        const float *at = lines[tap->row] + tap->column + x;
        vec_f64 coef = every_f64(tap->precise);
        for (int v = 0; v < 2 * vectors; v++)
            sum[v] = add_product(sum[v], load_f32_as_f64(at + v * DOUBLE_LANES), coef);
    }
    for (int v = 0; v < 2 * vectors; v++) {
        vec_f32_half floats = __builtin_convertvector(sum[v], vec_f32_half);
        memcpy(out + v * DOUBLE_LANES, &floats, sizeof floats);
    }
}

ALWAYS_INLINE void filter_tap_block(float *out, const struct tap_job *job, const tap_lines lines,
                                    int x, int vectors)
{
    const struct conv_stencil *stencil = job->stencil;
    const struct sample_constants *constants = job->constants;
    int singles = constants->singles, count = constants->tap_count;
    vec_f32 sum[TAP_VECTORS], down[TAP_VECTORS];
    if (stencil->real.side) {
        sum_precise_taps(out, job, lines, x, vectors);
    } else if (stencil->magnitude) {
        sum_taps(sum, constants->taps, singles, count, lines, x, 0, vectors);
        sum_taps(down, constants->taps + count, singles, count, lines, x, 0, vectors);
        for (int v = 0; v < vectors; v++)
            sum[v] =
                sqrt_f32(sum[v] * sum[v] + down[v] * down[v]) / stencil->fdivisor + stencil->fbias;
        memcpy(out, sum, (size_t)vectors * VECTOR);
    } else {
        sum_taps(sum, constants->taps, singles, count, lines, x, stencil->fbias, vectors);
        memcpy(out, sum, (size_t)vectors * VECTOR);
    }
    if (stencil->keeps)
        keep_samples(out, stencil, lines[stencil->height / 2] + job->reach + x,
                     vectors * FLOAT_LANES);
}

// Results first to first + count - 1 of a row, at an end of it.
static void filter_row_end(float *dst, const struct tap_job *job, const float *ring, int y,
                           int count)
{
    tap_lines lines;
    float out[TAP_BLOCK];
    for (int j = 0, height = job->stencil->height, slot = y % height; j < height; j++) {
        lines[j] = ring + slot * END_LINE;
        slot = slot + 1 < height ? slot + 1 : 0;
    }
    int x = 0;
    for (; x + TAP_BLOCK <= count; x += TAP_BLOCK)
        filter_tap_block(dst + x, job, lines, x, TAP_VECTORS);
    for (int step; x < count; x += step) {
        step = count - x > 4 * FLOAT_LANES ? TAP_BLOCK : FLOAT_LANES;
        if (step == TAP_BLOCK)
            filter_tap_block(out, job, lines, x, TAP_VECTORS);
        else
            filter_tap_block(out, job, lines, x, 1);
        memcpy(dst + x, out, (size_t)(count - x < step ? count - x : step) * sizeof(float));
    }
}

// Results first to end - 1, at least TAP_BLOCK, of a row: the last block overlaps the one before.
static void filter_row_middle(float *dst, const struct tap_job *job, int y, int first, int end)
{
    const struct conv_stencil *stencil = job->stencil;
    const struct conv_stencil_plane *plane = job->plane;
    tap_lines lines;
    for (int j = 0; j < stencil->height; j++) {
        int sy = conv_border_index(stencil->border, y + j - stencil->height / 2, plane->height);
        const uint8_t *row = plane->src + sy * plane->src_stride;
        lines[j] = (sy < 0 ? job->constant : (const float *)(const void *)row) - job->reach;
    }
    for (int x = first; x < end; x += TAP_BLOCK) {
        float out[TAP_BLOCK];
        int at = end - x < TAP_BLOCK ? end - TAP_BLOCK : x;
        if (job->streams) {
            filter_tap_block(out, job, lines, at, TAP_VECTORS);
            write_results((uint8_t *)(dst + at), (const uint8_t *)out, sizeof out, at == x);
        } else {
            filter_tap_block(dst + at, job, lines, at, TAP_VECTORS);
        }
    }
}

static bool is_short_row(const struct tap_job *job)
{
    return job->plane->width < 2 * job->reach + FLOAT_LANES + SHORT_ROW;
}

// Where the ends of a row are: [0, first) and [last, width).
static void find_row_ends(const struct tap_job *job, const uint8_t *row, int *first, int *last)
{
    int width = job->plane->width;
    *first = *last = width;
    if (is_short_row(job))
        return;
    size_t off = ((uintptr_t)row + (size_t)job->reach * sizeof(float)) % VECTOR;
    *first = job->reach + (int)(job->streams ? (VECTOR - off) % VECTOR / sizeof(float) : 0);
    *last = width - job->reach;
}

static void filter_taps(struct tap_job *job, int from, int end)
{
    const struct conv_stencil *stencil = job->stencil;
    const struct conv_stencil_plane *plane = job->plane;
    int width = plane->width, filled = from; // lines so far, the first for row from - height / 2
    bool is_short = is_short_row(job);
    int left = is_short ? width : job->reach + FLOAT_LANES, right = is_short ? 0 : job->reach;
    for (int y = from; y < end; y++) {
        uint8_t *row = plane->dst + y * plane->dst_stride;
        float *dst = (float *)(void *)row;
        for (; filled < y + stencil->height; filled++) {
            int at = filled % stencil->height * END_LINE, sy = filled - stencil->height / 2;
            conv_cpu_line(job->ends[0] + at, stencil, plane, -job->reach, sy,
                          left + 2 * job->reach);
            if (!is_short)
                conv_cpu_line(job->ends[1] + at, stencil, plane, width - right - job->reach, sy,
                              right + 2 * job->reach);
        }
        int first, last;
        find_row_ends(job, row, &first, &last);
        filter_row_end(dst, job, job->ends[0], y, first);
        if (last > first)
            filter_row_middle(dst, job, y, first, last);
        filter_row_end(dst + last, job, job->ends[1], y, width - last);
    }
}

// --- columns times rows --------------------------------------------------------------------------

struct line_job {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    float *ring; // height + LINE_LANES - 1 lines
    // For each product, SAMPLE_LINE columns: sums down them, of LINE_LANES rows.
    double *sums;
    float *out; // LINE_LANES lines of results
    bool streams;
    const float *line[CONV_REAL_MAX_SIDE + LINE_LANES - 1]; // of the ring, topmost first
    int rows;                                               // of results
    uint8_t *written[LINE_LANES];                           // these
    const float *next[LINE_LANES]; // source rows that the next results will need
};

// In registers, the rows of LINE_LANES lines become vectors: sums down columns are stored column by
// column, a vector of rows each, so that the loads of the sums along rows are aligned.

// The elements of a at even multiples of `distance` and those of b there, in turns; and at odd
// ones.
#define SHUFFLE __builtin_shufflevector
#if VECTOR == 64
#define EVEN(a, b, distance)                                                                       \
    (distance == 1   ? SHUFFLE(a, b, 0, 8, 2, 10, 4, 12, 6, 14)                                    \
     : distance == 2 ? SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13)                                     \
                     : SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11))
#define ODD(a, b, distance)                                                                        \
    (distance == 1   ? SHUFFLE(a, b, 1, 9, 3, 11, 5, 13, 7, 15)                                    \
     : distance == 2 ? SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15)                                   \
                     : SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15))
#elif VECTOR == 32
#define EVEN(a, b, distance) (distance == 1 ? SHUFFLE(a, b, 0, 4, 2, 6) : SHUFFLE(a, b, 0, 1, 4, 5))
#define ODD(a, b, distance) (distance == 1 ? SHUFFLE(a, b, 1, 5, 3, 7) : SHUFFLE(a, b, 2, 3, 6, 7))
#else
#define EVEN(a, b, distance) SHUFFLE(a, b, 0, 2)
#define ODD(a, b, distance) SHUFFLE(a, b, 1, 3)
#endif

// Transposes LINE_LANES vectors of as many numbers.
#define DEFINE_TRANSPOSE(name, type)                                                               \
    ALWAYS_INLINE void name(type v[LINE_LANES])                                                    \
    {                                                                                              \
        _Pragma("GCC unroll 8") for (int distance = 1; distance < LINE_LANES; distance *= 2)       \
            _Pragma("GCC unroll 8") for (int k = 0; k < LINE_LANES; k++) if (!(k & distance))      \
        {                                                                                          \
            type a = v[k], b = v[k + distance];                                                    \
            v[k] = EVEN(a, b, distance);                                                           \
            v[k + distance] = ODD(a, b, distance);                                                 \
        }                                                                                          \
    }
DEFINE_TRANSPOSE(transpose, vec_f64)
DEFINE_TRANSPOSE(transpose_floats, vec_f32_half)

// Adds row r of the ring to the sums of rows `first` to `last`, which it is a tap of.
ALWAYS_INLINE void add_line_row(vec_f64 sum[LINE_VECTORS][LINE_LANES], const struct line_job *job,
                                const double *column, int r, int x, int first, int last)
{
    __asm__("" : "+r"(column)); // else GCC 12 keeps coefficients in too few registers
#pragma GCC unroll 8
    for (int v = 0; v < LINE_VECTORS; v++) {
        vec_f64 sample = load_f32_as_f64(job->line[r] + x + v * LINE_LANES);
#pragma GCC unroll 8
        for (int q = 0; q < LINE_LANES; q++)
            if (q >= first && q <= last)
                sum[v][q] = add_product(sum[v][q], sample, every_f64(column[r - q]));
    }
}

// Columns from x to at least `end` - 1. few: the side, if it is less than LINE_LANES; else 0.
ALWAYS_INLINE void add_down(const struct line_job *job, int k, int x, int end, int few)
{
    int side = few ? few : job->stencil->real.side;
    for (; x < end; x += LINE_VECTORS * LINE_LANES) {
        const double *column = job->stencil->real.column[k];
        double *out = job->sums + (k * SAMPLE_LINE + x) * LINE_LANES;
        vec_f64 sum[LINE_VECTORS][LINE_LANES] = {0};
#pragma GCC unroll 8
        for (int r = 0; r < LINE_LANES - 1; r++)
            add_line_row(sum, job, column, r, x, few && r >= few ? r - few + 1 : 0, r);
        for (int r = LINE_LANES - 1; r < side && !few; r++)
            add_line_row(sum, job, column, r, x, 0, LINE_LANES - 1);
#pragma GCC unroll 8
        for (int q = few ? LINE_LANES - few : 1; q < LINE_LANES; q++)
            add_line_row(sum, job, column, side - 1 + q, x, q, LINE_LANES - 1);
#pragma GCC unroll 8
        for (int v = 0; v < LINE_VECTORS; v++) {
            transpose(sum[v]);
#pragma GCC unroll 8
            for (int q = 0; q < LINE_LANES; q++)
                memcpy(out + (v * LINE_LANES + q) * LINE_LANES, &sum[v][q], VECTOR);
        }
    }
}

#define DEFINE_SUM_DOWN(few)                                                                       \
    NOT_INLINE void sum_down_##few(const struct line_job *job, int k, int x, int end)              \
    {                                                                                              \
        add_down(job, k, x, end, few < LINE_LANES ? few : 0);                                      \
    }
DEFINE_SUM_DOWN(0)
DEFINE_SUM_DOWN(1)
DEFINE_SUM_DOWN(3)
DEFINE_SUM_DOWN(5)
DEFINE_SUM_DOWN(7)

NOT_INLINE void sum_along_line(const struct line_job *job, int x, int end)
{
    const struct conv_stencil *stencil = job->stencil;
    const struct conv_real *real = &stencil->real;
    int half = real->side / 2;
    for (; x < end; x += LINE_VECTORS * LINE_LANES) {
        vec_f64 sum[LINE_VECTORS][LINE_LANES];
        for (int v = 0; v < LINE_VECTORS; v++)
            for (int q = 0; q < LINE_LANES; q++)
                sum[v][q] = every_f64((double)stencil->fbias);
        for (int k = 0; k < real->lines; k++)
            for (int i = 0; i < real->side; i++) {
                const double *at =
                    job->sums + (k * SAMPLE_LINE + x + i * stencil->channels) * LINE_LANES;
                vec_f64 coef = every_f64(real->row[k][i]);
                for (int v = 0; v < LINE_VECTORS; v++)
                    for (int q = 0; q < LINE_LANES; q++)
                        sum[v][q] = add_product(
                            sum[v][q], load_f64(at + (v * LINE_LANES + q) * LINE_LANES), coef);
            }
#pragma GCC unroll 8
        for (int v = 0; v < LINE_VECTORS; v++) {
            int column = x + v * LINE_LANES, centre = column + half * stencil->channels;
            vec_f32_half row[LINE_LANES];
            if (real->taps) {
                for (int q = 0; q < LINE_LANES; q++)
                    memcpy(&row[q], job->line[half + q] + centre, sizeof row[q]);
                transpose_floats(row);
                for (int q = 0; q < LINE_LANES; q++)
                    sum[v][q] = add_product(sum[v][q], __builtin_convertvector(row[q], vec_f64),
                                            every_f64(real->tap[0].coef));
            }
#pragma GCC unroll 8
            for (int q = 0; q < LINE_LANES; q++)
                row[q] = __builtin_convertvector(sum[v][q], vec_f32_half);
            transpose_floats(row);
#pragma GCC unroll 8
            for (int q = 0; q < LINE_LANES; q++)
                memcpy(job->out + q * SAMPLE_LINE + column, &row[q], sizeof row[q]);
        }
    }
}

// Writes the results of columns x to x + LINE_CHUNK - 1 of `count`; streamed, up to an aligned
// address.
static void write_chunk(const struct line_job *job, int x, int count)
{
    for (int r = 0; r < job->rows; r++) {
        uint8_t *row = job->written[r];
        size_t bytes[2]; // where they begin and end
        for (int k = 0; k < 2; k++) {
            int column = x + k * LINE_CHUNK;
            bytes[k] = (size_t)(column < count ? column : count) * sizeof(float);
            bytes[k] -= job->streams && column > 0 && column < count
                            ? (uintptr_t)(row + bytes[k]) % VECTOR
                            : 0;
        }
        write_results(row + bytes[0], (const uint8_t *)(job->out + r * SAMPLE_LINE) + bytes[0],
                      bytes[1] - bytes[0], job->streams);
    }
}

// Sums along rows follow those down columns closely, while these are in the nearest cache, and so
// do reads and writes of memory, so that it is never idle.
static void filter_lines(const struct line_job *job, int count)
{
    const struct conv_stencil *stencil = job->stencil;
    void (*const few[])(const struct line_job *, int, int, int) = {sum_down_1, sum_down_3,
                                                                   sum_down_5, sum_down_7};
    void (*sum_down)(const struct line_job *, int, int, int) =
        stencil->real.side < 8 ? few[stencil->real.side / 2] : sum_down_0;
    int step = LINE_VECTORS * LINE_LANES, halo = (stencil->width - 1) * stencil->channels, down = 0;
    for (int x = 0; x < count; x += LINE_CHUNK) {
        for (int k = 0; k < stencil->real.lines; k++)
            sum_down(job, k, down, x + LINE_CHUNK + halo);
        while (down < x + LINE_CHUNK + halo)
            down += step;
        for (int r = 0; r < LINE_LANES; r++)
            for (int i = 0; i < LINE_CHUNK; i += 16)
                __builtin_prefetch(job->next[r] + x + i, 0, 2);
        sum_along_line(job, x, x + LINE_CHUNK);
        for (int r = 0; r < LINE_LANES && stencil->keeps; r++)
            keep_samples(job->out + r * SAMPLE_LINE + x, stencil,
                         job->line[stencil->height / 2 + r] + halo / 2 + x, LINE_CHUNK);
        write_chunk(job, x, count);
    }
}

static const float *sample_line(const struct line_job *job, int number)
{
    return job->ring + number % (job->stencil->height + LINE_LANES - 1) * SAMPLE_LINE;
}

static void filter_line_strip(struct line_job *job, int x, int count, int from, int end)
{
    const struct conv_stencil *stencil = job->stencil;
    const struct conv_stencil_plane *plane = job->plane;
    int halo = (stencil->width - 1) * stencil->channels, rows = stencil->height + LINE_LANES - 1;
    int filled = from; // ring lines so far; number k holds source row k - height / 2
    for (int y = from; y < end; y += LINE_LANES) {
        for (; filled < y + rows; filled++)
            conv_cpu_line((float *)(uintptr_t)sample_line(job, filled), stencil, plane,
                          x - halo / 2, filled - stencil->height / 2, count + halo);
        for (int r = 0; r < rows; r++)
            job->line[r] = sample_line(job, y + r);
        job->rows = end - y < LINE_LANES ? end - y : LINE_LANES;
        for (int r = 0; r < LINE_LANES; r++) {
            int next = filled + r - stencil->height / 2, last = plane->height - 1;
            next = next < 0 ? 0 : next < last ? next : last;
            job->next[r] = (const float *)(const void *)(plane->src + next * plane->src_stride) + x;
            job->written[r] = plane->dst + (y + (r < job->rows ? r : 0)) * plane->dst_stride +
                              (size_t)x * sizeof(float);
        }
        filter_lines(job, count);
    }
}

// -------------------------------------------------------------------------------------------------

// Taps: two rings of the ends' lines, and a row of border values. Lines: sums, a ring and results.
static void plan_samples(struct sample_constants *constants, const struct conv_stencil *stencil,
                         struct conv_stencil_plan *plan)
{
    size_t height = (size_t)stencil->height, lines = height + 2 * LINE_LANES - 1;
    const struct conv_real *real = &stencil->real;
    if (real->lines) {
        plan->cpu.scratch_fixed = SAMPLE_LINE * (lines * sizeof(float) +
                                                 (size_t)real->lines * LINE_LANES * sizeof(double));
        return;
    }
    plan->cpu.scratch_fixed = 2 * height * END_LINE * sizeof(float);
    plan->cpu.scratch_per_column = stencil->border == CONV_BORDER_CONSTANT ? sizeof(float) : 0;
    constants->tap_count = real->taps;
    for (int k = 0; k < real->taps; k++) {
        struct sample_tap *tap = &constants->taps[k];
        tap->column = (real->tap[k].x + real->side / 2) * stencil->channels;
        tap->row = real->tap[k].y + real->side / 2;
        tap->precise = real->tap[k].coef;
    }
    if (real->side)
        return;
    int order[CONV_FILTER_MAX_TAPS], count = conv_cpu_order(order, &constants->singles, stencil);
    constants->tap_count = count;
    for (int k = 0; k < count; k++) {
        int column = order[k] % stencil->width, row = order[k] / stencil->width;
        float coef = stencil->fcoef[order[k]];
        constants->taps[k] =
            (struct sample_tap){.column = column * stencil->channels, .row = row, .coef = coef};
        if (stencil->magnitude)
            constants->taps[count + k] =
                (struct sample_tap){.column = row * stencil->channels, .row = column, .coef = coef};
    }
}

static void filter_line_plane(const struct conv_stencil *stencil,
                              const struct conv_stencil_plane *plane, void *scratch, int from,
                              int end, bool streams)
{
    struct line_job job = {.stencil = stencil, .plane = plane, .sums = scratch, .streams = streams};
    job.ring = (float *)(void *)(job.sums + stencil->real.lines * SAMPLE_LINE * LINE_LANES);
    job.out = job.ring + (stencil->height + LINE_LANES - 1) * SAMPLE_LINE;
    for (int x = 0; x < plane->width; x += CONV_CPU_STRIP) {
        int left = plane->width - x;
        filter_line_strip(&job, x, left < CONV_CPU_STRIP ? left : CONV_CPU_STRIP, from, end);
    }
}

static void filter_tap_plane(const struct conv_stencil *stencil,
                             const struct sample_constants *constants,
                             const struct conv_stencil_plane *plane, void *scratch, int from,
                             int end, bool streams)
{
    struct tap_job job = {
        .stencil = stencil, .plane = plane, .constants = constants, .streams = streams};
    job.reach = stencil->width / 2 * stencil->channels;
    job.ends[0] = scratch;
    job.ends[1] = job.ends[0] + stencil->height * END_LINE;
    job.constant = job.ends[1] + stencil->height * END_LINE;
    for (int x = 0; x < plane->width && stencil->border == CONV_BORDER_CONSTANT; x++)
        job.constant[x] = stencil->border_value;
    filter_taps(&job, from, end);
}

static inline void filter_samples(const struct conv_stencil *stencil,
                                  const struct sample_constants *constants,
                                  const struct conv_stencil_batch *batch)
{
    for (int p = 0; p < batch->count; p++) {
        const struct conv_stencil_plane *plane = &batch->planes[p];
        int from = batch->cpu.from, end = conv_cpu_end(batch, plane);
        bool streams = (size_t)plane->height * (size_t)plane->dst_stride >= CONV_CPU_STREAM;
        if (stencil->real.lines)
            filter_line_plane(stencil, plane, batch->cpu.scratch, from, end, streams);
        else
            filter_tap_plane(stencil, constants, plane, batch->cpu.scratch, from, end, streams);
        if (streams)
            stream_end();
    }
}
