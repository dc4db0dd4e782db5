// SPDX-License-Identifier: MIT
// The families of filter banks, the names of banks, and what their builders share.
#include "filter/bank.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "filter/parametric.h"

// --- building ------------------------------------------------------------------------------------

// Reserves room for that number of maps, and of filters of at most `side` x `side` samples and
// MAX_TERMS terms. CONV_ERR_MEMORY.
static enum conv_status reserve(struct conv_bank *bank, int filters, int side, int maps,
                                struct conv_err *err)
{
    size_t each = (size_t)side * (size_t)(side + 2 * CONV_BANK_MAX_TERMS);
    bank->filters = calloc((size_t)filters, sizeof *bank->filters);
    bank->maps = calloc((size_t)maps, sizeof *bank->maps);
    bank->memory = bank->unused = calloc((size_t)filters * each, sizeof *bank->memory);
    return bank->filters && bank->maps && bank->memory
               ? CONV_OK
               : conv_err_memory(err, "no memory for a bank of %d filters", filters);
}

// Adds a filter of zeros with `terms` terms of zeros, and its label (printf).
__attribute__((format(printf, 5, 6))) static struct conv_bank_filter *
add_filter(struct conv_bank *bank, int height, int width, int terms, const char *label, ...)
{
    struct conv_bank_filter *filter = &bank->filters[bank->filter_count++];
    *filter = (struct conv_bank_filter){.height = height, .width = width, .terms = terms};
    filter->coef = bank->unused;
    bank->unused += height * width;
    if (terms) {
        filter->columns = bank->unused;
        filter->rows = filter->columns + terms * height;
        bank->unused = filter->rows + terms * width;
    }
    va_list arguments;
    va_start(arguments, label);
    vsnprintf(filter->label, sizeof filter->label, label, arguments);
    va_end(arguments);
    return filter;
}

// Adds a map of the last `count` filters.
__attribute__((format(printf, 4, 5))) static void
add_map(struct conv_bank *bank, enum conv_bank_combine combine, int count, const char *label, ...)
{
    struct conv_bank_map *map = &bank->maps[bank->map_count++];
    *map = (struct conv_bank_map){
        .combine = combine, .first = bank->filter_count - count, .count = count};
    va_list arguments;
    va_start(arguments, label);
    vsnprintf(map->label, sizeof map->label, label, arguments);
    va_end(arguments);
}

// Adds a map of the last filter with that filter's label.
static void add_plain_map(struct conv_bank *bank)
{
    add_map(bank, CONV_BANK_ONLY, 1, "%s", bank->filters[bank->filter_count - 1].label);
}

// Sets coef to the sum of the terms.
static void sum_terms(struct conv_bank_filter *filter)
{
    for (int u = 0; u < filter->height; u++) {
        for (int v = 0; v < filter->width; v++) {
            double sum = 0;
            for (int t = 0; t < filter->terms; t++)
                sum +=
                    filter->columns[t * filter->height + u] * filter->rows[t * filter->width + v];
            filter->coef[u * filter->width + v] = sum;
        }
    }
}

// Subtracts the mean from all coefficients and divides them by the sum of their magnitudes, as
// Varma and Zisserman do with every filter of their banks. A separable filter uses its last term,
// which must be zeros, for the mean.
static void normalise(struct conv_bank_filter *filter)
{
    int taps = filter->height * filter->width;
    double mean = 0, magnitude = 0;
    for (int i = 0; i < taps; i++)
        mean += filter->coef[i] / taps;
    for (int i = 0; i < taps; i++)
        magnitude += fabs(filter->coef[i] - mean);
    for (int i = 0; i < taps; i++)
        filter->coef[i] = (filter->coef[i] - mean) / magnitude;
    if (!filter->terms)
        return;
    int last = filter->terms - 1;
    for (int u = 0; u < filter->height; u++) {
        for (int t = 0; t < last; t++)
            filter->columns[t * filter->height + u] /= magnitude;
        filter->columns[last * filter->height + u] = -mean / magnitude;
    }
    for (int v = 0; v < filter->width; v++)
        filter->rows[last * filter->width + v] = 1;
}

// exp(-x^2 / (2 sigma^2)) for x = -half to half, not normalised.
static void fill_gaussian(double *line, int half, double sigma)
{
    for (int i = -half; i <= half; i++)
        line[half + i] = exp(-(double)i * i / (2 * sigma * sigma));
}

