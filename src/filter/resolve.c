// SPDX-License-Identifier: MIT
// Makes filters from a text such as "emboss,blur" and the options about filters.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "filter/filter.h"
#include "filter/parametric.h"

#define MAX_ELEMENT 4096 // a path, as long as Linux takes one
#define MOST_OFFERED 3   // names in "did you mean"

// The parametric filter that an unknown name probably means, or NULL.
static const struct conv_filter_family *nearest_family(const char *name)
{
    int count;
    const struct conv_filter_family *families = conv_filter_families(&count);
    char family[32];
    snprintf(family, sizeof family, "%.*s", (int)strcspn(name, ":"), name);
    const char *near = name; // without its numbers
    if (strchr(name, ':'))
        near = conv_suggest_nearest(family, &families->name, sizeof *families, (size_t)count);
    int row = near ? conv_filter_find_family(families, count, near) : -1;
    return row < 0 ? NULL : &families[row];
}

// `before` is the family of the parametric filter before this one, or NULL: the user may have meant
// the name as a parameter of that filter.
static enum conv_status refuse_name(const char *name, const struct conv_filter_family *before,
                                    struct conv_err *err)
{
    static const char *const custom = "custom";
    int count;
    const struct conv_filter_family *family = nearest_family(name);
    if (family)
        return conv_err_usage(err, "unknown filter '%.64s'; did you mean %s, for example %s?", name,
                              family->usage, family->example);
    const struct conv_filter_builtin *rows = conv_filter_builtins(&count);
    const char *near[MOST_OFFERED];
    char offered[128] = "";
    size_t found =
        conv_suggest_all(near, MOST_OFFERED, name, &rows->name, sizeof *rows, (size_t)count);
    if (found == 0)
        found = conv_suggest_all(near, 1, name, &custom, sizeof custom, 1);
    for (size_t i = 0; i < found; i++)
        conv_text_add(offered, sizeof offered, " or ", "'%s'", near[i]);
    if (found)
        return conv_err_usage(err, "unknown filter '%.64s'; did you mean %s? (conv list shows all)",
                              name, offered);
    if (before)
        return conv_err_usage(err,
                              "'%.64s' is neither a number nor a filter; the filter before it is "
                              "written %s, for example %s",
                              name, before->usage, before->example);
    return conv_err_usage(
        err, "unknown filter '%.64s' (conv list shows all; for a file write ./%.64s)", name, name);
}

static bool has_size(const struct conv_filter *filter, int size)
{
    return size == 0 || (filter->width == size && filter->height == size);
}

static enum conv_status load_row(struct conv_filter *filter, const struct conv_filter_builtin *row,
                                 struct conv_err *err)
{
    enum conv_status status =
        conv_filter_parse_matrix(filter, row->text, strlen(row->text), row->name, err);
    filter->magnitude = row->magnitude;
    return status;
}

// Loads any other member of row's family that has the requested size.
static enum conv_status load_relative(struct conv_filter *filter,
                                      const struct conv_filter_builtin *row, int size,
                                      struct conv_err *err)
{
    int count;
    const struct conv_filter_builtin *rows = conv_filter_builtins(&count);
    char sizes[64] = "";
    conv_text_add(sizes, sizeof sizes, "", "%dx%d", filter->width, filter->height);
    for (int i = 0; i < count; i++) {
        if (strcmp(rows[i].family, row->family) != 0 || &rows[i] == row)
            continue;
        enum conv_status status = load_row(filter, &rows[i], err);
        if (status != CONV_OK || has_size(filter, size))
            return status;
        conv_text_add(sizes, sizeof sizes, ", ", "%dx%d", filter->width, filter->height);
    }
    return conv_err_hint(err, CONV_HINT_SIZE, (uint64_t)size,
                         conv_err_usage(err, "'%s' comes in %s only", row->name, sizes));
}

static enum conv_status load_builtin(struct conv_filter *filter, const char *name, int size,
                                     const struct conv_filter_family *before, struct conv_err *err)
{
    int count;
    const struct conv_filter_builtin *rows = conv_filter_builtins(&count), *row = NULL;
    for (int i = 0; i < count && !row; i++) {
        if (strcmp(rows[i].name, name) == 0)
            row = &rows[i];
    }
    if (!row)
        return refuse_name(name, before, err);
    enum conv_status status = load_row(filter, row, err);
    if (status != CONV_OK || has_size(filter, size))
        return status;
    if (strcmp(row->name, row->family) != 0) // the name itself says a size
        return conv_err_hint(err, CONV_HINT_SIZE, (uint64_t)size,
                             conv_err_usage(err, "'%s' is %dx%d; write '%s'", name, filter->width,
                                            filter->height, row->family));
    return load_relative(filter, row, size, err);
}

static bool is_path(const char *element)
{
    size_t size = strlen(element);
    return strchr(element, '/') || (size >= 4 && strcmp(element + size - 4, ".mat") == 0);
}

