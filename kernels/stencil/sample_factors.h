// SPDX-License-Identifier: MIT
// Sharpening filters as a multiple of the sample and a product of two lines.
#ifndef CONV_KERNELS_STENCIL_SAMPLE_FACTORS_H
#define CONV_KERNELS_STENCIL_SAMPLE_FACTORS_H

#include "kernels/stencil/stencil.h"

#ifdef __cplusplus
extern "C" {
#endif

// True if the coefficients of an exact stencil are integers column[j] * row[i] (of which `height`
// and `width` are filled in) except for the centre, which is *sample (not 0) more than the product.
// At least 3 x 3, where some coefficient is not 0 outside the middle row and column.
bool conv_stencil_sample_factors(const struct conv_stencil *stencil, int32_t *sample,
                                 int32_t *column, int32_t *row);

#ifdef __cplusplus
}
#endif

#endif
