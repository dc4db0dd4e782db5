// SPDX-License-Identifier: MIT
#include "filter/parametric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// conv_stencil_init finds that 32 bits hold sums if 255 * magnitude + scale is below 2^31. Where
// all coefficients are positive, their magnitude is the scale.
#define MOST_SCALE 8388607
#define MOST_LINE_SCALE 2896 // its square is within MOST_SCALE
#define MOST_COEF 254        // the most that CPU kernels with quads of taps take
#define MOST_FLOAT_SUM 65792 // float32 holds 255 times this exactly: kernels are much faster
#define MOST_ODD_SCALE 32767 // GPUs divide by odd scales up to this in float32
#define MOST_BYTE 127        // the most that tensor cores take
#define BYTE_SCALE 256
#define NOISE 1e-9 // differences that rounding in exp or cos may cause
#define EXACT_SCALES 512

// --- lines ---------------------------------------------------------------------------------------

// The offset from the centre where adding (sign 1) or subtracting (-1) one unit reduces the error
// most.
static int neediest(const struct conv_integer_line *line, const double *ideal, int sign)
{
    int centre = line->side / 2, best = 1;
    double most = -INFINITY;
    for (int i = 1; i <= centre; i++) {
        double lack = sign * (ideal[centre + i] * line->scale - line->coef[centre + i]);
        if (lack > most + NOISE && line->coef[centre + i] + sign >= 0) {
            most = lack;
            best = i;
        }
    }
    return best;
}

// The integers nearest to scale * ideal. If their sum is not `scale`, the difference is distributed
// one unit at a time, in symmetric pairs, to where that reduces the error most; an odd unit goes to
// the centre.
static void round_line(struct conv_integer_line *line, const double *ideal, int side, int32_t scale)
{
    int centre = side / 2;
    int32_t rest = scale;
    *line = (struct conv_integer_line){.side = side, .scale = scale};
    for (int i = 0; i < side; i++) {
        line->coef[i] = (int32_t)floor(ideal[i] * scale + 0.5 + NOISE);
        rest -= line->coef[i];
    }
    int sign = rest < 0 ? -1 : 1;
    if (rest % 2 != 0 || side == 1) {
        int32_t unit = side == 1 ? rest : sign;
        line->coef[centre] += unit;
        rest -= unit;
    }
    for (; rest != 0; rest -= 2 * sign) {
        int offset = neediest(line, ideal, sign);
        line->coef[centre - offset] += sign;
        line->coef[centre + offset] += sign;
    }
    for (int i = 0; i < side; i++)
        line->error += fabs((double)line->coef[i] / scale - ideal[i]);
}

// round_line with the scale up to `most` that has the smallest error; the smallest such scale.
static void fit_line(struct conv_integer_line *line, const double *ideal, int side, int32_t most)
{
    line->error = INFINITY;
    for (int32_t scale = 1; scale <= most; scale++) {
        struct conv_integer_line candidate;
        round_line(&candidate, ideal, side, scale);
        if (candidate.error < line->error - NOISE)
            *line = candidate;
    }
}

// --- products of lines ---------------------------------------------------------------------------

static void set_product(struct conv_filter *filter, const struct conv_integer_line *line,
                        const double *ideal)
{
    double error = 0, scale = (double)line->scale * line->scale;
    for (int k = 0; k < line->side * line->side; k++) {
        int j = k / line->side, i = k % line->side;
        error += fabs((double)line->coef[j] * line->coef[i] / scale - ideal[j] * ideal[i]);
    }
    int zeros = 0; // at each end
    while (zeros < line->side / 2 && line->coef[zeros] == 0)
        zeros++;
    filter->width = filter->height = line->side - 2 * zeros;
    for (int k = 0; k < filter->width * filter->width; k++)
        filter->coef[k] =
            (double)line->coef[zeros + k / filter->width] * line->coef[zeros + k % filter->width];
    filter->scale = scale;
    filter->deviation = error / 2 * 255; // the errors sum to 0: an image of 0 and 255 gets half
}

void conv_integer_separable(struct conv_filter *filter, const double *ideal, int side)
{
    struct conv_integer_line line;
    int32_t most = (int32_t)fmin(MOST_COEF / ideal[side / 2], MOST_LINE_SCALE);
    fit_line(&line, ideal, side, most);
    set_product(filter, &line, ideal);
    if (filter->deviation <= CONV_INTEGER_LINES_DEVIATION)
        return;
    fit_line(&line, ideal, side, MOST_LINE_SCALE); // some Gaussians below 0.9
    set_product(filter, &line, ideal);
}

