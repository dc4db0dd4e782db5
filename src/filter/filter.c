// SPDX-License-Identifier: MIT
// Properties of a filter that follow from its numbers, and the names of borders.
#include "filter/filter.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

static bool is_side(int side)
{
    return side >= 1 && side <= CONV_FILTER_MAX_SIDE && side % 2 == 1;
}

static bool is_integer(double value)
{
    return value == rint(value);
}

static bool has_integer_coefs(const struct conv_filter *filter)
{
    for (int k = 0; k < filter->width * filter->height; k++) {
        if (!is_integer(filter->coef[k]))
            return false;
    }
    return true;
}

enum conv_status conv_filter_check(const struct conv_filter *filter, struct conv_err *err)
{
    if (!is_side(filter->width) || !is_side(filter->height))
        return conv_err_format(err,
                               "a kernel of %dx%d: both sides must be odd numbers from 1 to %d",
                               filter->width, filter->height, CONV_FILTER_MAX_SIDE);
    // Each comparison is written so that a NaN fails it.
    if (filter->scale == 0 || !(fabs(filter->scale) <= CONV_FILTER_MAX_COEF))
        return conv_err_format(err, "the divisor is %g, but must be within +-%.0f and not 0",
                               filter->scale, CONV_FILTER_MAX_COEF);
    if (!(fabs(filter->offset) <= CONV_FILTER_MAX_OFFSET))
        return conv_err_format(err, "the bias is %g, but must be within +-%.0f", filter->offset,
                               CONV_FILTER_MAX_OFFSET);
    for (int k = 0; k < filter->width * filter->height; k++) {
        int row = k / filter->width + 1, column = k % filter->width + 1;
        if (!(fabs(filter->coef[k]) <= CONV_FILTER_MAX_COEF))
            return conv_err_format(err,
                                   "the coefficient in row %d, column %d is out of range (+-%.0f)",
                                   row, column, CONV_FILTER_MAX_COEF);
        // A divisor near 0 must not make coefficients of real filters overflow float32.
        if (!(fabs(filter->coef[k] / filter->scale) <= CONV_FILTER_MAX_COEF))
            return conv_err_format(
                err, "the coefficient in row %d, column %d divided by %g is out of range", row,
                column, filter->scale);
    }
    if (filter->magnitude && (filter->width != filter->height || !has_integer_coefs(filter)))
        return conv_err_format(err, "the kernel of a magnitude must be square and of integers");
    return CONV_OK;
}

bool conv_filter_is_exact(const struct conv_filter *filter)
{
    return !filter->magnitude && !filter->decimated.step && has_integer_coefs(filter) &&
           is_integer(filter->scale) && is_integer(filter->offset);
}

static void divide_by_common(int32_t *factors, int count)
{
    int32_t common = 0;
    for (int i = 0; i < count; i++)
        for (int32_t rest = factors[i]; rest;) {
            int32_t next = common % rest;
            common = rest;
            rest = next;
        }
    for (int i = 0; i < count && common; i++)
        factors[i] /= common;
}

// The row is the first that is not all 0, divided by the common divisor of its coefficients: then
// by Gauss's lemma every other row is an integer multiple of it, or there are no integer factors.
bool conv_filter_factor(const int32_t *coef, int width, int height, int32_t *column, int32_t *row)
{
    int taps = width * height, first = 0;
    while (first < taps && coef[first] == 0)
        first++;
    if (first == taps)
        return false;
    memcpy(row, &coef[first / width * width], (size_t)width * sizeof *row);
    divide_by_common(row, width);
    for (int j = 0; j < height; j++) {
        column[j] = coef[j * width + first % width] / row[first % width];
        for (int i = 0; i < width; i++)
            if ((int64_t)column[j] * row[i] != coef[j * width + i])
                return false;
    }
    return true;
}

bool conv_filter_is_separable(const struct conv_filter *filter, double *column, double *row)
{
    int32_t coef[CONV_FILTER_MAX_TAPS], down[CONV_FILTER_MAX_SIDE], across[CONV_FILTER_MAX_SIDE];
    int width = filter->width, height = filter->height;
    if (!conv_filter_is_exact(filter))
        return false;
    for (int k = 0; k < width * height; k++)
        coef[k] = (int32_t)filter->coef[k];
    if (!conv_filter_factor(coef, width, height, down, across))
        return false;
    int first = 0;
    while (down[first] == 0)
        first++;
    int sign = down[first] < 0 ? -1 : 1; // the column begins with a positive number
    for (int j = 0; column && j < height; j++)
        column[j] = (double)(down[j] * sign);
    for (int i = 0; row && i < width; i++)
        row[i] = (double)(across[i] * sign);
    return true;
}

