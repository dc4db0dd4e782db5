// SPDX-License-Identifier: MIT
// Stencils with sums of float32, or of float64 where float32 is not precise enough (proof in
// plan.c), at 8 and 16 bits. Source rows become rows of floats once; each output row is a sum over
// them in the defined order, a block of registers at a time.
#pragma once

#include <math.h>

#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/cpu/float_samples.h"
#include "kernels/stencil/cpu/round.h"
#include "kernels/stencil/cpu/vector.h"
#include "kernels/stencil/stencil.h"

// --- two passes ----------------------------------------------------------------------------------

// Exact stencils that are a sum of one or two products of lines, with sums of float64: for each
// output row, a line of sums down the columns per product, then sums along these lines. Every
// product and sum is an integer that fits float64 (plan.c), so the order does not matter. At 31x31
// that is 62 or 124 multiplications instead of 961. The columns come first, since the lines then
// stay in the nearest cache: with the rows first there would be 31 lines of sums per product, of 8
// bytes per sample.

// Derived once per plan.
struct float_constants {
    bool doubles;
    bool multiply;          // by 1 / divisor
    double start, divisor;  // divisor 1 for real filters: the coefficients include the scale
    int tap_count, singles; // as in struct sample_constants
    struct sample_tap taps[CONV_FILTER_MAX_TAPS]; // those that are not 0; `precise` if doubles
    bool mirrored;                                // taps of the upper half and the middle row only
    int products; // doubles in two passes: the number of products; else 0, and there are taps
    double column[CONV_STENCIL_MOST_PRODUCTS][CONV_FILTER_MAX_SIDE];
    double row[CONV_STENCIL_MOST_PRODUCTS][CONV_FILTER_MAX_SIDE];
    double sample; // the rest of the centre coefficient beside the products
};

struct float_job {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    const struct float_constants *constants;
    tap_lines rows;      // of the ring, or mirrored, for the current row
    const float *centre; // the samples themselves, for the current row
    float *ring;         // height rows of CONV_CPU_LINE floats
    float *mirrored;     // height / 2 sums of two of them, for the current row
    void *line;
    double *sums[CONV_STENCIL_MOST_PRODUCTS]; // products: CONV_CPU_LINE sums down the columns
};

#define PASS_VECTORS 8 // of sums; enough to hide the latency of an addition
_Static_assert(PASS_VECTORS *VECTOR <= CONV_CPU_BLOCK * (int)sizeof(double), "a block fits");

// The first pass: columns 0 to `count` - 1, rounded up to blocks.
ALWAYS_INLINE void sum_down(const struct float_job *job, int count, int products)
{
    const struct float_constants *constants = job->constants;
    const int vectors = PASS_VECTORS / products, height = job->stencil->height;
    for (int x = 0; x < count; x += vectors * DOUBLE_LANES) {
        vec_f64 sum[CONV_STENCIL_MOST_PRODUCTS][PASS_VECTORS] = {0};
        for (int j = 0; j < height; j++) {
            for (int v = 0; v < vectors; v++) {
                vec_f64 sample = load_f32_as_f64(job->rows[j] + x + v * DOUBLE_LANES);
                for (int k = 0; k < products; k++)
                    sum[k][v] += sample * constants->column[k][j];
            }
        }
        for (int k = 0; k < products; k++)
            memcpy(job->sums[k] + x, sum[k], (size_t)vectors * VECTOR);
    }
}

// The second pass: PASS_VECTORS vectors of output samples from column x on.
ALWAYS_INLINE void sum_along(double *out, const struct float_job *job, int x, int products)
{
    const struct float_constants *constants = job->constants;
    const int width = job->stencil->width;
    vec_f64 sum[PASS_VECTORS];
    for (int v = 0; v < PASS_VECTORS; v++)
        sum[v] = every_f64(constants->start);
    for (int v = 0; v < PASS_VECTORS && constants->sample != 0; v++)
        sum[v] += load_f32_as_f64(job->centre + x + v * DOUBLE_LANES) * constants->sample;
    for (int i = 0; i < width; i++)
        for (int k = 0; k < products; k++) {
            const double *at = job->sums[k] + x + i;
            for (int v = 0; v < PASS_VECTORS; v++)
                sum[v] += load_f64(at + v * DOUBLE_LANES) * constants->row[k][i];
        }
    memcpy(out, sum, sizeof sum);
}

