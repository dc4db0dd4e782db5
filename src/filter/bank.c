// SPDX-License-Identifier: MIT
// The families of filter banks, the names of banks, and what their builders share.
#include "filter/bank.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "filter/scan.h"

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
#define FAMILY_COUNT (sizeof families / sizeof families[0])

// For the family in the same row of the table above: the parameters after its name, and the
// function that builds it.
static const struct {
    int parameters; // at most
    int required;   // at least
    char separator; // between two parameters
    enum conv_status (*build)(struct conv_bank *bank, const struct conv_bank_parameters *given,
                              struct conv_err *err);
} builders[] = {
    {2, 2, 'x', conv_bank_gabor},  {0, 0, 0, conv_bank_lm},       {0, 0, 0, conv_bank_mr8},
    {0, 0, 0, conv_bank_schmid},   {1, 0, 0, conv_bank_laws},     {0, 0, 0, conv_bank_gradient},
    {0, 0, 0, conv_bank_gradient}, {0, 0, 0, conv_bank_gradient}, {1, 1, 0, conv_bank_log},
    {2, 2, ',', conv_bank_dog},
};
_Static_assert(sizeof builders / sizeof builders[0] == FAMILY_COUNT, "one builder per family");

const struct conv_filter_family *conv_bank_families(int *count)
{
    *count = (int)FAMILY_COUNT;
    return families;
}

// The row of the family whose name the text begins with, or -1.
static int find_family(const char *text)
{
    size_t length = strcspn(text, ":");
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (strlen(families[i].name) == length && memcmp(families[i].name, text, length) == 0)
            return (int)i;
    }
    return -1;
}

bool conv_bank_is_name(const char *text)
{
    return find_family(text) >= 0;
}

static enum conv_status fail_usage(const char *text, int row, struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_USAGE, "%s: this bank is written %s, for example %s", text,
                        families[row].usage, families[row].example);
}

static enum conv_status parse_parameters(struct conv_bank_parameters *given, int row,
                                         const char *text, struct conv_err *err)
{
    const char *at = strchr(text, ':');
    *given = (struct conv_bank_parameters){.text = text};
    while (at && given->count < builders[row].parameters) {
        at++; // the colon or the separator
        const char *end = at + strlen(at);
        const char *separator =
            builders[row].separator ? strchr(at, builders[row].separator) : NULL;
        if (separator)
            end = separator;
        if (conv_number_parse(&given->value[given->count], 1e6, at, (size_t)(end - at), NULL))
            return fail_usage(text, row, err);
        given->count++;
        at = separator;
    }
    if (at || given->count < builders[row].required)
        return fail_usage(text, row, err);
    return CONV_OK;
}

enum conv_status conv_bank_parse(struct conv_bank *bank, const char *text, struct conv_err *err)
{
    struct conv_bank_parameters given;
    *bank = (struct conv_bank){0};
    int row = find_family(text);
    if (row < 0) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
        const char *near =
            conv_suggest_nearest(name, &families[0].name, sizeof families[0], FAMILY_COUNT);
        return conv_err_set(err, CONV_ERR_USAGE, "no filter bank '%s'%s%s%s", text,
                            near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
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
    for (int i = 0; i < bank->filter_count; i++)
        free(bank->filters[i].coef); // and the terms after it
    free(bank->filters);
    free(bank->maps);
    *bank = (struct conv_bank){0};
}

enum conv_status conv_bank_reserve(struct conv_bank *bank, int filters, int maps,
                                   struct conv_err *err)
{
    bank->filters = calloc((size_t)filters, sizeof *bank->filters);
    bank->maps = calloc((size_t)maps, sizeof *bank->maps);
    if (!bank->filters || !bank->maps)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a bank of %d filters", filters);
    return CONV_OK;
}

struct conv_bank_filter *conv_bank_add_filter(struct conv_bank *bank, int height, int width,
                                              int terms, const char *label, ...)
{
    struct conv_bank_filter *filter = &bank->filters[bank->filter_count];
    size_t taps = (size_t)height * (size_t)width;
    size_t lines = (size_t)terms * (size_t)(height + width);
    *filter = (struct conv_bank_filter){.height = height, .width = width, .terms = terms};
    filter->coef = calloc(taps + lines, sizeof *filter->coef);
    if (!filter->coef)
        return NULL;
    if (terms) {
        filter->columns = filter->coef + taps;
        filter->rows = filter->columns + terms * height;
    }
    va_list arguments;
    va_start(arguments, label);
    vsnprintf(filter->label, sizeof filter->label, label, arguments);
    va_end(arguments);
    bank->filter_count++;
    return filter;
}

void conv_bank_add_map(struct conv_bank *bank, enum conv_bank_combine combine, int count,
                       const char *label, ...)
{
    struct conv_bank_map *map = &bank->maps[bank->map_count++];
    *map = (struct conv_bank_map){
        .combine = combine, .first = bank->filter_count - count, .count = count};
    va_list arguments;
    va_start(arguments, label);
    vsnprintf(map->label, sizeof map->label, label, arguments);
    va_end(arguments);
}

void conv_bank_add_plain_map(struct conv_bank *bank)
{
    conv_bank_add_map(bank, CONV_BANK_ONLY, 1, "%s", bank->filters[bank->filter_count - 1].label);
}

void conv_bank_sum_terms(struct conv_bank_filter *filter)
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

void conv_bank_normalise(struct conv_bank_filter *filter)
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

void conv_bank_gaussian(double *line, int half, double sigma)
{
    for (int i = -half; i <= half; i++)
        line[half + i] = exp(-(double)i * i / (2 * sigma * sigma));
}