void conv_integer_separable_bytes(struct conv_filter *filter, double *ideal, int side)
{
    struct conv_integer_line line;
    int32_t scale = 2 * BYTE_SCALE;
    do
        round_line(&line, ideal, side, scale /= 2);
    while (line.coef[side / 2] > MOST_BYTE);
    set_product(filter, &line, ideal);
    for (int i = 0; i < filter->width; i++)
        ideal[i] = (double)line.coef[(side - filter->width) / 2 + i] / scale;
}

// --- matrices ------------------------------------------------------------------------------------

// The matrix times the scale in integers, and how far results are off, in 8-bit units.
static double round_matrix(double *coef, const double *ideal, int taps, int total, double scale)
{
    double error = 0, sum = 0;
    for (int k = 0; k < taps; k++) {
        double value = ideal[k] * scale;
        coef[k] = value < 0 ? -floor(-value + 0.5 + NOISE) : floor(value + 0.5 + NOISE);
        sum += coef[k];
    }
    coef[taps / 2] += scale * total - sum;
    for (int k = 0; k < taps; k++)
        error += fabs(coef[k] / scale - ideal[k]);
    return error / 2 * 255;
}

// Cuts off rows and columns of zeros, the same number on both sides.
static void trim(struct conv_filter *filter)
{
    int width = filter->width, height = filter->height, reach_x = 0, reach_y = 0;
    for (int j = 0; j < height; j++)
        for (int i = 0; i < width; i++)
            if (filter->coef[j * width + i] != 0) {
                int x = abs(i - width / 2), y = abs(j - height / 2);
                reach_x = x > reach_x ? x : reach_x;
                reach_y = y > reach_y ? y : reach_y;
            }
    filter->width = 2 * reach_x + 1;
    filter->height = 2 * reach_y + 1;
    for (int j = 0; j < filter->height; j++)
        memmove(&filter->coef[j * filter->width],
                &filter->coef[(height / 2 - reach_y + j) * width + width / 2 - reach_x],
                (size_t)filter->width * sizeof filter->coef[0]);
}

// The first scale of a kind with which no result is off by more than CONV_INTEGER_DEVIATION, or 0;
// among odd scales the best one. `most`: the limit of the scale times the magnitude of the ideal.
static double find_exact(double *coef, const double *ideal, int taps, int total)
{
    for (int s = 1; s <= EXACT_SCALES; s++)
        if (round_matrix(coef, ideal, taps, total, s) < 255 * NOISE)
            return s;
    return 0;
}

static double find_power(double *coef, const double *ideal, int taps, int total, double most)
{
    for (double s = 16; s <= most; s *= 2)
        if (round_matrix(coef, ideal, taps, total, s) <= CONV_INTEGER_DEVIATION)
            return s;
    return 0;
}

static double find_odd(double *coef, const double *ideal, int taps, int total, double most)
{
    double best = 0, least = CONV_INTEGER_DEVIATION;
    int first = (int)fmin(most, MOST_ODD_SCALE) - 1;
    for (int s = first | 1; s > first / 2; s -= 2) {
        double deviation = round_matrix(coef, ideal, taps, total, s);
        if (deviation < least - NOISE) {
            least = deviation;
            best = s;
        }
    }
    return best;
}

void conv_integer_matrix(struct conv_filter *filter, const double *ideal, int width, int height,
                         int total)
{
    int taps = width * height;
    double magnitude = 0, *coef = filter->coef;
    for (int k = 0; k < taps; k++)
        magnitude += fabs(ideal[k]);
    // Rounding may add half a unit per tap.
    double floats = (MOST_FLOAT_SUM - taps) / magnitude, ints = (MOST_SCALE - taps) / magnitude;
    double scale = find_exact(coef, ideal, taps, total);
    if (scale == 0)
        scale = find_power(coef, ideal, taps, total, floats);
    if (scale == 0)
        scale = find_odd(coef, ideal, taps, total, floats);
    if (scale == 0)
        scale = find_power(coef, ideal, taps, total, ints);
    filter->deviation = round_matrix(coef, ideal, taps, total, scale);
    filter->scale = scale;
    filter->width = width;
    filter->height = height;
    trim(filter);
}

// --- a multiple of the sample and a product of lines ---------------------------------------------