// Sums down all columns that the samples 0 to `count` - 1 of the current row need.
static void start_passes(const struct float_job *job, int count)
{
    int columns = (count + CONV_CPU_BLOCK - 1) / CONV_CPU_BLOCK * CONV_CPU_BLOCK;
    columns += job->stencil->width - 1;
    if (job->constants->products == 1)
        sum_down(job, columns, 1);
    else
        sum_down(job, columns, 2);
}

static void sum_passes(double *out, const struct float_job *job, int x)
{
    if (job->constants->products == 1)
        sum_along(out, job, x, 1);
    else
        sum_along(out, job, x, 2);
}

// -------------------------------------------------------------------------------------------------

#define FLOAT_VECTORS 8 // enough to hide the latency of an addition
#define FLOAT_BLOCK (FLOAT_VECTORS * FLOAT_LANES)
#define DOUBLE_BLOCK (FLOAT_VECTORS * DOUBLE_LANES)
_Static_assert(FLOAT_BLOCK <= CONV_CPU_BLOCK, "a block fits after a strip");

// Like INTEGER_FLOATS (round.h), for doubles.
#define INTEGER_DOUBLES 6755399441055744.0

ALWAYS_INLINE void sum_floats(float sums[FLOAT_BLOCK], const struct float_job *job, int x)
{
    const struct float_constants *constants = job->constants;
    vec_f32 sum[FLOAT_VECTORS];
    sum_taps(sum, constants->taps, constants->singles, constants->tap_count, job->rows, x,
             (float)constants->start, FLOAT_VECTORS);
    memcpy(sums, sum, sizeof sum);
}

// Replaces sums that are near their samples, as stencil.h defines. With exact filters, all numbers
// here are integers that fit the type (plan.c).
static void keep_floats(float sums[FLOAT_BLOCK], const struct float_job *job, int x)
{
    float start = (float)job->constants->start, divisor = (float)job->constants->divisor;
    float below = job->stencil->fkeep_below;
    const float *samples = job->centre + x;
    for (int i = 0; i < FLOAT_BLOCK; i++) {
        float kept = samples[i] * divisor + start;
        float difference = sums[i] - kept;
        sums[i] = fabsf(difference) < below ? kept : sums[i];
    }
}

static void keep_doubles(double sums[DOUBLE_BLOCK], const struct float_job *job, int x)
{
    double below = (double)job->stencil->keep_below;
    const float *samples = job->centre + x;
    for (int i = 0; i < DOUBLE_BLOCK; i++) {
        double kept = (double)samples[i] * job->constants->divisor + job->constants->start;
        double difference = sums[i] - kept;
        sums[i] = fabs(difference) < below ? kept : sums[i];
    }
}

// Every product and sum is an integer that fits float64, so fusing them would change nothing.
ALWAYS_INLINE void sum_doubles(double sums[DOUBLE_BLOCK], const struct float_job *job, int x)
{
    const struct float_constants *constants = job->constants;
    if (constants->products) {
        sum_passes(sums, job, x);
        return;
    }
    vec_f64 sum[FLOAT_VECTORS];
    for (int v = 0; v < FLOAT_VECTORS; v++)
        sum[v] = every_f64(constants->start);
    for (int k = 0; k < constants->tap_count; k++) {
        const struct sample_tap *tap = &constants->taps[k];
        const float *at = job->rows[tap->row] + tap->column + x;
        vec_f64 coef = every_f64(tap->precise);
        for (int v = 0; v < FLOAT_VECTORS; v++)
            sum[v] += load_f32_as_f64(at + v * DOUBLE_LANES) * coef;
    }
    memcpy(sums, sum, sizeof sum);
}

ALWAYS_INLINE void round_floats(uint16_t *restrict out, const float *restrict sums,
                                const struct float_job *job, bool multiply)
{
    float divisor = (float)job->constants->divisor, factor = 1 / divisor,
          max = (float)job->stencil->max;
    for (int x = 0; x < FLOAT_BLOCK; x++) {
        float v = multiply ? sums[x] * factor : sums[x] / divisor;
        v = v > 0 ? v : 0; // NaN becomes 0
        v = v < max ? v : max;
        out[x] = (uint16_t)(int32_t)(v + INTEGER_FLOATS - INTEGER_FLOATS);
    }
}

