// SPDX-License-Identifier: MIT
// Gabor filters: a Gaussian times a complex wave, at several scales and angles. The formula and the
// normalisation are those of scikit-image's gabor_kernel with bandwidth 1 (J. Daugman, 1985); its
// kernels are cut to a rectangle that depends on the angle, these to the square that holds 3 sigma
// at every angle.
#include <math.h>

#include "filter/bank_build.h"

// The wave's frequency at the first scale, in cycles per sample (Manjunath and Ma, 1996, use the
// same highest frequency); each further scale divides it by the square root of 2.
#define HIGHEST_FREQUENCY 0.4
#define MAX_SCALES 6 // the seventh would need 69x69 samples
#define MAX_ANGLES 32

// With bandwidth b: sigma * frequency = sqrt(ln 2 / 2) / pi * (2^b + 1) / (2^b - 1).
static double sigma_of(double frequency)
{
    return sqrt(log(2) / 2) / M_PI * 3 / frequency;
}

// The real and the imaginary part of one filter. The Gaussian is round, so both are sums of two
// products: cos(a + b) = cos a cos b - sin a sin b, sin(a + b) = cos a sin b + sin a cos b. Both
// parts have the same rows, and so has the angle mirrored at 90 degrees, whose sign of sin a moves
// into the column: equal rows are computed once.
static enum conv_status add_pair(struct conv_bank *bank, int scale, int angle, int angles,
                                 struct conv_err *err)
{
    double frequency = HIGHEST_FREQUENCY / pow(2, scale / 2.0), sigma = sigma_of(frequency);
    double degrees = 180.0 * angle / angles;
    bool mirrored = 2 * angle > angles;
    double theta = M_PI * (mirrored ? angles - angle : angle) / angles, sign = mirrored ? -1 : 1;
    int half = (int)ceil(3 * sigma), side = 2 * half + 1;
    double gaussian[CONV_BANK_MAX_SIDE];
    conv_bank_gaussian(gaussian, half, sigma);
    for (int part = 0; part < 2; part++) {
        struct conv_bank_filter *filter = conv_bank_add_filter(
            bank, side, side, 2, "%s %d %g", part ? "imaginary" : "real", scale + 1, degrees);
        if (!filter)
            return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a filter of %dx%d", side,
                                side);
        for (int i = 0; i < side; i++) {
            double x = 2 * M_PI * frequency * cos(theta) * (i - half);
            double y = 2 * M_PI * frequency * sin(theta) * (i - half);
            double weight = gaussian[i] / (2 * M_PI * sigma * sigma);
            filter->rows[i] = gaussian[i] * cos(x);
            filter->rows[side + i] = gaussian[i] * sin(x);
            filter->columns[i] = weight * (part ? sin(y) : cos(y));
            filter->columns[side + i] = sign * weight * (part ? cos(y) : -sin(y));
        }
        conv_bank_sum_terms(filter);
    }
    conv_bank_add_map(bank, CONV_BANK_MAGNITUDE, 2, "gabor %d %g", scale + 1, degrees);
    return CONV_OK;
}

enum conv_status conv_bank_gabor(struct conv_bank *bank, const struct conv_bank_parameters *given,
                                 struct conv_err *err)
{
    int scales = (int)given->value[0], angles = (int)given->value[1];
    if (given->value[0] != scales || given->value[1] != angles || scales < 1 ||
        scales > MAX_SCALES || angles < 1 || angles > MAX_ANGLES)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: a Gabor bank has 1 to %d scales and 1 to %d angles, for example "
                            "gabor:4x8",
                            given->text, MAX_SCALES, MAX_ANGLES);
    enum conv_status status = conv_bank_reserve(bank, 2 * scales * angles, scales * angles, err);
    for (int scale = 0; scale < scales && !status; scale++)
        for (int angle = 0; angle < angles && !status; angle++)
            status = add_pair(bank, scale, angle, angles, err);
    return status;
}
