// SPDX-License-Identifier: MIT
// The formulas of the parametric filters, their table, and how their numbers are read. Angles are
// in degrees, counter-clockwise from the right; rows count downwards.
#include "filter/parametric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_NUMBERS 3 // of one filter
// The largest sigma of a Gaussian as a matrix: 15 pixels are 3 sigma. Of float32 samples: 19.5
// pixels are 5.1.
#define ONE_PASS 5.0
#define ONE_FLOAT_PASS 3.8
#define MOST_SIGMA 250.0 // of the others

// The numbers of a filter. One that is not given is 1 if it is a factor, which has no unit, else 0.
struct numbers {
    double value[MOST_NUMBERS];
};

// What the function of a family sets: everything but the name. The numbers that it gets are within
// the ranges of the table. It fails only with CONV_ERR_USAGE, and `reason` is then the end of a
// message.
struct result {
    struct conv_filter *filter; // zeros
    bool precise;               // only `real` is to be set, for float32 samples
    const char *reason;         // NULL: no failure
};

#define SIDE CONV_FILTER_MAX_SIDE
#define HALF (SIDE / 2)
#define CUT 4.0 // of a Gaussian, in sigma
// The same for float32 samples: what lies 5.04 sigma or more away has a weight of 2^-20, in two
// directions, so that no result is off by more than that share of the range.
#define REAL_CUT 5.04
#define REAL_SIDE CONV_REAL_MAX_SIDE
#define LEAST_PASSES 7        // taps of a line from which two passes are faster than one
#define LEAST_REAL 9          // the same for float32 samples, on a GPU, too
#define NO_TIES (1 + 0x1p-40) // no float32 sum of rational weights is halfway, where errors decide

void conv_filter_gaussian(double *line, int half, double sigma)
{
    double sum = 0;
    for (int i = -half; i <= half; i++)
        sum += line[half + i] = exp(-(double)i * i / (2 * sigma * sigma));
    for (int i = 0; i <= 2 * half; i++)
        line[i] /= sum;
}

// A line of a Gaussian with the sum 1, cut off at 4 sigma or 15 pixels, whichever is less; for
// float32 samples at 5.04 sigma or 19.5 pixels. Returns its side.
static int gaussian_line(double line[REAL_SIDE], double sigma, bool precise)
{
    double most = precise ? REAL_SIDE / 2 : HALF;
    int half = (int)fmin(most, ceil(precise ? REAL_CUT * sigma - 0.5 : CUT * sigma));
    conv_filter_gaussian(line, half, sigma);
    return 2 * half + 1;
}

// Adds a column times `factor` times the same as a row.
static void add_real(struct conv_filter *filter, const double *line, int side, double factor)
{
    struct conv_real *real = &filter->real;
    for (int i = 0; i < side; i++) {
        real->column[real->lines][i] = line[i];
        real->row[real->lines][i] = factor * line[i];
    }
    real->side = side;
    real->lines++;
}

static void make_gaussian_fast(struct result *result, const struct numbers *given)
{
    double line[REAL_SIDE];
    int side = gaussian_line(line, given->value[0], false);
    conv_integer_separable_bytes(result->filter, line, side);
    if (result->filter->width >= LEAST_REAL)
        add_real(result->filter, line, result->filter->width, NO_TIES);
}

// Float32 samples take a coarse image if lines are too short.
static void set_large(struct conv_real *real, double sigma, double gain)
{
    real->sigma = sigma > ONE_FLOAT_PASS ? sigma : 0;
    real->gain = gain;
}

// The integers that stand for the products of lines and a multiple of the sample, which is added.
static void make_integers(struct result *result, double sample, int total)
{
    struct conv_real *real = &result->filter->real;
    double matrix[CONV_FILTER_MAX_TAPS] = {0};
    int side = real->side;
    if (sample != 0)
        real->tap[real->taps++] = (struct conv_real_tap){.coef = sample};
    if (result->precise)
        return;
    for (int k = 0; k < real->lines * side * side; k++) {
        int line = k / (side * side), at = k % (side * side);
        matrix[at] += real->column[line][at / side] * real->row[line][at % side];
    }
    matrix[side * side / 2] += sample;
    conv_integer_matrix(result->filter, matrix, side, side, total);
}

