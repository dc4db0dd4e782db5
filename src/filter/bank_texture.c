// SPDX-License-Identifier: MIT
// The banks of texture classification, all of 49x49, as M. Varma and A. Zisserman defined them for
// "A Statistical Approach to Texture Classification from Single Images" (2005):
//   lm      T. Leung and J. Malik (2001): 18 edges, 18 bars, 8 Laplacians of Gaussian, 4 Gaussians
//   mr8     38 filters, of which the largest over 6 angles is taken: 8 maps
//   schmid  C. Schmid (2001): 13 rings
// Every filter has mean 0 and a sum of magnitudes of 1.
#include <math.h>

#include "filter/bank.h"

#define HALF 24
#define SIDE (2 * HALF + 1)
#define ANGLES 6

static enum conv_status fail_memory(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a filter of %dx%d", SIDE, SIDE);
}

// The derivative of order 0, 1 or 2 of a Gaussian density at x.
static double gaussian_derivative(double x, double sigma, int order)
{
    double variance = sigma * sigma;
    double density = exp(-x * x / (2 * variance)) / (sqrt(2 * M_PI) * sigma);
    if (order == 1)
        return -density * x / variance;
    if (order == 2)
        return density * (x * x - variance) / (variance * variance);
    return density;
}

// A derivative of the given order across a Gaussian that is three times as long as wide, turned
// counterclockwise by angle / ANGLES of half a turn.
static enum conv_status add_oriented(struct conv_bank *bank, double sigma, int order, int angle,
                                     int scale, struct conv_err *err)
{
    struct conv_bank_filter *filter = conv_bank_add_filter(
        bank, SIDE, SIDE, 0, "%s %d %d", order == 1 ? "edge" : "bar", scale, 180 * angle / ANGLES);
    if (!filter)
        return fail_memory(err);
    double c = cos(M_PI * angle / ANGLES), s = sin(M_PI * angle / ANGLES);
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
            double x = j - HALF, y = HALF - i; // y upwards
            filter->coef[i * SIDE + j] = gaussian_derivative(c * x - s * y, 3 * sigma, 0) *
                                         gaussian_derivative(s * x + c * y, sigma, order);
        }
    }
    conv_bank_normalise(filter);
    return CONV_OK;
}

static enum conv_status add_gaussian(struct conv_bank *bank, double sigma, struct conv_err *err)
{
    struct conv_bank_filter *filter =
        conv_bank_add_filter(bank, SIDE, SIDE, 2, "gaussian %.4g", sigma);
    if (!filter)
        return fail_memory(err);
    conv_bank_gaussian(filter->rows, HALF, sigma);
    conv_bank_gaussian(filter->columns, HALF, sigma);
    conv_bank_sum_terms(filter);
    conv_bank_normalise(filter);
    return CONV_OK;
}

static enum conv_status add_laplacian(struct conv_bank *bank, double sigma, struct conv_err *err)
{
    struct conv_bank_filter *filter = conv_bank_add_filter(bank, SIDE, SIDE, 3, "log %.4g", sigma);
    if (!filter)
        return fail_memory(err);
    double gaussian[SIDE];
    conv_bank_gaussian(gaussian, HALF, sigma);
    for (int i = 0; i < SIDE; i++) {
        double x = i - HALF, second = gaussian[i] * (x * x - sigma * sigma);
        filter->rows[i] = second;
        filter->columns[i] = gaussian[i];
        filter->rows[SIDE + i] = gaussian[i];
        filter->columns[SIDE + i] = second;
    }
    conv_bank_sum_terms(filter);
    conv_bank_normalise(filter);
    return CONV_OK;
}

enum conv_status conv_bank_lm(struct conv_bank *bank, const struct conv_bank_parameters *given,
                              struct conv_err *err)
{
    (void)given;
    enum conv_status status = conv_bank_reserve(bank, 48, 48, err);
    for (int i = 0; i < 48 && !status; i++) {
        if (i < 36) // 3 scales of 6 angles, edges before bars
            status = add_oriented(bank, pow(2, (i / ANGLES % 3 + 1) / 2.0), i < 18 ? 1 : 2,
                                  i % ANGLES, i / ANGLES % 3 + 1, err);
        else if (i < 44)
            status = add_laplacian(bank, (i < 40 ? 1 : 3) * pow(2, (i % 4 + 1) / 2.0), err);
        else
            status = add_gaussian(bank, pow(2, (i % 4 + 1) / 2.0), err);
        if (!status)
            conv_bank_add_plain_map(bank);
    }
    return status;
}

enum conv_status conv_bank_mr8(struct conv_bank *bank, const struct conv_bank_parameters *given,
                               struct conv_err *err)
{
    (void)given;
    enum conv_status status = conv_bank_reserve(bank, 38, 8, err);
    for (int order = 1; order <= 2; order++) {
        for (int scale = 1; scale <= 3 && !status; scale++) {
            for (int angle = 0; angle < ANGLES && !status; angle++)
                status = add_oriented(bank, pow(2, scale - 1), order, angle, scale, err);
            if (!status)
                conv_bank_add_map(bank, CONV_BANK_MAX, ANGLES, "%s %d", order == 1 ? "edge" : "bar",
                                  scale);
        }
    }
    if (!status)
        status = add_gaussian(bank, 10, err);
    if (!status) {
        conv_bank_add_plain_map(bank);
        status = add_laplacian(bank, 10, err);
    }
    if (!status)
        conv_bank_add_plain_map(bank);
    return status;
}

enum conv_status conv_bank_schmid(struct conv_bank *bank, const struct conv_bank_parameters *given,
                                  struct conv_err *err)
{
    static const struct {
        int sigma, tau;
    } rings[] = {{2, 1}, {4, 1}, {4, 2},  {6, 1},  {6, 2},  {6, 3}, {8, 1},
                 {8, 2}, {8, 3}, {10, 1}, {10, 2}, {10, 3}, {10, 4}};
    (void)given;
    enum conv_status status = conv_bank_reserve(bank, 13, 13, err);
    for (size_t k = 0; k < sizeof rings / sizeof rings[0] && !status; k++) {
        double sigma = rings[k].sigma, tau = rings[k].tau;
        struct conv_bank_filter *filter =
            conv_bank_add_filter(bank, SIDE, SIDE, 0, "ring %d %d", rings[k].sigma, rings[k].tau);
        if (!filter)
            return fail_memory(err);
        for (int i = 0; i < SIDE; i++) {
            for (int j = 0; j < SIDE; j++) {
                double r = hypot(i - HALF, j - HALF);
                filter->coef[i * SIDE + j] =
                    cos(M_PI * tau * r / sigma) * exp(-r * r / (2 * sigma * sigma));
            }
        }
        conv_bank_normalise(filter);
        conv_bank_add_plain_map(bank);
    }
    return status;
}
