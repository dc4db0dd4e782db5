// SPDX-License-Identifier: MIT
#include "image/curve.h"

#include <math.h>

#define MOST 65535
#define LN2 0.69314718055994530942
#define SQRT_HALF 0.70710678118654752440

// x to the power y for 0 < x <= 1 and 0 < y <= 10, within 1e-13 of its value. ln by the series of
// atanh, of which 12 terms leave 1e-18 for a mantissa from sqrt(1/2) to sqrt(2); exp by Taylor's,
// of which 17 leave 1e-22 for an argument up to ln(2) / 2. frexp, floor and ldexp are exact.
static double power(double x, double y)
{
    int exponent;
    double mantissa = frexp(x, &exponent), sum = 0, result = 1;
    if (mantissa < SQRT_HALF) {
        mantissa *= 2;
        exponent--;
    }
    double t = (mantissa - 1) / (mantissa + 1);
    for (int k = 11; k >= 0; k--)
        sum = sum * t * t + 1.0 / (2 * k + 1);
    double log2 = y * (exponent + 2 * t * sum / LN2), whole = floor(log2 + 0.5);
    for (int k = 17; k > 0; k--)
        result = result * ((log2 - whole) * LN2) / k + 1;
    return ldexp(result, (int)whole);
}

static double linear_of(double stored, uint32_t gamma)
{
    if (stored == 0 || gamma)
        return stored == 0 ? 0 : power(stored, 100000.0 / gamma);
    return stored <= 0.04045 ? stored / 12.92 : power((stored + 0.055) / 1.055, 2.4);
}

static double stored_of(double linear, uint32_t gamma)
{
    if (linear == 0 || gamma)
        return linear == 0 ? 0 : power(linear, gamma / 100000.0);
    return linear <= 0.0031308 ? 12.92 * linear : 1.055 * power(linear, 1 / 2.4) - 0.055;
}

void conv_curve_make(struct conv_curve *curve, uint32_t gamma)
{
    curve->gamma = gamma;
    for (int v = 0; v <= MOST; v++) {
        double share = v / (double)MOST;
        curve->linear[v] = (uint16_t)(MOST * linear_of(share, gamma) + 0.5);
        curve->stored[v] = (uint16_t)(MOST * stored_of(share, gamma) + 0.5);
    }
}

void conv_curve_apply(const uint16_t table[65536], const struct conv_image *image)
{
    for (int c = 0; c < image->channels - image->alpha; c++) {
        for (int y = 0; y < image->height; y++) {
            uint16_t *row = (uint16_t *)(void *)(image->plane[c].data + y * image->plane[c].stride);
            for (int x = 0; x < image->width; x++)
                row[x] = table[row[x]];
        }
    }
}