ALWAYS_INLINE void round_doubles(uint16_t *restrict out, const double *restrict sums,
                                 const struct float_job *job)
{
    double divisor = job->constants->divisor, max = job->stencil->max;
    for (int x = 0; x < DOUBLE_BLOCK; x++) {
        double v = sums[x] / divisor;
        v = v > 0 ? v : 0;
        v = v < max ? v : max;
        out[x] = (uint16_t)(int32_t)(v + INTEGER_DOUBLES - INTEGER_DOUBLES);
    }
}

// Computes a row of results that stay floats.
static void filter_float_results(const struct float_job *job, float *row, int count)
{
    float divisor = (float)job->constants->divisor, factor = 1 / divisor;
    int block = job->constants->doubles ? DOUBLE_BLOCK : FLOAT_BLOCK;
    for (int x = 0; x < count; x += block) {
        double doubles[DOUBLE_BLOCK];
        float sums[FLOAT_BLOCK];
        if (job->constants->doubles) {
            sum_doubles(doubles, job, x);
            if (job->stencil->keeps)
                keep_doubles(doubles, job, x);
            for (int i = 0; i < DOUBLE_BLOCK; i++)
                sums[i] = (float)(doubles[i] / job->constants->divisor);
        } else {
            sum_floats(sums, job, x);
            if (job->stencil->keeps)
                keep_floats(sums, job, x);
            for (int i = 0; i < FLOAT_BLOCK; i++)
                sums[i] = job->constants->multiply ? sums[i] * factor : sums[i] / divisor;
        }
        int valid = count - x < block ? count - x : block;
        memcpy(row + x, sums, sizeof(float) * (size_t)valid);
    }
}

static void filter_block_float(uint16_t *out, const struct float_job *job, int x)
{
    float sums[FLOAT_BLOCK];
    sum_floats(sums, job, x);
    if (job->stencil->keeps)
        keep_floats(sums, job, x);
    if (job->constants->multiply)
        round_floats(out, sums, job, true);
    else
        round_floats(out, sums, job, false);
}

static void filter_block_double(uint16_t *out, const struct float_job *job, int x)
{
    double sums[DOUBLE_BLOCK];
    sum_doubles(sums, job, x);
    if (job->stencil->keeps)
        keep_doubles(sums, job, x);
    round_doubles(out, sums, job);
}

static void filter_float_row(const struct float_job *job, uint8_t *row, int count)
{
    int block = job->constants->doubles ? DOUBLE_BLOCK : FLOAT_BLOCK;
    for (int x = 0; x < count; x += block) {
        uint16_t out[FLOAT_BLOCK];
        if (job->constants->doubles)
            filter_block_double(out, job, x);
        else
            filter_block_float(out, job, x);
        int valid = count - x < block ? count - x : block;
        if (job->stencil->depth == 16) {
            memcpy(row + 2 * (size_t)x, out, 2 * (size_t)valid);
        } else if (valid == FLOAT_BLOCK) { // a constant count vectorises
            for (int i = 0; i < FLOAT_BLOCK; i++)
                row[x + i] = (uint8_t)out[i];
        } else {
            for (int i = 0; i < valid; i++)
                row[x + i] = (uint8_t)out[i];
        }
    }
}

static void fill_float_row(const struct float_job *job, float *restrict row, int x, int y,
                           int count)
{
    int line = count + job->stencil->width - 1;
    conv_cpu_line(job->line, job->stencil, job->plane, x - job->stencil->width / 2, y, line);
    if (job->stencil->depth == 16) {
        const uint16_t *restrict samples = job->line;
        for (int i = 0; i < line; i++)
            row[i] = (float)samples[i];
    } else {
        const uint8_t *restrict samples = job->line;
        for (int i = 0; i < line; i++)
            row[i] = (float)samples[i];
    }
}

// Puts the sum of rows j and height - 1 - j in the place of row j. They are integers of at most 17
// bits.
static void add_mirrored(struct float_job *job, int count)
{
    int rows = job->stencil->height, line = count + job->stencil->width - 1;
    for (int j = 0; j < rows / 2; j++) {
        const float *restrict above = job->rows[j], *restrict below = job->rows[rows - 1 - j];
        float *restrict sum = job->mirrored + j * CONV_CPU_LINE;
        for (int i = 0; i < line; i++)
            sum[i] = above[i] + below[i];
        job->rows[j] = sum;
    }
}

