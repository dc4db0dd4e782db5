// SPDX-License-Identifier: MIT
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t conv_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t conv_clock_thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

double conv_clock_process_seconds(void)
{
    return (double)read_clock(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

// --- order statistics ----------------------------------------------------------------------------

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct conv_stat conv_stat_sort(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return (struct conv_stat){
        .min = values[0],
        .p25 = values[count / 4],
        .median = values[count / 2],
        .p75 = values[count - 1 - count / 4],
        .max = values[count - 1],
    };
}

double conv_stat_median(double *values, int count)
{
    return conv_stat_sort(values, count).median;
}