static void make_matrix(struct conv_filter *filter, const double *matrix, int side)
{
    struct conv_real *real = &filter->real;
    real->side = side;
    for (int k = 0; k < side * side; k++)
        if (matrix[k] != 0)
            real->tap[real->taps++] =
                (struct conv_real_tap){k % side - side / 2, k / side - side / 2, matrix[k]};
    conv_integer_matrix(filter, matrix, side, side, 1);
}

static void make_product(struct result *result, const double *line, int side)
{
    if (!result->precise)
        conv_integer_separable(result->filter, line, side);
    add_real(result->filter, line, side, NO_TIES);
}

// The mean of a square with sides of 2 * radius + 1; a pixel that it covers in part counts in
// proportion.
static void make_blur(struct result *result, const struct numbers *given)
{
    double line[SIDE], radius = given->value[0];
    int half = (int)ceil(radius), side = 2 * half + 1;
    for (int i = 0; i < side; i++)
        line[i] = 1 / (2 * radius + 1);
    line[0] = line[side - 1] = (1 - (half - radius)) / (2 * radius + 1);
    make_product(result, line, side);
}

// The image plus AMOUNT times its difference from a Gaussian blur, where that is at least
// THRESHOLD.
static void make_unsharp(struct result *result, const struct numbers *given)
{
    double line[REAL_SIDE], amount = given->value[1];
    struct conv_filter *filter = result->filter;
    filter->threshold = amount * given->value[2];
    if (given->value[0] > ONE_PASS) {
        conv_filter_decimate(filter, given->value[0], amount);
        return;
    }
    int side = gaussian_line(line, given->value[0], result->precise);
    add_real(filter, line, side, -amount);
    make_integers(result, 1 + amount, 1);
    set_large(&filter->real, given->value[0], amount);
    // Only the centre is positive. If 32 bits hold sums of 16-bit samples, a matrix is fast.
    double magnitude = 2 * filter->coef[filter->width * filter->height / 2] - filter->scale;
    if (result->precise || filter->width < LEAST_PASSES || magnitude <= INT32_MAX / UINT16_MAX)
        return;
    struct conv_filter other = *filter;
    if (!conv_integer_sharpen(&other, line, side, amount)) {
        conv_filter_decimate(&other, given->value[0], amount);
        other.real = filter->real;
    }
    if (other.deviation <= CONV_INTEGER_LINES_DEVIATION)
        *filter = other;
}

// The image plus AMOUNT times its difference from the four neighbours.
static void make_sharpen(struct result *result, const struct numbers *given)
{
    double a = given->value[0];
    const double matrix[] = {0, -a, 0, -a, 1 + 4 * a, -a, 0, -a, 0};
    make_matrix(result->filter, matrix, 3);
}

// The mean along a line that is LENGTH pixels long: the weight of a pixel is 1 minus its distance
// from the line between the centres of its first and last pixel (as MATLAB's fspecial "motion").
static void make_motion(struct result *result, const struct numbers *given)
{
    double matrix[CONV_FILTER_MAX_TAPS], half = (given->value[0] - 1) / 2, sum = 0;
    double angle = given->value[1] * M_PI / 180, across = cos(angle), down = -sin(angle);
    for (int j = 0; j < SIDE; j++)
        for (int i = 0; i < SIDE; i++) {
            double x = i - HALF, y = j - HALF;
            double along = fmax(-half, fmin(half, x * across + y * down));
            double weight = 1 - hypot(x - along * across, y - along * down);
            matrix[j * SIDE + i] = weight > 1e-12 ? weight : 0;
            sum += matrix[j * SIDE + i];
        }
    for (int k = 0; k < CONV_FILTER_MAX_TAPS; k++)
        matrix[k] /= sum;
    make_matrix(result->filter, matrix, SIDE);
}

// The image plus DEPTH times a slope away from the light, which comes from ANGLE. The slope has
// coefficients in proportion to their pixels' distances, so that emboss:135,1 is `emboss`.
static void make_emboss(struct result *result, const struct numbers *given)
{
    double angle = given->value[0] * M_PI / 180, depth = given->value[1], matrix[9];
    double across = -sqrt(2) * cos(angle), down = sqrt(2) * sin(angle);
    for (int j = 0; j < 3; j++)
        for (int i = 0; i < 3; i++)
            matrix[j * 3 + i] = depth * ((i - 1) * across + (j - 1) * down) + (i == 1 && j == 1);
    make_matrix(result->filter, matrix, 3);
}

