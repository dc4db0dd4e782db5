// SPDX-License-Identifier: MIT
// Premultiplied alpha: what `--alpha premultiply` does before and after the filter.
#ifndef CONV_KERNELS_ALPHA_H
#define CONV_KERNELS_ALPHA_H

#include "image/image.h"

// colour = round_half_up(colour * alpha / max), in place. Does nothing without alpha.
void conv_alpha_multiply(const struct conv_image *image);

// colour = alpha ? min(max, round_half_up(colour * max / alpha)) : 0, in place.
void conv_alpha_divide(const struct conv_image *image);

#endif
