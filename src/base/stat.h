// SPDX-License-Identifier: MIT
// Order statistics of measured values.
#ifndef CONV_BASE_STAT_H
#define CONV_BASE_STAT_H

#ifdef __cplusplus
extern "C" {
#endif

struct conv_stat {
    double min, p25, median, p75, max;
};

// Sorts `count` >= 1 values in place. Each figure is one of the values: of an even number the
// median is the upper of the two in the middle.
struct conv_stat conv_stat_sort(double *values, int count);

// The median alone; sorts as well.
double conv_stat_median(double *values, int count);

#ifdef __cplusplus
}
#endif

#endif
