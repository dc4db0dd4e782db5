// SPDX-License-Identifier: MIT
// The formulas of the parametric filters, their table, and how their numbers are read. Angles are
// in degrees, counter-clockwise from the right; rows count downwards.
#include "filter/parametric.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter/scan.h"

#define MOST_NUMBERS 3 // of one filter
// The largest sigma of a Gaussian in one pass: 15 pixels are 3 sigma.
#define ONE_PASS 5.0

// The numbers of a filter. One that is not given is 1 if it is a factor, which has no unit, else 0.
struct numbers {
    double value[MOST_NUMBERS];
};

// What the function of a family sets: everything but the name. The numbers that it gets are within
// the ranges of the table. It fails only with CONV_ERR_USAGE, and `reason` is then the end of a
// message.
struct result {
    struct conv_filter *filters; // zeros, as many as `room`
    int room, count;             // count is 1 unless the function changes it
    const char *reason;          // NULL: no failure
};

#define SIDE CONV_FILTER_MAX_SIDE
#define HALF (SIDE / 2)
#define CUT 4.0        // of a Gaussian, in sigma
#define LEAST_PASSES 7 // taps of a line from which two passes are faster than one

// A line of a Gaussian with the sum 1, cut off at 4 sigma or 15 pixels, whichever is less. Returns
// its side.
static int gaussian_line(double line[SIDE], double sigma)
{
    int half = (int)fmin(HALF, ceil(CUT * sigma)), side = 2 * half + 1;
    double sum = 0;
    for (int i = 0; i < side; i++) {
        double x = i - half;
        line[i] = exp(-x * x / (2 * sigma * sigma));
        sum += line[i];
    }
    for (int i = 0; i < side; i++)
        line[i] /= sum;
    return side;
}

static void make_gaussian_fast(struct result *result, const struct numbers *given)
{
    double line[SIDE];
    int side = gaussian_line(line, given->value[0]);
    conv_integer_separable_bytes(result->filters, line, side);
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
    conv_integer_separable(result->filters, line, side);
}

// True if 32 bits hold its sums of 16-bit samples, so that a matrix is fast at every depth.
static bool has_small_sums(const struct conv_filter *filter)
{
    double sum = 0;
    for (int i = 0; i < filter->width * filter->height; i++)
        sum += fabs(filter->coef[i]);
    return sum <= INT32_MAX / UINT16_MAX;
}

// The image plus AMOUNT times its difference from a Gaussian blur, where that is at least
// THRESHOLD.
static void make_unsharp(struct result *result, const struct numbers *given)
{
    double line[SIDE], matrix[CONV_FILTER_MAX_TAPS], amount = given->value[1];
    int side = gaussian_line(line, given->value[0]);
    struct conv_filter *filter = result->filters;
    filter->threshold = amount * given->value[2];
    for (int j = 0; j < side; j++)
        for (int i = 0; i < side; i++)
            matrix[j * side + i] = -amount * line[j] * line[i];
    matrix[side * side / 2] += 1 + amount;
    conv_integer_matrix(filter, matrix, side, side, 1);
    if (filter->width < LEAST_PASSES || has_small_sums(filter))
        return;
    struct conv_filter passes = *filter;
    if (conv_integer_sharpen(&passes, line, side, amount))
        *filter = passes;
}

// The image plus AMOUNT times its difference from the four neighbours.
static void make_sharpen(struct result *result, const struct numbers *given)
{
    double a = given->value[0];
    const double matrix[] = {0, -a, 0, -a, 1 + 4 * a, -a, 0, -a, 0};
    conv_integer_matrix(result->filters, matrix, 3, 3, 1);
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
    conv_integer_matrix(result->filters, matrix, SIDE, SIDE, 1);
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
    conv_integer_matrix(result->filters, matrix, 3, 3, 1);
}

// The Laplacian of a Gaussian times SIGMA squared, so that its results do not fade as SIGMA grows.
// With the variance of the line instead of SIGMA squared in the second derivative, it sums to 0.
static void make_log(struct result *result, const struct numbers *given)
{
    double line[SIDE], second[SIDE], matrix[CONV_FILTER_MAX_TAPS], sigma = given->value[0];
    int side = gaussian_line(line, sigma), half = side / 2;
    double variance = 0;
    for (int i = 0; i < side; i++)
        variance += (i - half) * (i - half) * line[i];
    for (int i = 0; i < side; i++)
        second[i] = ((i - half) * (i - half) - variance) / (sigma * sigma) * line[i];
    for (int j = 0; j < side; j++)
        for (int i = 0; i < side; i++)
            matrix[j * side + i] = second[j] * line[i] + line[j] * second[i];
    conv_integer_matrix(result->filters, matrix, side, side, 0);
}

