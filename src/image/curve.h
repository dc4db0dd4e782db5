// SPDX-License-Identifier: MIT
// Between samples as they are stored and linear light, both of 16 bits, by tables. A table has the
// same entries on every machine: its arithmetic is +, -, *, / of doubles in one order, without
// libm.
#ifndef CONV_IMAGE_CURVE_H
#define CONV_IMAGE_CURVE_H

#include <stdint.h>

#include "image/image.h"

// The exponents 1 / gamma that a file may state.
#define CONV_CURVE_LEAST_GAMMA 10000
#define CONV_CURVE_MOST_GAMMA 1000000

struct conv_curve {
    uint32_t gamma;         // of conv_image_header
    uint16_t linear[65536]; // round(65535 f(v / 65535)) of each sample v
    uint16_t stored[65536]; // the same of the inverse function
};

// f is the function of sRGB (IEC 61966-2-1) for gamma 0, else a power with the exponent 100000 /
// gamma.
void conv_curve_make(struct conv_curve *curve, uint32_t gamma);

// Replaces the colours of an image of 16 bits; alpha stays.
void conv_curve_apply(const uint16_t table[65536], const struct conv_image *image);

#endif