static void filter_float_strip(struct float_job *job, int x, int count, int from, int end)
{
    const struct conv_stencil_plane *plane = job->plane;
    int ring_rows = job->stencil->height;
    int filled = from; // ring rows so far; number k holds source row k - height / 2
    for (int y = from; y < end; y++) {
        for (; filled < y + ring_rows; filled++)
            fill_float_row(job, job->ring + filled % ring_rows * CONV_CPU_LINE, x,
                           filled - job->stencil->height / 2, count);
        for (int j = 0; j < ring_rows; j++)
            job->rows[j] = job->ring + (y + j) % ring_rows * CONV_CPU_LINE;
        job->centre = job->rows[ring_rows / 2] + job->stencil->width / 2;
        if (job->constants->mirrored)
            add_mirrored(job, count);
        if (job->constants->products)
            start_passes(job, count);
        uint8_t *row = plane->dst + y * plane->dst_stride;
        if (job->stencil->floats)
            filter_float_results(job, (float *)(void *)row + x, count);
        else
            filter_float_row(job, row + (size_t)x * (size_t)(job->stencil->depth / 8), count);
    }
}

static void init_products(struct float_constants *constants, const struct conv_stencil *stencil)
{
    struct conv_stencil_products products;
    conv_stencil_find_products(stencil, &products);
    constants->products = products.count;
    constants->sample = products.sample;
    for (int k = 0; k < products.count; k++) {
        for (int j = 0; j < stencil->height; j++)
            constants->column[k][j] = products.column[k][j];
        for (int i = 0; i < stencil->width; i++)
            constants->row[k][i] = products.row[k][i];
    }
}

static void init_float_constants(struct float_constants *constants,
                                 const struct conv_stencil *stencil,
                                 const struct conv_cpu_plan *plan)
{
    constants->doubles = plan->sums == CONV_CPU_DOUBLES;
    constants->products = 0;
    constants->mirrored = false;
    constants->multiply = conv_cpu_may_multiply(stencil);
    constants->start = stencil->exact ? (double)stencil->bias : (double)stencil->fbias;
    constants->divisor = stencil->exact ? (double)stencil->divisor : 1;
    constants->tap_count = 0;
    if (plan->products) {
        init_products(constants, stencil);
        return;
    }
    constants->mirrored = plan->mirrored;
    int taps = stencil->width * (plan->mirrored ? stencil->height / 2 + 1 : stencil->height);
    int order[CONV_FILTER_MAX_TAPS], count = 0;
    for (int i = 0; i < taps && stencil->exact; i++)
        if (stencil->icoef[i] != 0)
            order[count++] = i;
    constants->singles = count;
    if (!stencil->exact)
        count = conv_cpu_order(order, &constants->singles, stencil);
    constants->tap_count = count;
    for (int k = 0; k < count; k++) {
        struct sample_tap *tap = &constants->taps[k];
        float coef = stencil->exact ? (float)stencil->icoef[order[k]] : stencil->fcoef[order[k]];
        *tap = (struct sample_tap){order[k] % stencil->width, order[k] / stencil->width, {coef}};
        if (constants->doubles)
            tap->precise = stencil->icoef[order[k]];
    }
}

static inline void filter_floats(const struct conv_stencil *stencil,
                                 const struct float_constants *constants,
                                 const struct conv_stencil_batch *batch)
{
    struct float_job job;
    job.stencil = stencil;
    job.constants = constants;
    job.ring = batch->cpu.scratch;
    for (int k = 0; k < CONV_STENCIL_MOST_PRODUCTS; k++)
        job.sums[k] = (double *)(void *)(job.ring + (size_t)stencil->height * CONV_CPU_LINE) +
                      (size_t)k * CONV_CPU_LINE;
    job.mirrored = job.ring + (size_t)stencil->height * CONV_CPU_LINE;
    job.line = job.mirrored;
    if (constants->mirrored)
        job.line = job.mirrored + (size_t)(stencil->height / 2) * CONV_CPU_LINE;
    if (constants->products)
        job.line = job.sums[CONV_STENCIL_MOST_PRODUCTS - 1] + CONV_CPU_LINE;
    for (int p = 0; p < batch->count; p++) {
        job.plane = &batch->planes[p];
        for (int x = 0; x < job.plane->width; x += CONV_CPU_STRIP) {
            int left = job.plane->width - x;
            filter_float_strip(&job, x, left < CONV_CPU_STRIP ? left : CONV_CPU_STRIP,
                               batch->cpu.from, conv_cpu_end(batch, job.plane));
        }
    }
}
