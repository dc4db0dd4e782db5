// SPDX-License-Identifier: MIT
// The CPU variants and their shared parts: the choice of the arithmetic that is exact for a
// stencil, and lines of samples together with their border.
#pragma once

#include "kernels/stencil/stencil.h"

// The end of the rows of `plane` that are to be written; they begin at batch->cpu.from.
static inline int conv_cpu_end(const struct conv_stencil_batch *batch,
                               const struct conv_stencil_plane *plane)
{
    return batch->cpu.to > 0 ? batch->cpu.to : plane->height;
}

extern const struct conv_variant conv_cpu_portable;
#ifdef __x86_64__
extern const struct conv_variant conv_cpu_sse41, conv_cpu_avx2, conv_cpu_avx512, conv_cpu_vnni;
extern const struct conv_variant conv_cpu_decimated_avx2, conv_cpu_decimated_avx512;
extern const struct conv_variant conv_cpu_decimated_vnni;
extern const struct conv_variant conv_cpu_separable_vnni;
#endif
#ifdef __aarch64__
extern const struct conv_variant conv_cpu_neon, conv_cpu_neon_dot;
#endif

// Planes are filtered in strips of this many columns, top to bottom, so that the current rows stay
// in the nearest caches and scratch does not grow with the image. Narrower strips cost more at the
// ends of their rows than they save: 5 % at 512 columns, even for 31 rows.
#define CONV_CPU_STRIP 2048
// Bytes of the longest block in which any variant computes a strip.
#define CONV_CPU_BLOCK 128
// Samples in a line of a strip: its columns up to the end of the last block, the halo, and padding
// so that lines of every type start on a cache line.
#define CONV_CPU_LINE (CONV_CPU_STRIP + CONV_CPU_BLOCK + 64)
// Planes of at least this many bytes, half of a usual last level, are written past the caches. For
// smaller ones the next reader gains more from the cache (AVX-512: streaming costs 35 % at
// 2880x1800 and saves 25 % at 8192x4096). direct.h has its own limit. A build with sanitizers also
// writes smaller planes in this way: the code is the same, and checking large ones takes long.
#ifdef CONV_COMPILE_ONCE
#define CONV_CPU_STREAM_PART 64
#else
#define CONV_CPU_STREAM_PART 1
#endif
#define CONV_CPU_STREAM ((16 << 20) / CONV_CPU_STREAM_PART)

// Bytes of a row's left and right edge (direct.h): one block, or up to two, each with the halo on
// both sides. Of wide planes the row ends at CONV_CPU_ROW_END.
#define CONV_CPU_EDGES 320
#define CONV_CPU_RIGHT_EDGE 96
#define CONV_CPU_ROW_END (CONV_CPU_RIGHT_EDGE + CONV_CPU_BLOCK)
#define CONV_CPU_EDGE_LINES 8 // for a pair of output rows and the next pair: 5 + 1 + 2

// --- plan.c --------------------------------------------------------------------------------------

// The type of sums.
enum conv_cpu_sums {
    CONV_CPU_PAIRS,    // 8-bit samples, 16-bit sums, two taps at a time (dots.h)
    CONV_CPU_QUADS,    // 8-bit samples, 32-bit sums, four taps at a time (dots.h)
    CONV_CPU_WORDS,    // 16-bit samples, 32-bit sums, two taps at a time (dots.h)
    CONV_CPU_FLOATS,   // real filters, and exact ones whose sums float32 holds exactly (floats.h)
    CONV_CPU_DOUBLES,  // exact ones whose sums float64 holds exactly (floats.h)
    CONV_CPU_GRADIENT, // magnitudes of 3x3 matrices (gradient.h)
    CONV_CPU_SAMPLES,  // float32 samples (float_samples.h)
    CONV_CPU_NONE,     // only the reference can do it
};

// How an instruction set computes quads.
enum conv_cpu_quads {
    CONV_CPU_QUADS_SLOW,   // several instructions: worthwhile if the sums do not fit 16 bits
    CONV_CPU_QUADS_FAST,   // one instruction
    CONV_CPU_QUADS_SIGNED, // one instruction, on signed bytes: samples minus 128
};

struct conv_cpu_plan {
    enum conv_cpu_sums sums;
    enum conv_cpu_quads quads;
    bool narrow;    // the low 16 bits of a sum determine the sample
    bool separable; // coefficients are column[j] * row[i], computed in two passes (dots.h)
    bool plain;     // column is all ones
    bool direct;    // straight from the source rows (direct.h)
    int32_t column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    int32_t sample; // quads: the part of the centre coefficient that no tap has (dots.h)
    bool products;  // doubles in two passes (floats.h)
    bool mirrored;  // floats or doubles: rows as far above as below the centre are added first
    uint32_t lift; // added to sums of samples that were converted to signed: along the row, or over
                   // all taps
};