// A Gaussian minus another one.
static void make_dog(struct result *result, const struct numbers *given)
{
    double line[2][SIDE], matrix[CONV_FILTER_MAX_TAPS];
    int sides[2];
    for (int k = 0; k < 2; k++)
        sides[k] = gaussian_line(line[k], given->value[k]);
    int side = sides[0] > sides[1] ? sides[0] : sides[1];
    for (int k = 0; k < side * side; k++)
        matrix[k] = 0;
    for (int k = 0; k < 2; k++) {
        int before = (side - sides[k]) / 2;
        for (int j = 0; j < sides[k]; j++)
            for (int i = 0; i < sides[k]; i++)
                matrix[(before + j) * side + before + i] += (k ? -1 : 1) * line[k][j] * line[k][i];
    }
    if (given->value[0] == given->value[1]) {
        result->reason = "S1 and S2 are equal, so that every result would be 0";
        return;
    }
    conv_integer_matrix(result->filters, matrix, side, side, 0);
}

// --- Gaussian ------------------------------------------------------------------------------------

// A Gaussian. One that is too large for one kernel is several smaller ones in turn: variances add
// up. The passes are at 16 bits, so they round to 1/257 of a level.
//
// Kernels are chosen one after the other. Each is the kernel with which the convolution of all so
// far is closest to the Gaussian of their variance, so it compensates for the errors of the kernels
// before it.

#define MOST_LINE (SIDE / 2 * 2 * CONV_FILTER_MAX_CHAIN + 1) // of all passes together
// 32 bits hold the sums of 16-bit samples: 65535 * scale^2 + scale^2 < 2^31.
#define MOST_SCALE 181
#define LEAST_SCALE 121
#define STRETCHES 13       // candidates for the sigma of a pass:
#define LEAST_STRETCH 0.96 // times the sigma of the wanted variance
#define STRETCH_STEP 0.01
#define MOST_OFF 0.03       // of the variance of a pass
#define MOST_DEVIATION 0.85 // 8-bit units, on any image
#define MOST_VARIANCE (ONE_PASS * ONE_PASS)

struct whole {
    double line[MOST_LINE]; // from the centre's left to its right
    int half;
    double error; // sum of the differences from the Gaussian
};

static double variance_of(const double *line, int half)
{
    double sum = 0;
    for (int i = -half; i <= half; i++)
        sum += line[half + i] * i * i;
    return sum;
}

static void convolve(struct whole *out, const struct whole *in, const struct conv_integer_line *by)
{
    int reach = by->side / 2;
    out->half = in->half + reach;
    memset(out->line, 0, (size_t)(2 * out->half + 1) * sizeof *out->line);
    for (int i = 0; i <= 2 * in->half; i++)
        for (int k = 0; k < by->side; k++)
            out->line[i + k] += in->line[i] * by->coef[k] / by->scale;
}

// The sum of |line - Gaussian| over the whole Gaussian, its tails included.
static double compare(const struct whole *whole, double sigma)
{
    double inside = 0, error = 0, sum = 1;
    for (int i = 1; i < 10 * sigma; i++)
        sum += 2 * exp(-(double)i * i / (2 * sigma * sigma));
    for (int i = -whole->half; i <= whole->half; i++) {
        double ideal = exp(-(double)i * i / (2 * sigma * sigma)) / sum;
        inside += ideal;
        error += fabs(whole->line[whole->half + i] - ideal);
    }
    return error + 1 - inside;
}

// The best kernel for the next pass, after which the variance should be sigma^2. False: there is
// none that comes near.
static bool choose_pass(struct conv_integer_line *best, struct whole *whole, double sigma)
{
    double wanted = sigma * sigma - variance_of(whole->line, whole->half);
    struct whole chosen = {.error = INFINITY}, candidate;
    if (wanted <= 0)
        return false;
    for (int s = 0; s < STRETCHES; s++) {
        double line[SIDE];
        int side = gaussian_line(line, sqrt(wanted) * (LEAST_STRETCH + STRETCH_STEP * s));
        for (int32_t scale = LEAST_SCALE; scale <= MOST_SCALE; scale += 2) {
            struct conv_integer_line rounded;
            double coefs[SIDE];
            conv_integer_round_line(&rounded, line, side, scale);
            for (int i = 0; i < side; i++)
                coefs[i] = (double)rounded.coef[i] / scale;
            if (fabs(variance_of(coefs, side / 2) - wanted) > MOST_OFF * wanted)
                continue;
            convolve(&candidate, whole, &rounded);
            candidate.error = compare(&candidate, sigma);
            if (candidate.error < chosen.error - 1e-9) {
                chosen = candidate;
                *best = rounded;
            }
        }
    }
    *whole = chosen;
    return chosen.error < INFINITY;
}