// Loads an element that is not built in.
static enum conv_status load_other(struct conv_filter *filter, const char *element,
                                   const struct conv_filter_settings *options, struct conv_err *err)
{
    if (is_path(element))
        return conv_filter_load(filter, element, err);
    if (conv_filter_family_of(element))
        return conv_filter_make_parametric(filter, element, err);
    if (!options->kernel)
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_DEFINE_KERNEL,
                               "the filter 'custom' needs a kernel");
    return conv_filter_parse_spec(filter, options->kernel, err);
}

static enum conv_status load_element(struct conv_filter *filter, const char *element,
                                     const struct conv_filter_family *before,
                                     const struct conv_filter_settings *options,
                                     struct conv_err *err)
{
    if (!is_path(element) && !conv_filter_family_of(element) && strcmp(element, "custom") != 0)
        return load_builtin(filter, element, options->size, before, err);
    enum conv_status status = load_other(filter, element, options, err);
    if (status == CONV_OK && !has_size(filter, options->size))
        return conv_err_hint(
            err, CONV_HINT_SIZE_OF_CUSTOM, (uint64_t)options->size,
            conv_err_usage(err, "'%.64s' is %dx%d", element, filter->width, filter->height));
    return status;
}

// With real coefficients a sum of 0 may come out as rounding noise, by which it is just as wrong to
// divide.
static bool sums_to_zero(const struct conv_filter *filter)
{
    double magnitude = 0;
    int taps = filter->width * filter->height;
    for (int k = 0; k < taps; k++)
        magnitude += fabs(filter->coef[k]);
    return fabs(conv_filter_sum(filter)) <= magnitude * taps * DBL_EPSILON;
}

static enum conv_status apply_divisor(struct conv_filter *filter, const char *text,
                                      struct conv_err *err)
{
    struct conv_err reason;
    if (strcmp(text, "sum") == 0) {
        if (sums_to_zero(filter))
            return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_DIVISOR_SUM,
                                   "the coefficients of '%s' sum to 0", filter->name);
        filter->scale = conv_filter_sum(filter);
        return CONV_OK;
    }
    if (conv_number_parse(&filter->scale, CONV_FILTER_MAX_COEF, text, strlen(text), &reason) !=
        CONV_OK)
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_DIVISOR, "%s (or write sum)",
                               reason.text);
    if (filter->scale == 0)
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_DIVISOR, "the divisor must not be 0");
    return CONV_OK;
}

static enum conv_status apply_options(struct conv_filter *filter,
                                      const struct conv_filter_settings *options,
                                      struct conv_err *err)
{
    struct conv_err reason;
    if (filter->decimated.step && (options->divisor || options->bias))
        return conv_err_hint(
            err, options->divisor ? CONV_HINT_DIVISOR : CONV_HINT_BIAS, 0,
            conv_err_usage(err, "not for '%s', which is not one kernel", filter->name));
    if (options->divisor || options->bias)
        filter->real.sigma = 0;
    if (options->flip)
        conv_filter_flip(filter);
    if (options->divisor) {
        enum conv_status status = apply_divisor(filter, options->divisor, err);
        filter->real.side = 0;
        if (status != CONV_OK)
            return status;
    }
    if (options->bias && conv_number_parse(&filter->offset, CONV_FILTER_MAX_OFFSET, options->bias,
                                           strlen(options->bias), &reason) != CONV_OK)
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_BIAS, "%s", reason.text);
    if (conv_filter_check(filter, &reason) != CONV_OK)
        return conv_err_usage(err, "filter '%s': %s", filter->name, reason.text);
    return CONV_OK;
}

enum conv_status conv_filter_parse_chain(struct conv_filter *filters, int *count, const char *text,
                                         const struct conv_filter_settings *options,
                                         struct conv_err *err)
{
    int used = 0;
    bool custom = false;
    const struct conv_filter_family *before = NULL;
    const char *at = text;
    do {
        char element[MAX_ELEMENT];
        at += strspn(at, " "); // "blur, sharpen"
        size_t length = conv_filter_element_length(at), size = length;
        while (size > 0 && at[size - 1] == ' ')
            size--;
        if (size == 0)
            return conv_err_usage(err, "filter %d of '%.64s' is empty", used + 1, text);
        if (size >= sizeof element)
            return conv_err_usage(err, "filter %d has a name of %zu characters", used + 1, size);
        if (used == CONV_FILTER_MAX_CHAIN)
            return conv_err_usage(err, "a chain of more than %d filters", CONV_FILTER_MAX_CHAIN);
        memcpy(element, at, size);
        element[size] = '\0';
        enum conv_status status = load_element(&filters[used], element, before, options, err);
        if (status == CONV_OK)
            status = apply_options(&filters[used++], options, err);
        if (status != CONV_OK)
            return status;
        custom |= strcmp(element, "custom") == 0;
        before = conv_filter_family_of(element);
        at += length;
    } while (*at++ != '\0');
    if (options->kernel && !custom)
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_KERNEL,
                               "it defines the filter 'custom', which '%.64s' does not use", text);
    *count = used;
    return CONV_OK;
}
