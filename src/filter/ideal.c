// SPDX-License-Identifier: MIT
// The formulas of the parametric filters. Angles are in degrees, counter-clockwise from the right;
// rows count downwards.
#include <math.h>

#include "filter/parametric.h"

#define SIDE CONV_FILTER_MAX_SIDE
#define HALF (SIDE / 2)
#define CUT 4.0        // of a Gaussian, in sigma
#define LEAST_PASSES 7 // taps of a line from which two passes are faster than one

int conv_ideal_gaussian_line(double line[SIDE], double sigma)
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

void conv_ideal_gaussian_fast(struct conv_parametric_result *result,
                              const struct conv_parametric_numbers *given)
{
    double line[SIDE];
    int side = conv_ideal_gaussian_line(line, given->value[0]);
    conv_integer_separable_bytes(result->filters, line, side);
}

// The mean of a square with sides of 2 * radius + 1; a pixel that it covers in part counts in
// proportion.
void conv_ideal_blur(struct conv_parametric_result *result,
                     const struct conv_parametric_numbers *given)
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
void conv_ideal_unsharp(struct conv_parametric_result *result,
                        const struct conv_parametric_numbers *given)
{
    double line[SIDE], matrix[CONV_FILTER_MAX_TAPS], amount = given->value[1];
    int side = conv_ideal_gaussian_line(line, given->value[0]);
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
void conv_ideal_sharpen(struct conv_parametric_result *result,
                        const struct conv_parametric_numbers *given)
{
    double a = given->value[0];
    const double matrix[] = {0, -a, 0, -a, 1 + 4 * a, -a, 0, -a, 0};
    conv_integer_matrix(result->filters, matrix, 3, 3, 1);
}

// The mean along a line that is LENGTH pixels long: the weight of a pixel is 1 minus its distance
// from the line between the centres of its first and last pixel (as MATLAB's fspecial "motion").
void conv_ideal_motion(struct conv_parametric_result *result,
                       const struct conv_parametric_numbers *given)
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
void conv_ideal_emboss(struct conv_parametric_result *result,
                       const struct conv_parametric_numbers *given)
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
void conv_ideal_log(struct conv_parametric_result *result,
                    const struct conv_parametric_numbers *given)
{
    double line[SIDE], second[SIDE], matrix[CONV_FILTER_MAX_TAPS], sigma = given->value[0];
    int side = conv_ideal_gaussian_line(line, sigma), half = side / 2;
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
void conv_ideal_dog(struct conv_parametric_result *result,
                    const struct conv_parametric_numbers *given)
{
    double line[2][SIDE], matrix[CONV_FILTER_MAX_TAPS];
    int sides[2];
    for (int k = 0; k < 2; k++)
        sides[k] = conv_ideal_gaussian_line(line[k], given->value[k]);
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
