// SPDX-License-Identifier: MIT
// Filters that are made from numbers, such as gaussian:2.5. parametric.c has their table and reads
// the numbers, ideal.c has their formulas, integer_kernel.c makes integers of those.
#ifndef CONV_FILTER_PARAMETRIC_H
#define CONV_FILTER_PARAMETRIC_H

#include "filter/filter.h"

#define CONV_PARAMETRIC_MOST 3 // numbers of one filter

// The largest sigma of a Gaussian in one pass: 15 pixels are 3 sigma.
#define CONV_PARAMETRIC_ONE_PASS 5.0

// The numbers of a filter. Those that are optional and not given are 0.
struct conv_parametric_numbers {
    double value[CONV_PARAMETRIC_MOST];
};

// What the function of a family sets: everything but the name. The numbers that it gets are within
// the ranges of the table. It fails only with CONV_ERR_USAGE, and `reason` is then the end of a
// message.
struct conv_parametric_result {
    struct conv_filter *filters; // zeros, as many as `room`
    int room, count;             // count is 1 unless the function changes it
    const char *reason;          // NULL: no failure
};
typedef void conv_parametric_build_fn(struct conv_parametric_result *result,
                                      const struct conv_parametric_numbers *given);

conv_parametric_build_fn conv_ideal_gaussian, conv_ideal_gaussian_fast, conv_ideal_blur,
    conv_ideal_unsharp, conv_ideal_sharpen, conv_ideal_motion, conv_ideal_emboss, conv_ideal_log,
    conv_ideal_dog;

// The family whose name and a colon the text begins with, or NULL.
const struct conv_filter_family *conv_filter_family_of(const char *text);

// A line of a Gaussian with the sum 1, cut off at 4 sigma or 15 pixels, whichever is less. Returns
// its side.
int conv_ideal_gaussian_line(double line[CONV_FILTER_MAX_SIDE], double sigma);

// gaussian_passes.c: sigma beyond CONV_PARAMETRIC_ONE_PASS.
void conv_gaussian_passes_make(struct conv_parametric_result *result, double sigma);

#endif