// The Laplacian of a Gaussian times SIGMA squared, so that its results do not fade as SIGMA grows.
// With the variance of the line instead of SIGMA squared in the second derivative, it sums to 0.
static void make_log(struct result *result, const struct numbers *given)
{
    double line[REAL_SIDE], sum[REAL_SIDE], difference[REAL_SIDE], sigma = given->value[0];
    int side = gaussian_line(line, sigma, result->precise), half = side / 2;
    double variance = 0;
    for (int i = 0; i < side; i++)
        variance += (i - half) * (i - half) * line[i];
    // With the second derivative d, d * line + line * d is half of (line + d)^2 - (line - d)^2.
    for (int i = 0; i < side; i++) {
        double second = ((i - half) * (i - half) - variance) / (sigma * sigma) * line[i];
        sum[i] = line[i] + second;
        difference[i] = line[i] - second;
    }
    add_real(result->filter, sum, side, 0.5);
    add_real(result->filter, difference, side, -0.5);
    make_integers(result, 0, 0);
}

// A Gaussian minus another one.
static void make_dog(struct result *result, const struct numbers *given)
{
    double line[2][REAL_SIDE];
    int sides[] = {gaussian_line(line[0], given->value[0], result->precise),
                   gaussian_line(line[1], given->value[1], result->precise)};
    int side = sides[0] > sides[1] ? sides[0] : sides[1];
    if (given->value[0] == given->value[1]) {
        result->reason = "S1 and S2 are equal, so that every result would be 0";
        return;
    }
    for (int k = 0; k < 2; k++) {
        double wide[REAL_SIDE] = {0};
        memcpy(wide + (side - sides[k]) / 2, line[k], (size_t)sides[k] * sizeof *wide);
        add_real(result->filter, wide, side, k ? -1 : 1);
    }
    make_integers(result, 0, 0);
}

static void make_gaussian(struct result *result, const struct numbers *given)
{
    double line[REAL_SIDE], sigma = given->value[0];
    if (sigma > ONE_PASS) {
        conv_filter_decimate(result->filter, sigma, 0);
        return;
    }
    make_product(result, line, gaussian_line(line, sigma, result->precise));
    set_large(&result->filter->real, sigma, 0);
}

// --- the table ----------------------------------------------------------------------------------

static const struct conv_filter_family families[] = {
    {"gaussian", "gaussian:SIGMA", "gaussian:2.5", "Gaussian blur"},
    {"gaussian-fast", "gaussian-fast:SIGMA", "gaussian-fast:5",
     "the same with weights of 8 bits, faster on GPUs"},
    {"blur", "blur:RADIUS", "blur:4", "mean of a square"},
    {"unsharp", "unsharp:SIGMA[,AMOUNT[,THRESHOLD]]", "unsharp:2,0.8", "unsharp mask"},
    {"sharpen", "sharpen:AMOUNT", "sharpen:0.5", "sharpens against the 4 neighbours"},
    {"motion", "motion:LENGTH[,ANGLE]", "motion:9,30", "blur along a line"},
    {"emboss", "emboss:ANGLE[,DEPTH]", "emboss:135,0.5", "relief lit from an angle"},
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
    struct range ranges[MOST_NUMBERS];
    void (*build)(struct result *result, const struct numbers *given);
} builders[] = {
    {1, 1, {{"SIGMA", " pixels", 0.2, MOST_SIGMA}}, make_gaussian},
    {1, 1, {{"SIGMA", " pixels", 0.2, ONE_PASS}}, make_gaussian_fast},
    {1, 1, {{"RADIUS", " pixels", 0.1, CONV_FILTER_MAX_SIDE / 2}}, make_blur},
    {1,
     3,
     {{"SIGMA", " pixels", 0.2, MOST_SIGMA},
      {"AMOUNT", "", 0.01, 10},
      {"THRESHOLD", " levels", 0, 255}},
     make_unsharp},
    {1, 1, {{"AMOUNT", "", 0.01, 100}}, make_sharpen},
    {1,
     2,
     {{"LENGTH", " pixels", 1, CONV_FILTER_MAX_SIDE}, {"ANGLE", " degrees", -360, 360}},
     make_motion},
    {1, 2, {{"ANGLE", " degrees", -360, 360}, {"DEPTH", "", 0.01, 100}}, make_emboss},
    {1, 1, {{"SIGMA", " pixels", 0.5, 3.75}}, make_log},
    {2, 2, {{"S1", " pixels", 0.2, ONE_PASS}, {"S2", " pixels", 0.2, ONE_PASS}}, make_dog},
};
_Static_assert(sizeof builders / sizeof builders[0] == sizeof families / sizeof families[0],
               "one builder per family");

