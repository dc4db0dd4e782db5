// SPDX-License-Identifier: MIT
#include "kernels/stencil/sample_factors.h"

#include <stdlib.h>
#include <string.h>

// In a product, the corners of any rectangle of coefficients are in proportion, so three corners
// determine the fourth, which is the centre here.
bool conv_stencil_sample_factors(const struct conv_stencil *stencil, int32_t *sample,
                                 int32_t *column, int32_t *row)
{
    int width = stencil->width, x = width / 2, y = stencil->height / 2, corner = 0;
    int taps = width * stencil->height;
    const int32_t *coef = stencil->icoef;
    if (!stencil->exact)
        return false;
    while (corner < taps && (coef[corner] == 0 || corner % width == x || corner / width == y))
        corner++;
    if (corner == taps)
        return false;
    int64_t beside = (int64_t)coef[y * width + corner % width] * coef[corner / width * width + x];
    int64_t product = beside / coef[corner], rest = coef[y * width + x] - product;
    if (beside % coef[corner] != 0 || llabs(product) > INT32_MAX || llabs(rest) > INT32_MAX ||
        rest == 0)
        return false;
    int32_t factored[CONV_FILTER_MAX_TAPS];
    memcpy(factored, coef, (size_t)taps * sizeof *coef);
    factored[y * width + x] = (int32_t)product;
    if (!conv_filter_factor(factored, width, stencil->height, column, row))
        return false;
    *sample = (int32_t)rest;
    return true;
}
