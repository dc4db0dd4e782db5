// SPDX-License-Identifier: MIT
// Filters that are made from numbers, such as gaussian:2.5. parametric.c has their formulas and
// reads the numbers, integer_kernel.c makes integers of those.
#pragma once

#include "filter/filter.h"

// --- integer_kernel.c ----------------------------------------------------------------------------

// From the real coefficients of an ideal filter to the integers that define it. All results are
// deterministic: comparisons leave room for the last bits of exp and cos.

#define CONV_INTEGER_MAX_SIDE 127

// Integers that stand for a symmetric line whose sum is 1.
struct conv_integer_line {
    int side;                            // odd
    int32_t coef[CONV_INTEGER_MAX_SIDE]; // their sum is the scale
    int32_t scale;
    double error; // sum of |coef / scale - ideal|
};

// Sets matrix, scale and deviation of a filter whose ideal is `ideal` as a column times the same as
// a row. The integers of both are the same, so that rows and columns are treated alike: with the
// scale that has the smallest error and keeps every coefficient within 254 and the sums of 8-bit
// samples within 32 bits. If the result could be off by more than CONV_INTEGER_LINES_DEVIATION,
// coefficients may exceed 254, which makes kernels slower.
void conv_integer_separable(struct conv_filter *filter, const double *ideal, int side);

// The same with one scale for both lines: the largest power of two up to 256 that keeps every
// coefficient within 127. The line becomes the filter's, of these divided by the scale.
void conv_integer_separable_bytes(struct conv_filter *filter, double *ideal, int side);

// The image plus `amount` times its difference from the blur of such a line: the column times the
// row, negative, of the scale s; the divisor d is the integer nearest to s * s / amount, and d + s
// * s is added at the centre. False if results could be off by more than
// CONV_INTEGER_LINES_DEVIATION, which a large amount causes.
bool conv_integer_sharpen(struct conv_filter *filter, const double *ideal, int side, double amount);

// Sets matrix, scale and deviation of a filter whose ideal is the matrix, of the integer sum
// `total`. The scale is the first from 1 to 512 with which all coefficients are integers; else the
// first power of two with which no result is off by more than CONV_INTEGER_DEVIATION and float32
// holds every sum; else the odd number up to 32767 that fulfils the same conditions with the
// smallest deviation; else the first power of two with which sums have 32 bits. The centre is
// adjusted so that the sum is exact. Rows and columns of zeros around it are cut off. 32 bits must
// hold the sums of 8-bit samples at a scale of 65536.
void conv_integer_matrix(struct conv_filter *filter, const double *ideal, int width, int height,
                         int total);

// Sets matrix, scale, decimated and deviation: a Gaussian of 3 to 250 pixels; with an amount the
// sample plus `amount` times its difference from that. The deviation is proven for every image and
// border, from the integers: the step is the largest with which it is within
// CONV_INTEGER_LINES_DEVIATION, else the one with the smallest deviation.
void conv_filter_decimate(struct conv_filter *filter, double sigma, double amount);

// The row whose name the text, or what is before a colon, is; -1: there is none.
int conv_filter_find_family(const struct conv_filter_family *rows, int count, const char *text);

// Sets line[0 .. 2 * half] to a Gaussian of the sum 1.
void conv_filter_gaussian(double *line, int half, double sigma);

// The most by which results of the integers may differ from the ideal ones, before rounding, on any
// 8-bit image. After rounding they differ by less than 1.
#define CONV_INTEGER_DEVIATION 0.49
// For a column times a row, whose scales are small, and with a step. They differ by at most 1 from
// rounded ones.
#define CONV_INTEGER_LINES_DEVIATION 0.75
