// SPDX-License-Identifier: MIT
// Shared by the kernels of float32 and float64 sums (floats.h, float_passes.h).
#ifndef CONV_KERNELS_STENCIL_CPU_FLOAT_JOB_H
#define CONV_KERNELS_STENCIL_CPU_FLOAT_JOB_H

#include "kernels/stencil/cpu/cpu_internal.h"
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

#endif