// Parameters of a family, as many as its usage line shows.
struct parameters {
    const char *text; // the whole name, for messages
    double value[2];
    int count;
};

// --- banks of a few filters ---------------------------------------------------------------------

// A few small or round filters, all separable: Laws' products of lines, gradients with their
// magnitude, Laplacian of Gaussian, difference of Gaussians.

// A filter that is one product of integers, and its map.
static void add_product(struct conv_bank *bank, const char *label, int side, const int *column,
                        const int *row)
{
    struct conv_bank_filter *filter = add_filter(bank, side, side, 1, "%s", label);
    for (int i = 0; i < side; i++) {
        filter->columns[i] = column[i];
        filter->rows[i] = row[i];
    }
    sum_terms(filter);
    add_plain_map(bank);
}

// K. I. Laws, "Textured Image Segmentation" (1980): level, edge, spot, wave, ripple. The first
// letter of a label is the column.
static enum conv_status make_laws(struct conv_bank *bank, const struct parameters *given,
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
        return conv_err_usage(err, "%s: Laws' banks are laws:9 (3x3) and laws:25 (5x5)",
                              given->text);
    int side = given->count && given->value[0] == 9 ? 3 : 5;
    const int(*lines)[5] = side == 3 ? lines3 : lines5;
    enum conv_status status = reserve(bank, side * side, side, side * side, err);
    for (int i = 0; i < side * side && !status; i++) {
        int u = i / side, v = i % side;
        char label[] = {letters[u], (char)('0' + side), letters[v], (char)('0' + side), 0};
        add_product(bank, label, side, lines[u], lines[v]);
    }
    return status;
}

// x, y and magnitude; brighter to the right and below is positive, as in the filters of that name.
static enum conv_status make_gradient(struct conv_bank *bank, const struct parameters *given,
                                      struct conv_err *err)
{
    static const int difference[] = {-1, 0, 1};
    static const int sobel[] = {1, 2, 1}, scharr[] = {3, 10, 3}, prewitt[] = {1, 1, 1};
    const int *smooth = given->text[0] == 'p' ? prewitt : given->text[1] == 'c' ? scharr : sobel;
    enum conv_status status = reserve(bank, 2, 3, 3, err);
    if (status)
        return status;
    add_product(bank, "x", 3, smooth, difference);
    add_product(bank, "y", 3, difference, smooth);
    add_map(bank, CONV_BANK_MAGNITUDE, 2, "magnitude");
    return CONV_OK;
}

// Where a Gaussian is cut off, in units of sigma: the rest is below 1 in 10,000. IBSI 2 (2024) cuts
// its Laplacians of Gaussian there, too.
#define CUT 4.0
#define MAX_SIGMA 7.75 // 4 * 7.75 = 31 samples on each side

static enum conv_status check_sigma(double sigma, const char *text, struct conv_err *err)
{
    return sigma >= 0.25 && sigma <= MAX_SIGMA
               ? CONV_OK
               : conv_err_usage(err, "%s: sigma is 0.25 to %g samples", text, MAX_SIGMA);
}

// (x^2 + y^2 - 2 sigma^2) / sigma^4 times a Gaussian of sum 1, minus the mean, so that the sum is
// 0.
static enum conv_status make_log(struct conv_bank *bank, const struct parameters *given,
                                 struct conv_err *err)
{
    double sigma = given->value[0], variance = sigma * sigma, mean = 0;
    enum conv_status status = check_sigma(sigma, given->text, err);
    int half = (int)ceil(CUT * sigma), side = 2 * half + 1;
    if (!status)
        status = reserve(bank, 1, side, 1, err);
    if (status)
        return status;
    struct conv_bank_filter *filter = add_filter(bank, side, side, 3, "log %g", sigma);
    double gaussian[CONV_BANK_MAX_SIDE];
    conv_filter_gaussian(gaussian, half, sigma);
    for (int i = 0; i < side; i++) {
        double x = i - half, second = gaussian[i] * (x * x - variance) / (variance * variance);
        filter->rows[i] = second;
        filter->columns[i] = gaussian[i];
        filter->rows[side + i] = gaussian[i];
        filter->columns[side + i] = second;
        filter->rows[2 * side + i] = 1;
    }
    sum_terms(filter);
    for (int i = 0; i < side * side; i++)
        mean += filter->coef[i] / (side * side);
    for (int i = 0; i < side; i++)
        filter->columns[2 * side + i] = -mean;
    sum_terms(filter);
    add_plain_map(bank);
    return CONV_OK;
}

