// SPDX-License-Identifier: MIT
// What can be said of a filter by looking at its numbers.
#include "filter/filter.h"

#include <math.h>
#include <stdint.h>

static bool is_side(int side)
{
    return side >= 1 && side <= CONV_FILTER_MAX_SIDE && side % 2 == 1;
}

enum conv_status conv_filter_check(const struct conv_filter *filter, struct conv_err *err)
{
    if (!is_side(filter->width) || !is_side(filter->height))
        return conv_err_set(err, CONV_ERR_FORMAT,
                            "a kernel of %dx%d: both sides must be odd numbers from 1 to %d",
                            filter->width, filter->height, CONV_FILTER_MAX_SIDE);
    // Each comparison is written so that a NaN fails it.
    if (filter->scale == 0 || !(fabs(filter->scale) <= CONV_FILTER_MAX_COEF))
        return conv_err_set(err, CONV_ERR_FORMAT,
                            "the divisor is %g, but must be within +-%.0f and not 0", filter->scale,
                            CONV_FILTER_MAX_COEF);
    if (!(fabs(filter->offset) <= CONV_FILTER_MAX_OFFSET))
        return conv_err_set(err, CONV_ERR_FORMAT, "the bias is %g, but must be within +-%.0f",
                            filter->offset, CONV_FILTER_MAX_OFFSET);
    for (int k = 0; k < filter->width * filter->height; k++) {
        int row = k / filter->width + 1, column = k % filter->width + 1;
        if (!(fabs(filter->coef[k]) <= CONV_FILTER_MAX_COEF))
            return conv_err_set(err, CONV_ERR_FORMAT,
                                "the coefficient in row %d, column %d is out of range (+-%.0f)",
                                row, column, CONV_FILTER_MAX_COEF);
        // A divisor near 0 must not take real filters out of float32.
        if (!(fabs(filter->coef[k] / filter->scale) <= CONV_FILTER_MAX_COEF))
            return conv_err_set(err, CONV_ERR_FORMAT,
                                "the coefficient in row %d, column %d divided by %g is out of "
                                "range",
                                row, column, filter->scale);
    }
    return CONV_OK;
}

static bool is_integer(double value)
{
    return value == rint(value);
}

static bool has_integer_coefs(const struct conv_filter *filter)
{
    for (int k = 0; k < filter->width * filter->height; k++) {
        if (!is_integer(filter->coef[k]))
            return false;
    }
    return true;
}

bool conv_filter_is_exact(const struct conv_filter *filter)
{
    return has_integer_coefs(filter) && is_integer(filter->scale) && is_integer(filter->offset);
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

// Index of the coefficient furthest from 0, the best conditioned one to divide by.
static int find_pivot(const struct conv_filter *filter)
{
    int pivot = 0;
    for (int k = 1; k < filter->width * filter->height; k++) {
        if (fabs(filter->coef[k]) > fabs(filter->coef[pivot]))
            pivot = k;
    }
    return pivot;
}

// True if every 2x2 minor with the pivot (not 0) vanishes: then the matrix has rank 1. Integer
// coefficients are below 2^31, so their products are exact in 64 bits.
static bool has_rank_one(const struct conv_filter *filter, int pivot, bool integers)
{
    int width = filter->width, pivot_row = pivot / width * width, pivot_column = pivot % width;
    const double *coef = filter->coef;
    // Of real ones what float32 arithmetic cannot see beside the largest is rounding.
    double tolerance = ldexp(fabs(coef[pivot]), -24);
    for (int k = 0; k < width * filter->height; k++) {
        double side = coef[pivot_row + k % width], upright = coef[k / width * width + pivot_column];
        if (integers) {
            if ((int64_t)coef[k] * (int64_t)coef[pivot] != (int64_t)side * (int64_t)upright)
                return false;
        } else if (!(fabs(coef[k] - side / coef[pivot] * upright) <= tolerance)) {
            return false;
        }
    }
    return true;
}

// The largest integer that divides all of row[0..count), not all of which are 0.
static double find_content(const double *row, int count)
{
    int64_t divisor = 0;
    for (int i = 0; i < count; i++)
        divisor = greatest_divisor(divisor, (int64_t)row[i]);
    return (double)divisor;
}

bool conv_filter_is_separable(const struct conv_filter *filter, double *column, double *row)
{
    int width = filter->width, pivot = find_pivot(filter);
    const double *coef = filter->coef, *pivot_row = coef + pivot / width * width;
    bool zero = coef[pivot] == 0, integers = has_integer_coefs(filter);
    if (!zero && !has_rank_one(filter, pivot, integers))
        return false;

    // Divided by its content the pivot's row is primitive; by Gauss's lemma every other row is an
    // integer multiple of it. Of real coefficients the factor's largest becomes +-1.
    double content = zero ? 1 : integers ? find_content(pivot_row, width) : fabs(coef[pivot]);
    double divisor = zero ? 1 : coef[pivot] / content;
    for (int i = 0; row && i < width; i++)
        row[i] = pivot_row[i] / content;
    for (int j = 0; column && j < filter->height; j++)
        column[j] = coef[j * width + pivot % width] / divisor;
    return true;
}

void conv_filter_flip(struct conv_filter *filter)
{
    for (int k = 0, last = filter->width * filter->height - 1; k < last; k++, last--) {
        double coef = filter->coef[k];
        filter->coef[k] = filter->coef[last];
        filter->coef[last] = coef;
    }
}

double conv_filter_sum(const struct conv_filter *filter)
{
    double sum = 0;
    for (int k = 0; k < filter->width * filter->height; k++)
        sum += filter->coef[k];
    return sum;
}
