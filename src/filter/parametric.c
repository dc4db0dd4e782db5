// SPDX-License-Identifier: MIT
// The table of parametric filters, and how their numbers are read.
#include "filter/parametric.h"

#include <stdio.h>
#include <string.h>

#include "filter/scan.h"

static const struct conv_filter_family families[] = {
    {"gaussian", "gaussian:SIGMA", "gaussian:2.5", "Gaussian blur"},
    {"gaussian-fast", "gaussian-fast:SIGMA", "gaussian-fast:5",
     "the same with weights of 8 bits, faster on GPUs"},
    {"blur", "blur:RADIUS", "blur:4", "mean of a square"},
    {"unsharp", "unsharp:SIGMA,AMOUNT[,THRESHOLD]", "unsharp:2,0.8", "unsharp mask"},
    {"sharpen", "sharpen:AMOUNT", "sharpen:0.5", "sharpens against the 4 neighbours"},
    {"motion", "motion:LENGTH,ANGLE", "motion:9,30", "blur along a line"},
    {"emboss", "emboss:ANGLE,DEPTH", "emboss:135,0.5", "relief lit from an angle"},
    {"log", "log:SIGMA", "log:1.5", "Laplacian of Gaussian, times SIGMA squared"},
    {"dog", "dog:S1,S2", "dog:1,1.6", "difference of two Gaussians"},
};
#define FAMILY_COUNT (int)(sizeof families / sizeof families[0])

struct range {
    const char *name, *unit;
    double least, most;
};

// For the family in the same row of the table above: its parameters, and the function that builds
// it.
static const struct {
    int least, most; // numbers
    struct range ranges[CONV_PARAMETRIC_MOST];
    conv_parametric_build_fn *build;
} builders[] = {
    {1, 1, {{"SIGMA", " pixels", 0.2, 20}}, conv_ideal_gaussian},
    {1, 1, {{"SIGMA", " pixels", 0.2, CONV_PARAMETRIC_ONE_PASS}}, conv_ideal_gaussian_fast},
    {1, 1, {{"RADIUS", " pixels", 0.1, CONV_FILTER_MAX_SIDE / 2}}, conv_ideal_blur},
    {2,
     3,
     {{"SIGMA", " pixels", 0.2, CONV_PARAMETRIC_ONE_PASS},
      {"AMOUNT", "", 0.01, 10},
      {"THRESHOLD", "", 0, 255}},
     conv_ideal_unsharp},
    {1, 1, {{"AMOUNT", "", 0.01, 100}}, conv_ideal_sharpen},
    {2,
     2,
     {{"LENGTH", " pixels", 1, CONV_FILTER_MAX_SIDE}, {"ANGLE", " degrees", -360, 360}},
     conv_ideal_motion},
    {2, 2, {{"ANGLE", " degrees", -360, 360}, {"DEPTH", "", 0.01, 100}}, conv_ideal_emboss},
    {1, 1, {{"SIGMA", " pixels", 0.5, 3.75}}, conv_ideal_log},
    {2,
     2,
     {{"S1", " pixels", 0.2, CONV_PARAMETRIC_ONE_PASS},
      {"S2", " pixels", 0.2, CONV_PARAMETRIC_ONE_PASS}},
     conv_ideal_dog},
};
_Static_assert(sizeof builders / sizeof builders[0] == sizeof families / sizeof families[0],
               "one builder per family");

const struct conv_filter_family *conv_filter_families(int *count)
{
    *count = FAMILY_COUNT;
    return families;
}

// The row of the family that text names before a colon, or -1.
static int find_family(const char *text)
{
    size_t length = strcspn(text, ":");
    for (int i = 0; i < FAMILY_COUNT && text[length] == ':'; i++) {
        if (strlen(families[i].name) == length && memcmp(families[i].name, text, length) == 0)
            return i;
    }
    return -1;
}

const struct conv_filter_family *conv_filter_family_of(const char *text)
{
    int row = find_family(text);
    return row < 0 ? NULL : &families[row];
}

bool conv_filter_is_parametric(const char *text)
{
    return find_family(text) >= 0;
}

size_t conv_filter_element_length(const char *text)
{
    size_t length = strcspn(text, ",");
    while (conv_filter_is_parametric(text) && text[length] == ',') {
        const char *next = text + length + 1;
        size_t size = strcspn(next, ",");
        double number;
        if (conv_number_parse(&number, CONV_FILTER_MAX_COEF, next, size, NULL))
            break;
        length += 1 + size;
    }
    return length;
}

static enum conv_status refuse(const char *text, int row, struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_USAGE, "'%.64s': this filter is written %s, for example %s",
                        text, families[row].usage, families[row].example);
}

static enum conv_status read_numbers(struct conv_parametric_numbers *given, int row,
                                     const char *text, struct conv_err *err)
{
    int count = 0;
    *given = (struct conv_parametric_numbers){0};
    for (const char *at = strchr(text, ':'); *at; count++) {
        size_t size = strcspn(++at, ",");
        double value;
        if (count == builders[row].most ||
            conv_number_parse(&value, CONV_FILTER_MAX_COEF, at, size, NULL))
            return refuse(text, row, err);
        const struct range *range = &builders[row].ranges[count];
        if (!(value >= range->least && value <= range->most))
            return conv_err_set(err, CONV_ERR_USAGE, "'%.64s': %s is %g to %g%s, for example %s",
                                text, range->name, range->least, range->most, range->unit,
                                families[row].example);
        given->value[count] = value;
        at += size;
    }
    return count < builders[row].least ? refuse(text, row, err) : CONV_OK;
}

enum conv_status conv_filter_make_parametric(struct conv_filter *filters, int room, int *count,
                                             const char *text, struct conv_err *err)
{
    int row = find_family(text);
    struct conv_parametric_numbers given;
    enum conv_status status = read_numbers(&given, row, text, err);
    if (status)
        return status;
    struct conv_parametric_result result = {.filters = filters, .room = room, .count = 1};
    memset(filters, 0, (size_t)room * sizeof *filters);
    builders[row].build(&result, &given);
    if (result.reason)
        return conv_err_set(err, CONV_ERR_USAGE, "'%.64s': %s", text, result.reason);
    for (int i = 0; i < result.count; i++)
        snprintf(filters[i].name, sizeof filters[i].name, "%s", text);
    *count = result.count;
    return CONV_OK;
}