bool conv_integer_sharpen(struct conv_filter *filter, const double *ideal, int side, double amount)
{
    // Magnitudes that add up: the divisor, the centre, the other coefficients, and the divisor
    // again for a threshold.
    int32_t most_line = (int32_t)sqrt(floor((MOST_SCALE - 4) / (2 + 2 / amount)));
    int32_t most = (int32_t)fmin(MOST_COEF / ideal[side / 2], most_line);
    struct conv_integer_line line = {.side = side};
    double error = 0;
    if (most < 1)
        return false;
    fit_line(&line, ideal, side, most);
    double product = (double)line.scale * line.scale;
    filter->width = filter->height = side;
    filter->scale = floor(product / amount + 0.5);
    for (int k = 0; k < side * side; k++) {
        int j = k / side, i = k % side;
        double sample = j == side / 2 && i == side / 2 ? 1 : 0;
        filter->coef[k] = sample * (filter->scale + product) - (double)line.coef[j] * line.coef[i];
        error += fabs(filter->coef[k] / filter->scale -
                      (sample * (1 + amount) - amount * ideal[j] * ideal[i]));
    }
    filter->deviation = error / 2 * 255;
    trim(filter);
    return filter->deviation <= CONV_INTEGER_LINES_DEVIATION;
}

// --- large Gaussians -----------------------------------------------------------------------------

// The image is reduced and enlarged by bells that end after two steps and pass as little as
// possible of the frequencies that a coarse image has not ("exponential of semicircle": Barnett,
// Magland and af Klinteberg, SIAM J. Sci. Comput. 41(5), 2019). With a line of the variance that
// the bells leave that is an excellent approximation of a Gaussian from a sigma of 1.23 steps on.

#define WEIGHTS 65536 // sum of `down` and of `line`
#define UPS 1024      // of four numbers of `up`
#define CUT 4.0       // of the line, in sigma
#define LEAST_VARIANCE 0.5
#define MOST_STEP CONV_DECIMATED_MAX_STEP
#define MOST_RADIUS CONV_DECIMATED_MAX_RADIUS
// Coarse samples that a pixel depends on, and how far pixels are from it.
#define MOST_SAMPLES (2 * MOST_RADIUS + 4)
#define MOST_REACH (MOST_STEP * (MOST_RADIUS + 5))
// Half a unit of the coarse image, of the filtered one, and of the enlarged one, in 8-bit units.
#define ROUNDING (0.5 / 256 + 0.5 / 16 + 0.5 / 4096)

static const int steps[] = {32, 24, 16, 12, 8, 6, 4, 3, 2}; // all divide CONV_DECIMATED_GRID

static double bell(double x, double shape)
{
    return x * x < 4 ? exp(shape * (sqrt(1 - x * x / 4) - 1)) : 0;
}

// The right half of `ideal`, whose sum is 1, as integers with the sum WEIGHTS.
static void round_half(int32_t *half, const double *ideal, int side)
{
    struct conv_integer_line line;
    round_line(&line, ideal, side, WEIGHTS);
    for (int i = 0; i <= side / 2; i++)
        half[i] = line.coef[side / 2 + i];
}

static void set_down(struct conv_decimated *d, double shape)
{
    double ideal[CONV_INTEGER_MAX_SIDE], sum = 0;
    int centre = 2 * d->step - 1;
    for (int i = 0; i <= 2 * centre; i++)
        sum += ideal[i] = bell((double)(i - centre) / d->step, shape);
    for (int i = 0; i <= 2 * centre; i++)
        ideal[i] /= sum;
    round_half(d->down, ideal, 2 * centre + 1);
}

// What rounding leaves of the sum goes to the larger of the two middle weights: to both, half way
// between two samples. The second half of the pixels mirrors the first.
static void set_up(struct conv_decimated *d, double shape)
{
    for (int k = 0; 2 * k <= d->step; k++) {
        int32_t *up = d->up[k], rest = UPS;
        double bells[4], sum = 0;
        for (int i = 0; i < 4; i++)
            sum += bells[i] = bell((double)k / d->step + 1 - i, shape);
        for (int i = 0; i < 4; i++)
            rest -= up[i] = (int32_t)floor(UPS * bells[i] / sum + 0.5);
        bool half = 2 * k == d->step;
        up[1] += half ? rest / 2 : rest;
        up[2] += half ? rest / 2 : 0;
        for (int i = 0; i < 4 && k > 0; i++)
            d->up[d->step - k][i] = up[3 - i];
    }
}