// The Gaussian of sigma 1 minus that of sigma 2, each of sum 1.
static enum conv_status make_dog(struct conv_bank *bank, const struct parameters *given,
                                 struct conv_err *err)
{
    double sigma1 = given->value[0], sigma2 = given->value[1];
    enum conv_status status = check_sigma(sigma1, given->text, err);
    if (!status)
        status = check_sigma(sigma2, given->text, err);
    int half = (int)ceil(CUT * fmax(sigma1, sigma2)), side = 2 * half + 1;
    if (!status)
        status = reserve(bank, 1, side, 1, err);
    if (status)
        return status;
    struct conv_bank_filter *filter = add_filter(bank, side, side, 2, "dog %g %g", sigma1, sigma2);
    conv_filter_gaussian(filter->rows, half, sigma1);
    conv_filter_gaussian(filter->rows + side, half, sigma2);
    for (int i = 0; i < side; i++) {
        filter->columns[i] = filter->rows[i];
        filter->columns[side + i] = -filter->rows[side + i];
    }
    sum_terms(filter);
    add_plain_map(bank);
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

static double frequency_of(int scale)
{
    return HIGHEST_FREQUENCY / pow(2, scale / 2.0);
}

// With bandwidth b: sigma * frequency = sqrt(ln 2 / 2) / pi * (2^b + 1) / (2^b - 1).
static double sigma_of(int scale)
{
    return sqrt(log(2) / 2) / M_PI * 3 / frequency_of(scale);
}

// The real and the imaginary part of one filter. The Gaussian is round, so both are sums of two
// products: cos(a + b) = cos a cos b - sin a sin b, sin(a + b) = cos a sin b + sin a cos b. Both
// parts have the same rows, and so has the angle mirrored at 90 degrees, whose sign of sin a moves
// into the column: equal rows are computed once.
static void add_pair(struct conv_bank *bank, int scale, int angle, int angles)
{
    double frequency = frequency_of(scale), sigma = sigma_of(scale);
    double degrees = 180.0 * angle / angles;
    bool mirrored = 2 * angle > angles;
    double theta = M_PI * (mirrored ? angles - angle : angle) / angles, sign = mirrored ? -1 : 1;
    int half = (int)ceil(3 * sigma), side = 2 * half + 1;
    double gaussian[CONV_BANK_MAX_SIDE];
    fill_gaussian(gaussian, half, sigma);
    for (int part = 0; part < 2; part++) {
        struct conv_bank_filter *filter = add_filter(
            bank, side, side, 2, "%s %d %g", part ? "imaginary" : "real", scale + 1, degrees);
        for (int i = 0; i < side; i++) {
            double x = 2 * M_PI * frequency * cos(theta) * (i - half);
            double y = 2 * M_PI * frequency * sin(theta) * (i - half);
            double weight = gaussian[i] / (2 * M_PI * sigma * sigma);
            filter->rows[i] = gaussian[i] * cos(x);
            filter->rows[side + i] = gaussian[i] * sin(x);
            filter->columns[i] = weight * (part ? sin(y) : cos(y));
            filter->columns[side + i] = sign * weight * (part ? cos(y) : -sin(y));
        }
        sum_terms(filter);
    }
    add_map(bank, CONV_BANK_MAGNITUDE, 2, "gabor %d %g", scale + 1, degrees);
}

static enum conv_status make_gabor(struct conv_bank *bank, const struct parameters *given,
                                   struct conv_err *err)
{
    int scales = (int)given->value[0], angles = (int)given->value[1];
    if (given->value[0] != scales || given->value[1] != angles || scales < 1 ||
        scales > MAX_SCALES || angles < 1 || angles > MAX_ANGLES)
        return conv_err_usage(
            err, "%s: a Gabor bank has 1 to %d scales and 1 to %d angles, for example gabor:4x8",
            given->text, MAX_SCALES, MAX_ANGLES);
    int most = 2 * (int)ceil(3 * sigma_of(scales - 1)) + 1;
    enum conv_status status = reserve(bank, 2 * scales * angles, most, scales * angles, err);
    for (int i = 0; i < scales * angles && !status; i++)
        add_pair(bank, i / angles, i % angles, angles);
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
static void add_oriented(struct conv_bank *bank, double sigma, int order, int angle, int scale)
{
    struct conv_bank_filter *filter = add_filter(
        bank, SIDE, SIDE, 0, "%s %d %d", order == 1 ? "edge" : "bar", scale, 180 * angle / ANGLES);
    double c = cos(M_PI * angle / ANGLES), s = sin(M_PI * angle / ANGLES);
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
            double x = j - HALF, y = HALF - i; // y upwards
            filter->coef[i * SIDE + j] = gaussian_derivative(c * x - s * y, 3 * sigma, 0) *
                                         gaussian_derivative(s * x + c * y, sigma, order);
        }
    }
    normalise(filter);
}

