// SPDX-License-Identifier: MIT
// Shared by the kernels of exact stencils (dots.h, passes.h) and the code that calls them for each
// row (strips.h).
#ifndef CONV_KERNELS_STENCIL_CPU_DOT_JOB_H
#define CONV_KERNELS_STENCIL_CPU_DOT_JOB_H

#include "kernels/stencil/cpu/cpu_internal.h"

// A scheduled tap and the address of its samples for the two output rows being computed.
struct conv_cpu_dot_tap {
    const uint8_t *at;
    uint32_t coefs[2][2];
};

// A line of sums of the first pass and its coefficients for the two output rows being computed.
struct conv_cpu_column_tap {
    const uint8_t *at;
    uint32_t coefs[2];
};

// Derived once per plan.
struct conv_cpu_dot_constants {
    struct conv_cpu_rounding rounding;
    uint32_t column_coefs[CONV_FILTER_MAX_SIDE + 1][2]; // separable: by line, by output row
    struct conv_cpu_tap_schedule schedule;              // of the stencil, or of its row factor
};

// One run: the constants, and the addresses that change from row to row.
struct conv_cpu_dot_job {
    const struct conv_stencil *stencil;
    const struct conv_stencil_plane *plane;
    const struct conv_cpu_tap_schedule *schedule;
    struct conv_cpu_plan plan;
    bool streams; // output is written past the caches
    struct conv_cpu_rounding rounding;
    int upper_end, both_end, tap_count; // as in the schedule
    struct conv_cpu_dot_tap taps[CONV_CPU_MAX_TAPS];
    struct conv_cpu_column_tap columns[CONV_FILTER_MAX_SIDE + 1];
    uint8_t *ring;            // the last height + 1 lines of samples or of sums
    size_t ring_line;         // bytes of a line there
    uint8_t *fresh;           // a line of samples that becomes a line of sums
    uint8_t *spare;           // replaces the row below the last one
    int32_t keep_below;       // with plan.sample: as in the stencil
    const uint8_t *centre[2]; // the source rows of the two output rows
    const uint8_t *next[2];   // source rows that the next two output rows will need
};

#endif
