// SPDX-License-Identifier: MIT
// Matrices as sums of up to two products of integer lines: differences of Gaussians, Laplacians of
// Gaussians, sharpening filters, and any other matrix of rank 1 or 2.
#ifndef CONV_KERNELS_STENCIL_PRODUCTS_H
#define CONV_KERNELS_STENCIL_PRODUCTS_H

#include "kernels/stencil/stencil.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONV_STENCIL_MOST_PRODUCTS 2

struct conv_stencil_products {
    int count; // 1 or 2
    int32_t column[CONV_STENCIL_MOST_PRODUCTS][CONV_FILTER_MAX_SIDE];
    int32_t row[CONV_STENCIL_MOST_PRODUCTS][CONV_FILTER_MAX_SIDE];
    int32_t sample; // the rest of the centre coefficient beside the products
    // The sum over all terms' coefficients; at least that of the matrix, since terms can cancel
    // each other.
    double magnitude;
};

// True if the coefficients of an exact stencil are the sum of column[j] * row[i] over the products,
// with `sample` more in the centre. False also for a matrix of zeros, and if a number does not fit.
bool conv_stencil_find_products(const struct conv_stencil *stencil,
                                struct conv_stencil_products *products);

// True if the coefficients of an exact stencil are integers column[j] * row[i] (of which `height`
// and `width` are filled in) except for the centre, which is *sample (not 0) more than the product.
// At least 3 x 3, where some coefficient is not 0 outside the middle row and column.
bool conv_stencil_sample_factors(const struct conv_stencil *stencil, int32_t *sample,
                                 int32_t *column, int32_t *row);

#ifdef __cplusplus
}
#endif

#endif