// Chooses the cheapest arithmetic that gives the defined samples. `pairs`: pairs are computed by
// one instruction.
void conv_cpu_plan_init(struct conv_cpu_plan *plan, const struct conv_stencil *stencil,
                        enum conv_cpu_quads quads, bool pairs);

// Real filters: fills in the places in fcoef, row by row, of the coefficients that are not 0, in
// the order in which stencil.h adds them, and returns how many there are. From number *singles on
// they are two by two, whose samples are added first.
int conv_cpu_order(int *order, int *singles, const struct conv_stencil *stencil);

// Floats: true if a multiplication by the rounded reciprocal can replace the division.
bool conv_cpu_may_multiply(const struct conv_stencil *stencil);

// Bytes of a line of samples, and of a line of sums.
size_t conv_cpu_line_bytes(const struct conv_stencil *stencil);
size_t conv_cpu_sums_bytes(const struct conv_stencil *stencil, const struct conv_cpu_plan *plan);

// The scratch that this arithmetic needs: bytes for any plane, and bytes per column.
void conv_cpu_plan_scratch(const struct conv_cpu_plan *plan, const struct conv_stencil *stencil,
                           size_t *fixed, size_t *per_column);

// --- rounding.c ----------------------------------------------------------------------------------

enum conv_cpu_division {
    CONV_CPU_BY_1_SIGNED, // 16 bits hold all sums with their sign
    CONV_CPU_BY_1,
    CONV_CPU_BY_POWER_SIGNED, // as above
    CONV_CPU_BY_POWER,
    CONV_CPU_BY_ODD_SIGNED, // as above, and one multiplication divides and rounds
    CONV_CPU_BY_ODD,
    CONV_CPU_BY_ANY,
};

// From a sum to a sample: round.h.
struct conv_cpu_rounding {
    enum conv_cpu_division division;
    uint32_t start; // initial value of a 32-bit lane
    int32_t base, limit, half, log, divisor;
    uint16_t factor, shift;
    float reciprocal;
};

// For sums modulo 2^16 of 8-bit samples; false if these are too short for the stencil.
bool conv_cpu_rounding_narrow(struct conv_cpu_rounding *rounding,
                              const struct conv_stencil *stencil);

// For sums modulo 2^32; false if these are too short for the stencil.
bool conv_cpu_rounding_wide(struct conv_cpu_rounding *rounding, const struct conv_stencil *stencil);

// --- tap_schedule.c ------------------------------------------------------------------------------

// One load of samples and what it is multiplied by: for each of two output rows y and y + 1, the
// coefficients of the lane's first output sample and of its second, packed as the lane's samples
// are.
struct conv_cpu_tap {
    int16_t column, row; // first sample of the load and its source row, from the tap (0, 0) of y
    uint32_t coefs[2][2];
};

// Pairs: each load uses up one or more of the magnitudes of the coefficients, whose sum is at most
// 65535 / 255, for one of two rows and two outputs. Quads: 32 rows by 8 columns by at most 4 loads
// for coefficients within +-254; for others, see conv_cpu_quads_count. Words: 32 rows by 16
// columns.
#define CONV_CPU_MAX_TAPS 1028

struct conv_cpu_tap_schedule {
    int upper_end, both_end, count; // first taps for y only, then for both, then for y + 1 only
    struct conv_cpu_tap taps[CONV_CPU_MAX_TAPS];
};

// Schedules the coefficients of the stencil, or those of the plan's row if it is separable.
void conv_cpu_tap_schedule_init(struct conv_cpu_tap_schedule *schedule,
                                const struct conv_stencil *stencil,
                                const struct conv_cpu_plan *plan);

// The number of taps that the stencil's coefficients become as quads, or more than
// CONV_CPU_MAX_TAPS. sample: subtracted from the coefficient at the centre first.
int conv_cpu_quads_count(const struct conv_stencil *stencil, int32_t sample);

// Packs the coefficients of two neighbouring samples as in a lane of pairs; false if one
// multiplication cannot handle both.
bool conv_cpu_tap_pack_pair(uint32_t *packed, int first, int second);

// --- line.c --------------------------------------------------------------------------------------

// Writes the samples of row y at columns x to x + count - 1 to `line`, in the stencil's depth. Row
// and columns may lie outside the plane: the border is applied here.
void conv_cpu_line(void *line, const struct conv_stencil *stencil,
                   const struct conv_stencil_plane *plane, int x, int y, int count);
