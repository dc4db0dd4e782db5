// SPDX-License-Identifier: MIT
// A Gaussian. One that is too large for one kernel is several smaller ones in turn: variances add
// up. The passes are at 16 bits, so they round to 1/257 of a level.
//
// Kernels are chosen one after the other. Each is the kernel with which the convolution of all so
// far is closest to the Gaussian of their variance, so it compensates for the errors of the kernels
// before it.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "filter/parametric.h"

#define SIDE CONV_FILTER_MAX_SIDE
#define MOST_LINE (SIDE / 2 * 2 * CONV_FILTER_MAX_CHAIN + 1) // of all passes together
// 32 bits hold the sums of 16-bit samples: 65535 * scale^2 + scale^2 < 2^31.
#define MOST_SCALE 181
#define LEAST_SCALE 121
#define STRETCHES 13       // candidates for the sigma of a pass:
#define LEAST_STRETCH 0.96 // times the sigma of the wanted variance
#define STRETCH_STEP 0.01
#define MOST_OFF 0.03       // of the variance of a pass
#define MOST_DEVIATION 0.85 // 8-bit units, on any image
#define MOST_VARIANCE (CONV_PARAMETRIC_ONE_PASS * CONV_PARAMETRIC_ONE_PASS)

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
        int side =
            conv_ideal_gaussian_line(line, sqrt(wanted) * (LEAST_STRETCH + STRETCH_STEP * s));
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

static void make_passes(struct conv_parametric_result *result, double sigma)
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

void conv_gaussian_make(struct conv_parametric_result *result,
                        const struct conv_parametric_numbers *given)
{
    double line[SIDE], sigma = given->value[0];
    if (sigma > CONV_PARAMETRIC_ONE_PASS)
        make_passes(result, sigma);
    else
        conv_integer_separable(result->filters, line, conv_ideal_gaussian_line(line, sigma));
}
