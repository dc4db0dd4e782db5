// SPDX-License-Identifier: MIT
// The families of filter banks.
#include "filter/bank.h"

#include <math.h>
#include <string.h>

// --- banks of a few filters ---------------------------------------------------------------------

// A few small or round filters, all separable: Laws' products of lines, gradients with their
// magnitude, Laplacian of Gaussian, difference of Gaussians.

static enum conv_status fail_memory(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a filter");
}

// A filter that is one product of integers.
static enum conv_status add_product(struct conv_bank *bank, const char *label, int side,
                                    const int *column, const int *row, struct conv_err *err)
{
    struct conv_bank_filter *filter = conv_bank_add_filter(bank, side, side, 1, "%s", label);
    if (!filter)
        return fail_memory(err);
    for (int i = 0; i < side; i++) {
        filter->columns[i] = column[i];
        filter->rows[i] = row[i];
    }
    conv_bank_sum_terms(filter);
    return CONV_OK;
}

// K. I. Laws, "Textured Image Segmentation" (1980): level, edge, spot, wave, ripple. The first
// letter of a label is the column.
enum conv_status conv_bank_laws(struct conv_bank *bank, const struct conv_bank_parameters *given,
                                struct conv_err *err)
{
    static const int lines3[][5] = {{1, 2, 1}, {-1, 0, 1}, {-1, 2, -1}};
    static const int lines5[][5] = {{1, 4, 6, 4, 1},
                                    {-1, -2, 0, 2, 1},
                                    {-1, 0, 2, 0, -1},
                                    {-1, 2, 0, -2, 1},
                                    {1, -4, 6, -4, 1}};
    static const char letters[] = "LESWR";
    if (given->count && given->value[0] != 9 && given->value[0] != 25)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: Laws' banks are laws:9 (3x3) and laws:25 (5x5)", given->text);
    int side = given->count && given->value[0] == 9 ? 3 : 5;
    const int(*lines)[5] = side == 3 ? lines3 : lines5;
    enum conv_status status = conv_bank_reserve(bank, side * side, side * side, err);
    for (int u = 0; u < side; u++) {
        for (int v = 0; v < side && !status; v++) {
            char label[] = {letters[u], (char)('0' + side), letters[v], (char)('0' + side), 0};
            status = add_product(bank, label, side, lines[u], lines[v], err);
            if (!status)
                conv_bank_add_plain_map(bank);
        }
    }
    return status;
}

// x, y and magnitude; brighter to the right and below is positive, as in the filters of that name.
enum conv_status conv_bank_gradient(struct conv_bank *bank,
                                    const struct conv_bank_parameters *given, struct conv_err *err)
{
    static const int difference[] = {-1, 0, 1};
    static const int sobel[] = {1, 2, 1}, scharr[] = {3, 10, 3}, prewitt[] = {1, 1, 1};
    const int *smooth = given->text[0] == 'p' ? prewitt : given->text[1] == 'c' ? scharr : sobel;
    enum conv_status status = conv_bank_reserve(bank, 2, 3, err);
    if (!status)
        status = add_product(bank, "x", 3, smooth, difference, err);
    if (!status) {
        conv_bank_add_plain_map(bank);
        status = add_product(bank, "y", 3, difference, smooth, err);
    }
    if (!status) {
        conv_bank_add_plain_map(bank);
        conv_bank_add_map(bank, CONV_BANK_MAGNITUDE, 2, "magnitude");
    }
    return status;
}

// Where a Gaussian is cut off, in units of sigma: the rest is below 1 in 10,000. IBSI 2 (2024) cuts
// its Laplacians of Gaussian there, too.
#define CUT 4.0
#define MAX_SIGMA 7.75 // 4 * 7.75 = 31 samples on each side

static enum conv_status check_sigma(double sigma, const char *text, struct conv_err *err)
{
    if (sigma >= 0.25 && sigma <= MAX_SIGMA)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE, "%s: sigma is 0.25 to %g samples", text, MAX_SIGMA);
}

static void gaussian_of_sum_1(double *line, int half, double sigma)
{
    double sum = 0;
    conv_bank_gaussian(line, half, sigma);
    for (int i = 0; i <= 2 * half; i++)
        sum += line[i];
    for (int i = 0; i <= 2 * half; i++)
        line[i] /= sum;
}

