// SPDX-License-Identifier: MIT
// The clock of all measurements and timeouts, and order statistics of what was measured.
#pragma once

#include <stdint.h>

// Nanoseconds of the monotonic clock; only differences are meaningful.
uint64_t conv_clock_ns(void);

// Nanoseconds of CPU time of the calling thread, which hardly depend on what else runs.
uint64_t conv_clock_thread_ns(void);

// Seconds of CPU time of all threads of this process.
double conv_clock_process_seconds(void);

// --- order statistics ----------------------------------------------------------------------------

struct conv_stat {
    double min, p25, median, p75, max;
};

// Sorts `count` >= 1 values in place. Each figure is one of the values: of an even number the
// median is the upper of the two in the middle.
struct conv_stat conv_stat_sort(double *values, int count);

// The median alone; sorts as well.
double conv_stat_median(double *values, int count);