static void add_gaussian(struct conv_bank *bank, double sigma)
{
    struct conv_bank_filter *filter = add_filter(bank, SIDE, SIDE, 2, "gaussian %.4g", sigma);
    fill_gaussian(filter->rows, HALF, sigma);
    fill_gaussian(filter->columns, HALF, sigma);
    sum_terms(filter);
    normalise(filter);
}

static void add_laplacian(struct conv_bank *bank, double sigma)
{
    struct conv_bank_filter *filter = add_filter(bank, SIDE, SIDE, 3, "log %.4g", sigma);
    double gaussian[SIDE];
    fill_gaussian(gaussian, HALF, sigma);
    for (int i = 0; i < SIDE; i++) {
        double x = i - HALF, second = gaussian[i] * (x * x - sigma * sigma);
        filter->rows[i] = second;
        filter->columns[i] = gaussian[i];
        filter->rows[SIDE + i] = gaussian[i];
        filter->columns[SIDE + i] = second;
    }
    sum_terms(filter);
    normalise(filter);
}

static enum conv_status make_lm(struct conv_bank *bank, const struct parameters *,
                                struct conv_err *err)
{
    enum conv_status status = reserve(bank, 48, SIDE, 48, err);
    for (int i = 0; i < 48 && !status; i++) {
        if (i < 36) // 3 scales of 6 angles, edges before bars
            add_oriented(bank, pow(2, (i / ANGLES % 3 + 1) / 2.0), i < 18 ? 1 : 2, i % ANGLES,
                         i / ANGLES % 3 + 1);
        else if (i < 44)
            add_laplacian(bank, (i < 40 ? 1 : 3) * pow(2, (i % 4 + 1) / 2.0));
        else
            add_gaussian(bank, pow(2, (i % 4 + 1) / 2.0));
        add_plain_map(bank);
    }
    return status;
}

static enum conv_status make_mr8(struct conv_bank *bank, const struct parameters *,
                                 struct conv_err *err)
{
    enum conv_status status = reserve(bank, 38, SIDE, 8, err);
    if (status)
        return status;
    for (int i = 0; i < 6; i++) { // three scales of edges, then of bars
        int order = i / 3 + 1, scale = i % 3 + 1;
        for (int angle = 0; angle < ANGLES; angle++)
            add_oriented(bank, pow(2, scale - 1), order, angle, scale);
        add_map(bank, CONV_BANK_MAX, ANGLES, "%s %d", order == 1 ? "edge" : "bar", scale);
    }
    add_gaussian(bank, 10);
    add_plain_map(bank);
    add_laplacian(bank, 10);
    add_plain_map(bank);
    return CONV_OK;
}

static enum conv_status make_schmid(struct conv_bank *bank, const struct parameters *,
                                    struct conv_err *err)
{
    static const struct {
        int sigma, tau;
    } rings[] = {{2, 1}, {4, 1}, {4, 2},  {6, 1},  {6, 2},  {6, 3}, {8, 1},
                 {8, 2}, {8, 3}, {10, 1}, {10, 2}, {10, 3}, {10, 4}};
    enum conv_status status = reserve(bank, 13, SIDE, 13, err);
    for (size_t k = 0; k < sizeof rings / sizeof rings[0] && !status; k++) {
        double sigma = rings[k].sigma, tau = rings[k].tau;
        struct conv_bank_filter *filter =
            add_filter(bank, SIDE, SIDE, 0, "ring %d %d", rings[k].sigma, rings[k].tau);
        for (int i = 0; i < SIDE; i++) {
            for (int j = 0; j < SIDE; j++) {
                double r = hypot(i - HALF, j - HALF);
                filter->coef[i * SIDE + j] =
                    cos(M_PI * tau * r / sigma) * exp(-r * r / (2 * sigma * sigma));
            }
        }
        normalise(filter);
        add_plain_map(bank);
    }
    return status;
}