// The largest difference from the ideal result on any image, in 8-bit units: the errors of the line
// for columns and for rows, which at most add up, and the rounding of each pass.
static double deviation_of(const struct whole *whole, int passes)
{
    return 2 * whole->error / 2 * 255 + 0.5 / 257 * passes;
}

static bool try_passes(struct conv_integer_line *lines, int passes, double sigma, double *deviation)
{
    struct whole whole = {.line = {1}};
    for (int p = 0; p < passes; p++)
        if (!choose_pass(&lines[p], &whole, sigma * sqrt((p + 1.0) / passes)))
            return false;
    *deviation = deviation_of(&whole, passes);
    return true;
}

static void make_passes(struct result *result, double sigma)
{
    struct conv_integer_line lines[CONV_FILTER_MAX_CHAIN], best[CONV_FILTER_MAX_CHAIN];
    double least = INFINITY;
    int count = 0;
    for (int passes = (int)ceil(sigma * sigma / MOST_VARIANCE);
         passes <= result->room && least > MOST_DEVIATION; passes++) {
        double deviation;
        if (try_passes(lines, passes, sigma, &deviation) && deviation < least) {
            least = deviation;
            count = passes;
            memcpy(best, lines, sizeof best);
        }
    }
    if (count == 0) {
        result->reason = "so large a Gaussian takes several passes, and a chain has 16 at most";
        return;
    }
    for (int p = 0; p < count; p++) {
        struct conv_filter *filter = &result->filters[p];
        int side = best[p].side;
        filter->width = filter->height = side;
        for (int k = 0; k < side * side; k++)
            filter->coef[k] = (double)best[p].coef[k / side] * best[p].coef[k % side];
        filter->scale = (double)best[p].scale * best[p].scale;
        filter->deviation = least;
        filter->pass = p + 1;
        filter->passes = count;
    }
    result->count = count;
}

static void make_gaussian(struct result *result, const struct numbers *given)
{
    double line[SIDE], sigma = given->value[0];
    if (sigma > ONE_PASS)
        make_passes(result, sigma);
    else
        conv_integer_separable(result->filters, line, gaussian_line(line, sigma));
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
    {1, 1, {{"SIGMA", " pixels", 0.2, 20}}, make_gaussian},
    {1, 1, {{"SIGMA", " pixels", 0.2, ONE_PASS}}, make_gaussian_fast},
    {1, 1, {{"RADIUS", " pixels", 0.1, CONV_FILTER_MAX_SIDE / 2}}, make_blur},
    {1,
     3,
     {{"SIGMA", " pixels", 0.2, ONE_PASS},
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

// A number after blanks, also in per cent. False: it is none.
static bool read_number(double *value, const char *text, size_t size)
{
    size_t blanks = strspn(text, " ");
    bool percent = size > 0 && text[size - 1] == '%';
    if (conv_number_parse(value, CONV_FILTER_MAX_COEF, text + blanks, size - blanks - percent,
                          NULL))
        return false;
    *value /= percent ? 100 : 1;
    return true;
}

size_t conv_filter_element_length(const char *text)
{
    size_t length = strcspn(text, ",");
    while (conv_filter_is_parametric(text) && text[length] == ',') {
        const char *next = text + length + 1;
        size_t size = strcspn(next, ",");
        double number;
        if (!read_number(&number, next, size))
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
        if (count == builders[row].most || (count == 0 && *at == ' ') ||
            !read_number(&value, at, size) || (at[size - 1] == '%' && range->unit[0]))
            return refuse(text, row, err);
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
    struct numbers given;
    enum conv_status status = read_numbers(&given, row, text, err);
    if (status)
        return status;
    struct result result = {.filters = filters, .room = room, .count = 1};
    memset(filters, 0, (size_t)room * sizeof *filters);
    builders[row].build(&result, &given);
    if (result.reason)
        return conv_err_set(err, CONV_ERR_USAGE, "'%.64s': %s", text, result.reason);
    for (int i = 0; i < result.count; i++)
        snprintf(filters[i].name, sizeof filters[i].name, "%s", text);
    *count = result.count;
    return CONV_OK;
}
