// SPDX-License-Identifier: MIT
// Exact stencils that are a sum of one or two products of lines, with sums of float64: for each
// output row, a line of sums down the columns per product, then sums along these lines. Every
// product and sum is an integer that fits float64 (plan.c), so the order does not matter. At 31x31
// that is 62 or 124 multiplications instead of 961. The columns come first, since the lines then
// stay in the nearest cache: with the rows first there would be 31 lines of sums per product, of 8
// bytes per sample.
#ifndef CONV_KERNELS_STENCIL_CPU_FLOAT_PASSES_H
#define CONV_KERNELS_STENCIL_CPU_FLOAT_PASSES_H

#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/cpu/vector.h"
#include "kernels/stencil/products.h"

struct float_tap {
    int column, row;
    float coef;
};

// Derived once per plan.
struct float_constants {
    bool doubles;
    bool multiply;         // by 1 / divisor
    double start, divisor; // divisor 1 for real filters: the coefficients include the scale
    int tap_count;
    int down_count; // magnitudes: the transposed matrix has this many taps, after the others
    struct float_tap taps[CONV_FILTER_MAX_TAPS]; // those that are not 0, row by row
    double coefs[CONV_FILTER_MAX_TAPS];          // of the same taps
    bool mirrored;                               // taps of the upper half and the middle row only
    int products; // doubles in two passes: the number of products; else 0, and there are taps
    double column[CONV_STENCIL_MOST_PRODUCTS][CONV_FILTER_MAX_SIDE];
    double row[CONV_STENCIL_MOST_PRODUCTS][CONV_FILTER_MAX_SIDE];
    double sample; // the rest of the centre coefficient beside the products
};

struct float_job {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    const struct float_constants *constants;
    const float *at[CONV_FILTER_MAX_TAPS]; // each tap's samples for the current row
    const float *centre;                   // the samples themselves, for the current row
    float *ring;                           // height rows of CONV_CPU_LINE floats
    float *mirrored;                       // height / 2 sums of two of them, for the current row
    void *line;
    double *sums[CONV_STENCIL_MOST_PRODUCTS]; // products: CONV_CPU_LINE sums down the columns
    const float *rows[CONV_FILTER_MAX_SIDE];  // products: the ring's rows, topmost first
};

#define PASS_LANES (VECTOR / (int)sizeof(double))
#define PASS_VECTORS 8 // of sums; enough to hide the latency of an addition
_Static_assert(PASS_VECTORS *VECTOR <= CONV_CPU_BLOCK * (int)sizeof(double), "a block fits");

ALWAYS_INLINE vec_f64 load_f64(const double *p)
{
    vec_f64 v;
    memcpy(&v, p, sizeof v);
    return v;
}

// The first pass: columns 0 to `count` - 1, rounded up to blocks.
ALWAYS_INLINE void sum_down(const struct float_job *job, int count, int products)
{
    const struct float_constants *constants = job->constants;
    const int vectors = PASS_VECTORS / products, height = job->stencil->height;
    for (int x = 0; x < count; x += vectors * PASS_LANES) {
        vec_f64 sum[CONV_STENCIL_MOST_PRODUCTS][PASS_VECTORS] = {0};
        for (int j = 0; j < height; j++) {
            for (int v = 0; v < vectors; v++) {
                vec_f64 sample = load_f32_as_f64(job->rows[j] + x + v * PASS_LANES);
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
        sum[v] = load_f32_as_f64(job->centre + x + v * PASS_LANES) * constants->sample +
                 constants->start;
    for (int i = 0; i < width; i++)
        for (int k = 0; k < products; k++) {
            const double *at = job->sums[k] + x + i;
            for (int v = 0; v < PASS_VECTORS; v++)
                sum[v] += load_f64(at + v * PASS_LANES) * constants->row[k][i];
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

#endif