// --- the families --------------------------------------------------------------------------------

static const struct conv_filter_family families[] = {
    {"gabor", "gabor:SCALESxANGLES", "gabor:4x8", "Gabor: the magnitude of each complex response"},
    {"lm", "lm", "lm", "Leung and Malik: 48 filters of 49x49"},
    {"mr8", "mr8", "mr8", "Varma and Zisserman: 38 filters of 49x49, 8 maps"},
    {"schmid", "schmid", "schmid", "Schmid: 13 rotation-invariant filters of 49x49"},
    {"laws", "laws:9|25", "laws:25", "Laws: products of 3 lines of 3 taps, or of 5 lines of 5"},
    {"sobel", "sobel", "sobel", "gradient x, y and magnitude, smoothed 1 2 1"},
    {"scharr", "scharr", "scharr", "gradient x, y and magnitude, smoothed 3 10 3"},
    {"prewitt", "prewitt", "prewitt", "gradient x, y and magnitude, smoothed 1 1 1"},
    {"log", "log:SIGMA", "log:2", "Laplacian of Gaussian"},
    {"dog", "dog:SIGMA1,SIGMA2", "dog:1,1.6", "difference of two Gaussians"},
};
#define FAMILY_COUNT (int)(sizeof families / sizeof families[0])

// For the family in the same row of the table above: the parameters after its name, and the
// function that builds it.
static const struct {
    int parameters; // at most
    int required;   // at least
    char separator; // between two parameters
    enum conv_status (*build)(struct conv_bank *bank, const struct parameters *given,
                              struct conv_err *err);
} builders[] = {
    {2, 2, 'x', make_gabor},  {0, 0, 0, make_lm},       {0, 0, 0, make_mr8},
    {0, 0, 0, make_schmid},   {1, 0, 0, make_laws},     {0, 0, 0, make_gradient},
    {0, 0, 0, make_gradient}, {0, 0, 0, make_gradient}, {1, 1, 0, make_log},
    {2, 2, ',', make_dog},
};
_Static_assert(sizeof builders / sizeof builders[0] == FAMILY_COUNT, "one builder per family");

const struct conv_filter_family *conv_bank_families(int *count)
{
    *count = FAMILY_COUNT;
    return families;
}

bool conv_bank_is_name(const char *text)
{
    return conv_filter_find_family(families, FAMILY_COUNT, text) >= 0;
}

static enum conv_status fail_usage(const char *text, int row, struct conv_err *err)
{
    return conv_err_usage(err, "%s: this bank is written %s, for example %s", text,
                          families[row].usage, families[row].example);
}

static enum conv_status parse_parameters(struct parameters *given, int row, const char *text,
                                         struct conv_err *err)
{
    const char *at = strchr(text, ':');
    *given = (struct parameters){.text = text};
    for (; at && given->count < builders[row].parameters; given->count++) {
        size_t size = strcspn(++at, (char[]){builders[row].separator, '\0'});
        if (conv_number_parse(&given->value[given->count], 1e6, at, size, NULL))
            return fail_usage(text, row, err);
        at = at[size] ? at + size : NULL;
    }
    return at || given->count < builders[row].required ? fail_usage(text, row, err) : CONV_OK;
}

enum conv_status conv_bank_parse(struct conv_bank *bank, const char *text, struct conv_err *err)
{
    struct parameters given;
    *bank = (struct conv_bank){0};
    int row = conv_filter_find_family(families, FAMILY_COUNT, text);
    if (row < 0) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
        const char *near =
            conv_suggest_nearest(name, &families[0].name, sizeof families[0], FAMILY_COUNT);
        return conv_err_usage(err, "no filter bank '%s'%s%s%s", text, near ? "; did you mean " : "",
                              near ? near : "", near ? "?" : "");
    }
    enum conv_status status = parse_parameters(&given, row, text, err);
    if (!status)
        status = builders[row].build(bank, &given, err);
    if (status)
        conv_bank_free(bank);
    else
        snprintf(bank->name, sizeof bank->name, "%s", text);
    return status;
}

bool conv_bank_accepts(const char *text)
{
    struct conv_bank bank;
    bool accepted = !conv_bank_parse(&bank, text, NULL);
    conv_bank_free(&bank);
    return accepted;
}

void conv_bank_free(struct conv_bank *bank)
{
    free(bank->filters);
    free(bank->memory);
    free(bank->maps);
    *bank = (struct conv_bank){0};
}
