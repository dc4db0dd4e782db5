// SPDX-License-Identifier: MIT
// The CPU rows of the variant table and what they share: which arithmetic is exact for a stencil,
// and lines of samples with the border made.
#ifndef CONV_KERNELS_CPU_CPU_H
#define CONV_KERNELS_CPU_CPU_H

#include "kernels/stencil.h"

extern const struct conv_variant conv_cpu_reference, conv_cpu_portable;
#ifdef __x86_64__
extern const struct conv_variant conv_cpu_sse41, conv_cpu_avx2, conv_cpu_avx512;
#endif

// Planes are filtered in strips of this many columns, top to bottom, so that the rows in work stay
// in the nearest caches and scratch does not grow with the picture. Half as many would fit the
// first level at more sizes but cost 30 % at 3x3: rows are then read in runs too short for the
// prefetchers.
#define CONV_CPU_STRIP 2048
// Strips are computed in blocks; no row of the table has longer ones.
#define CONV_CPU_BLOCK 256
// Samples in a line of a strip: its columns up to the end of the last block, the halo, and room
// that makes every type's lines start on a cache line.
#define CONV_CPU_LINE (CONV_CPU_STRIP + CONV_CPU_BLOCK + 64)

// --- plan.c --------------------------------------------------------------------------------------

// What sums are held in.
enum conv_cpu_sums {
    CONV_CPU_PAIRS,   // 8-bit samples, 16-bit sums, two taps at a time (pairs.h)
    CONV_CPU_FLOATS,  // real filters, and exact ones whose sums float32 holds exactly (floats.h)
    CONV_CPU_DOUBLES, // exact ones whose sums float64 holds exactly (floats.h)
    CONV_CPU_NONE,    // the reference's business
};

// The cheapest arithmetic that gives the defined bytes.
enum conv_cpu_sums conv_cpu_plan(const struct conv_stencil *stencil);

// Floats: true if a multiplication by the rounded reciprocal serves for the division.
bool conv_cpu_may_multiply(const struct conv_stencil *stencil);

// Scratch that a strip of any plane takes.
size_t conv_cpu_scratch(const struct conv_stencil *stencil, int width);

// From a 16-bit sum to a sample: up = min(max(sum, floor) - base, limit) is the clamped sum of the
// stencil plus half the divisor, up * factor >> (16 + shift) the quotient.
struct conv_cpu_rounding {
    uint16_t start; // what the sum starts with
    uint16_t floor, base, limit;
    uint16_t divisor, factor, shift; // divisor 1: factor and shift mean nothing
};

// false if 16 bits do not hold this stencil.
bool conv_cpu_rounding_init(struct conv_cpu_rounding *rounding, const struct conv_stencil *stencil);

// Two output rows y and y + 1 are made from the same pairs of source rows: an 8-bit coefficient for
// the upper source row in the low byte, for the one below in the high byte.
struct conv_cpu_pair {
    int16_t column, row;   // of the tap: 0 to width - 1, and 0, 2, 4, ... below the first row of y
    uint16_t upper, lower; // for output row y, for y + 1
};

// Each pair uses up one or more of the magnitudes of the coefficients, whose sum is at most 65535 /
// 255 for each of the two rows.
#define CONV_CPU_MAX_PAIRS 514

// Cuts the coefficients into pairs; the stencil has passed conv_cpu_rounding_init. Returns the
// count.
int conv_cpu_pairs_init(struct conv_cpu_pair pairs[CONV_CPU_MAX_PAIRS],
                        const struct conv_stencil *stencil);

// --- line.c --------------------------------------------------------------------------------------

// Writes the samples of row y at columns x to x + count - 1 to `line`, in the stencil's depth. Row
// and columns may lie anywhere outside the plane: the border is made here, and nowhere else.
void conv_cpu_line(void *line, const struct conv_stencil *stencil,
                   const struct conv_stencil_plane *plane, int x, int y, int count);

#endif