void conv_filter_flip(struct conv_filter *filter)
{
    for (int k = 0, last = filter->width * filter->height - 1; k < last; k++, last--) {
        double coef = filter->coef[k];
        filter->coef[k] = filter->coef[last];
        filter->coef[last] = coef;
    }
    for (int k = 0; k < filter->real.taps; k++) {
        struct conv_real_tap *tap = &filter->real.tap[k];
        tap->x = -tap->x, tap->y = -tap->y;
    }
}

int conv_decimated_reach(const struct conv_decimated *decimated)
{
    return decimated->step * (decimated->radius + decimated->around);
}

double conv_filter_sum(const struct conv_filter *filter)
{
    double sum = 0;
    for (int k = 0; k < filter->width * filter->height; k++)
        sum += filter->coef[k];
    return sum;
}

// --- borders -------------------------------------------------------------------------------------

const char *const conv_alpha_names[] = {"keep", "filter", "premultiply", NULL};

// The names of the borders. The first one of a border is OpenCV's; the aliases are those of
// ImageMagick (edge, tile), libvips (copy, repeat, black), GLSL and PyTorch (clamp), SciPy
// (nearest).

static const struct border_name {
    const char *name;
    enum conv_border border;
} names[] = {
    {"replicate", CONV_BORDER_REPLICATE},    {"reflect", CONV_BORDER_REFLECT},
    {"reflect101", CONV_BORDER_REFLECT101},  {"wrap", CONV_BORDER_WRAP},
    {"constant", CONV_BORDER_CONSTANT},      {"edge", CONV_BORDER_REPLICATE},
    {"clamp", CONV_BORDER_REPLICATE},        {"nearest", CONV_BORDER_REPLICATE},
    {"copy", CONV_BORDER_REPLICATE},         {"tile", CONV_BORDER_WRAP},
    {"reflect-101", CONV_BORDER_REFLECT101}, {"repeat", CONV_BORDER_WRAP},
    {"black", CONV_BORDER_CONSTANT},
};
#define NAME_COUNT (sizeof names / sizeof names[0])

const char *conv_filter_border_name(enum conv_border border)
{
    for (size_t i = 0; i < NAME_COUNT; i++) {
        if (names[i].border == border)
            return names[i].name;
    }
    return "unknown";
}

static enum conv_status refuse(const char *text, struct conv_err *err)
{
    if (strcmp(text, "mirror") == 0)
        return conv_err_usage(err, "border 'mirror' means reflect (edge repeated) in some programs "
                                   "and reflect101 (edge not repeated) in others; say which");
    const char *nearest = conv_suggest_nearest(text, names, sizeof names[0], NAME_COUNT);
    const char *all = "replicate, reflect, reflect101, wrap, constant[:V]";
    if (nearest)
        return conv_err_usage(err, "unknown border '%.64s'; did you mean '%s'? (there are %s)",
                              text, nearest, all);
    return conv_err_usage(err, "unknown border '%.64s' (there are %s)", text, all);
}

enum conv_status conv_filter_check_border(float value, struct conv_err *err)
{
    if (value >= 0 && value <= 255 && value == (float)(int)value)
        return CONV_OK;
    return conv_err_usage(err,
                          "border 'constant:V' takes a whole number from 0 to 255 (at 16 bits it "
                          "counts 257-fold), not '%g'",
                          (double)value);
}

enum conv_status conv_filter_parse_border(enum conv_border *border, float *value, const char *text,
                                          struct conv_err *err)
{
    static const char prefix[] = "constant:";
    if (strncmp(text, prefix, sizeof prefix - 1) == 0) {
        const char *digits = text + sizeof prefix - 1;
        double number;
        if (conv_number_parse(&number, 1e30, digits, strlen(digits), NULL))
            return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_BORDER_CONSTANT,
                                   "takes a number, not '%.32s'", digits);
        *border = CONV_BORDER_CONSTANT;
        *value = (float)number;
        return CONV_OK;
    }
    for (size_t i = 0; i < NAME_COUNT; i++) {
        if (strcmp(names[i].name, text) == 0) {
            *border = names[i].border;
            *value = 0;
            return CONV_OK;
        }
    }
    return refuse(text, err);
}