const struct conv_filter_family *conv_filter_families(int *count)
{
    *count = FAMILY_COUNT;
    return families;
}

void conv_filter_describe_numbers(char *text, size_t size, const struct conv_filter_family *family)
{
    int row = (int)(family - families);
    *text = '\0';
    for (int i = 0; i < builders[row].most; i++) {
        const struct range *range = &builders[row].ranges[i];
        const char *end = i < builders[row].least ? ""
                          : *range->unit          ? " (default 0)"
                                                  : " (default 1)";
        conv_text_add(text, size, ", ", "%s %g to %g%s%s", range->name, range->least, range->most,
                      range->unit, end);
    }
}

int conv_filter_find_family(const struct conv_filter_family *rows, int count, const char *text)
{
    size_t length = strcspn(text, ":");
    for (int i = 0; i < count; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, text, length) == 0)
            return i;
    return -1;
}

const struct conv_filter_family *conv_filter_family_of(const char *text)
{
    int row = strchr(text, ':') ? conv_filter_find_family(families, FAMILY_COUNT, text) : -1;
    return row < 0 ? NULL : &families[row];
}

// A number between blanks, a factor also in per cent. False: it is none.
static bool read_number(double *value, const char *text, size_t size, bool is_factor)
{
    while (size > 0 && text[size - 1] == ' ')
        size--;
    bool percent = is_factor && size > 0 && text[size - 1] == '%';
    if (conv_number_parse(value, CONV_FILTER_MAX_COEF, text, size - percent, NULL))
        return false;
    *value /= percent ? 100 : 1;
    return true;
}

size_t conv_filter_element_length(const char *text)
{
    size_t length = strcspn(text, ",");
    while (conv_filter_family_of(text) && text[length] == ',') {
        const char *next = text + length + 1;
        size_t size = strcspn(next, ",");
        double number;
        if (!read_number(&number, next, size, true))
            break;
        length += 1 + size;
    }
    return length;
}

static enum conv_status refuse(const char *text, int row, struct conv_err *err)
{
    return conv_err_usage(err, "'%.64s': this filter is written %s, for example %s", text,
                          families[row].usage, families[row].example);
}

static enum conv_status read_numbers(struct numbers *given, int row, const char *text,
                                     struct conv_err *err)
{
    int count = 0;
    for (int i = 0; i < MOST_NUMBERS; i++)
        given->value[i] = builders[row].ranges[i].unit && !*builders[row].ranges[i].unit;
    for (const char *at = strchr(text, ':'); *at; count++) {
        size_t size = strcspn(++at, ",");
        double value;
        const struct range *range = &builders[row].ranges[count];
        if (count == builders[row].most || !read_number(&value, at, size, !range->unit[0]))
            return refuse(text, row, err);
        if (!(value >= range->least && value <= range->most))
            return conv_err_usage(err, "'%.64s': %s is %g to %g%s, for example %s", text,
                                  range->name, range->least, range->most, range->unit,
                                  families[row].example);
        given->value[count] = value;
        at += size;
    }
    return count < builders[row].least ? refuse(text, row, err) : CONV_OK;
}

enum conv_status conv_filter_make_parametric(struct conv_filter *filter, const char *text,
                                             struct conv_err *err)
{
    int row = conv_filter_find_family(families, FAMILY_COUNT, text);
    struct numbers given;
    enum conv_status status = read_numbers(&given, row, text, err);
    if (status)
        return status;
    struct result result = {.filter = filter};
    *filter = (struct conv_filter){0};
    builders[row].build(&result, &given);
    if (result.reason)
        return conv_err_usage(err, "'%.64s': %s", text, result.reason);
    if (filter->real.lines) {
        struct conv_filter precise = {0};
        builders[row].build(&(struct result){.filter = &precise, .precise = true}, &given);
        filter->real = precise.real;
    }
    snprintf(filter->name, sizeof filter->name, "%s", text);
    return CONV_OK;
}
