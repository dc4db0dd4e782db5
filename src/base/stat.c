// SPDX-License-Identifier: MIT
#include "base/stat.h"

#include <stdlib.h>

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