// False: the coarse image would be too coarse or too fine. Weights are below half of their sum: 16
// bits with a sign hold them.
static bool set_line(struct conv_decimated *d, double sigma)
{
    double ideal[CONV_INTEGER_MAX_SIDE], sum = 0, second = 0, fourth = 0;
    for (int i = 1; i < 2 * d->step; i++) {
        double z = (double)(i * i) / (d->step * d->step);
        second += 2 * z * d->down[i] / WEIGHTS;
        fourth += 2 * z * z * d->down[i] / WEIGHTS;
    }
    double variance = sigma * sigma / (d->step * d->step) - 2 * second; // of two bells
    if (variance < LEAST_VARIANCE || CUT * sqrt(variance) > MOST_RADIUS)
        return false;
    // A Gaussian's fourth cumulant is 0: the line has the bells' with the other sign, by the first
    // term of its Edgeworth series (a Hermite polynomial of degree 4).
    fourth = 2 * (3 * second * second - fourth) / (24 * variance * variance);
    d->radius = (int)ceil(CUT * sqrt(variance));
    for (int i = -d->radius; i <= d->radius; i++) {
        double z = i * i / variance; // squared
        sum += ideal[d->radius + i] = exp(-z / 2) * (1 + fourth * (z * z - 6 * z + 3));
    }
    for (int i = 0; i <= 2 * d->radius; i++)
        ideal[i] /= sum;
    round_half(d->line, ideal, 2 * d->radius + 1);
    return d->line[0] < WEIGHTS / 2;
}

// The sum of |weight - Gaussian| over all pixels of a line, for the result k pixels after a coarse
// sample.
static double line_error(const struct conv_decimated *d, int k, const double *gaussian)
{
    double samples[MOST_SAMPLES] = {0}, error = 0, inside = 0; // samples -radius - 1 and after
    int reach = d->step * (d->radius + 4);
    for (int i = 0; i < 4; i++)
        for (int j = -d->radius; j <= d->radius; j++)
            samples[i + j + d->radius] += (double)d->up[k][i] / UPS * d->line[abs(j)] / WEIGHTS;
    for (int y = -reach; y <= reach; y++) {
        double weight = 0;
        for (int m = 0; m < 2 * d->radius + 4; m++) {
            int away = abs(y - d->step * (m - d->radius - 1));
            if (away < 2 * d->step)
                weight += samples[m] * d->down[away] / WEIGHTS;
        }
        error += fabs(weight - gaussian[abs(y - k)]);
        inside += gaussian[abs(y - k)];
    }
    return error + 1 - inside;
}

// The most that a result of 8-bit samples is off, before the last rounding: weights and ideals sum
// to 1, so that an image of 0 and 255 gets half of the sum of the differences. Columns and rows add
// up.
static double find_deviation(const struct conv_decimated *d, double sigma)
{
    double gaussian[MOST_REACH], most = 0;
    for (int i = 0; i < MOST_REACH; i++) // over all pixels the sum equals the integral, to 1e-76
        gaussian[i] = exp(-(double)i * i / (2 * sigma * sigma)) / (sigma * sqrt(2 * M_PI));
    for (int k = 0; 2 * k <= d->step; k++)
        most = fmax(most, line_error(d, k, gaussian));
    return 255 * (2 * most + most * most) / 2 + ROUNDING;
}

void conv_filter_decimate(struct conv_filter *filter, double sigma, double amount)
{
    filter->width = filter->height = 1;
    filter->coef[0] = filter->scale = 1;
    filter->deviation = INFINITY;
    filter->real.sigma = sigma;
    filter->real.gain = amount;
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        struct conv_decimated d = {.step = steps[s], .around = 4};
        d.amount = (int32_t)floor(amount * CONV_DECIMATED_AMOUNT + 0.5);
        // The larger, the narrower is the bell; the best ones, found by trying, grow with sigma.
        double shape = fmin(10, fmax(8.2, 4.2 + 3.2 * sigma / d.step));
        set_down(&d, shape);
        set_up(&d, shape);
        if (!set_line(&d, sigma))
            continue;
        double deviation = find_deviation(&d, sigma);
        if (amount > 0)
            deviation = deviation * d.amount / CONV_DECIMATED_AMOUNT +
                        255 * fabs((double)d.amount / CONV_DECIMATED_AMOUNT - amount);
        if (deviation < filter->deviation) {
            filter->decimated = d;
            filter->deviation = deviation;
        }
        if (deviation <= CONV_INTEGER_LINES_DEVIATION)
            break;
    }
}