// (x^2 + y^2 - 2 sigma^2) / sigma^4 times a Gaussian of sum 1, minus the mean, so that the sum is
// 0.
enum conv_status conv_bank_log(struct conv_bank *bank, const struct conv_bank_parameters *given,
                               struct conv_err *err)
{
    double sigma = given->value[0], variance = sigma * sigma, mean = 0;
    enum conv_status status = check_sigma(sigma, given->text, err);
    if (!status)
        status = conv_bank_reserve(bank, 1, 1, err);
    if (status)
        return status;
    int half = (int)ceil(CUT * sigma), side = 2 * half + 1;
    struct conv_bank_filter *filter = conv_bank_add_filter(bank, side, side, 3, "log %g", sigma);
    if (!filter)
        return fail_memory(err);
    double gaussian[CONV_BANK_MAX_SIDE];
    gaussian_of_sum_1(gaussian, half, sigma);
    for (int i = 0; i < side; i++) {
        double x = i - half, second = gaussian[i] * (x * x - variance) / (variance * variance);
        filter->rows[i] = second;
        filter->columns[i] = gaussian[i];
        filter->rows[side + i] = gaussian[i];
        filter->columns[side + i] = second;
        filter->rows[2 * side + i] = 1;
    }
    conv_bank_sum_terms(filter);
    for (int i = 0; i < side * side; i++)
        mean += filter->coef[i] / (side * side);
    for (int i = 0; i < side; i++)
        filter->columns[2 * side + i] = -mean;
    conv_bank_sum_terms(filter);
    conv_bank_add_plain_map(bank);
    return CONV_OK;
}

// The Gaussian of sigma 1 minus that of sigma 2, each of sum 1.
enum conv_status conv_bank_dog(struct conv_bank *bank, const struct conv_bank_parameters *given,
                               struct conv_err *err)
{
    double sigma1 = given->value[0], sigma2 = given->value[1];
    enum conv_status status = check_sigma(sigma1, given->text, err);
    if (!status)
        status = check_sigma(sigma2, given->text, err);
    if (!status)
        status = conv_bank_reserve(bank, 1, 1, err);
    if (status)
        return status;
    int half = (int)ceil(CUT * fmax(sigma1, sigma2)), side = 2 * half + 1;
    struct conv_bank_filter *filter =
        conv_bank_add_filter(bank, side, side, 2, "dog %g %g", sigma1, sigma2);
    if (!filter)
        return fail_memory(err);
    gaussian_of_sum_1(filter->rows, half, sigma1);
    gaussian_of_sum_1(filter->rows + side, half, sigma2);
    for (int i = 0; i < side; i++) {
        filter->columns[i] = filter->rows[i];
        filter->columns[side + i] = -filter->rows[side + i];
    }
    conv_bank_sum_terms(filter);
    conv_bank_add_plain_map(bank);
    return CONV_OK;
}

// --- Gabor ---------------------------------------------------------------------------------------

// Gabor filters: a Gaussian times a complex wave, at several scales and angles. The formula and the
// normalisation are those of scikit-image's gabor_kernel with bandwidth 1 (J. Daugman, 1985); its
// kernels are cut to a rectangle that depends on the angle, these to the square that holds 3 sigma
// at every angle.

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

// --- banks of texture classification ------------------------------------------------------------

// The banks of texture classification, all of 49x49, as M. Varma and A. Zisserman defined them for
// "A Statistical Approach to Texture Classification from Single Images" (2005):
//   lm      T. Leung and J. Malik (2001): 18 edges, 18 bars, 8 Laplacians of Gaussian, 4 Gaussians
//   mr8     38 filters, of which the largest over 6 angles is taken: 8 maps
//   schmid  C. Schmid (2001): 13 rings
// Every filter has mean 0 and a sum of magnitudes of 1.

#define HALF 24
#define SIDE (2 * HALF + 1)
#define ANGLES 6

static enum conv_status fail_side(struct conv_err *err)
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
        return fail_side(err);
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
        return fail_side(err);
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
        return fail_side(err);
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
            return fail_side(err);
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
