// SPDX-License-Identifier: MIT
// What the kernels of exact stencils (dots.h, passes.h) and those who feed them (strips.h) share.
#ifndef CONV_KERNELS_STENCIL_CPU_DOT_JOB_H
#define CONV_KERNELS_STENCIL_CPU_DOT_JOB_H

#include "kernels/stencil/cpu/cpu_internal.h"

// A step where it lies for the rows in work.
struct dot_tap {
    const uint8_t *at;
    uint32_t coefs[2][2];
};

// A row of sums of the first pass where it lies, and its coefficients for two output rows.
struct column_tap {
    const uint8_t *at;
    uint32_t coefs[2];
};

struct dot_job {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    struct conv_cpu_plan plan;
    bool streams; // output goes past the caches
    struct conv_cpu_rounding rounding;
    struct conv_cpu_steps steps; // of the stencil, or of its row factor
    struct dot_tap taps[CONV_CPU_MAX_STEPS];
    struct column_tap columns[CONV_FILTER_MAX_SIDE + 1];
    uint8_t *ring;          // height + 1 lines of samples or of sums, the last ones made
    size_t ring_line;       // bytes of a line there
    uint8_t *fresh;         // a line of samples on its way to sums
    uint8_t *spare;         // a line for what the last row has below it
    const uint8_t *next[2]; // source rows that the next two output rows will need
};

#endif
