// SPDX-License-Identifier: MIT
// Random numbers and filters for check_kernels: one kind of filter for each class of arithmetic.
#include <math.h>

#include "check_kernels.h"
#include "filter/parametric.h"
#include "support/random.h"

uint64_t check_random_next(struct check_random *random)
{
    return random_bits(&random->state);
}

int check_random_below(struct check_random *random, int n)
{
    return (int)(check_random_next(random) % (uint64_t)n);
}

int check_random_pick(struct check_random *random, const int *values, int count)
{
    return values[check_random_below(random, count)];
}

static double random_unit(struct check_random *random)
{
    return (double)(check_random_next(random) >> 11) * 0x1p-53;
}

// --- filters -------------------------------------------------------------------------------------

static void random_sides(struct check_random *random, struct conv_filter *filter)
{
    int side = PICK(random, 3, 3, 3, 5, 5, 7);
    filter->width = filter->height = side;
    if (check_random_below(random, 4) == 0) {
        filter->width = PICK(random, 1, 3, 5, 7, 9, 11, 15, 21, 31);
        filter->height = PICK(random, 1, 3, 5, 7, 9, 11, 15, 21, 31);
    }
}

// The same filter with all signs inverted.
static void negate(struct conv_filter *filter)
{
    filter->scale = -filter->scale;
    for (int k = 0; k < filter->width * filter->height; k++)
        filter->coef[k] = -filter->coef[k];
}

// A divisor and an offset for which most results are between 0 and 255. A quarter of the filters
// get a usual divisor, and a quarter an odd divisor or offset.
static void random_scale(struct check_random *random, struct conv_filter *filter)
{
    double positive = 0, negative = 0;
    for (int i = 0; i < filter->width * filter->height; i++)
        *(filter->coef[i] < 0 ? &negative : &positive) += fabs(filter->coef[i]);
    double scale = fmax(1, floor((positive + negative) * (0.6 + random_unit(random))));
    if (check_random_below(random, 4) == 0) {
        int usual = PICK(random, 1, 2, 4, 8, 16, 256, 3, 5, 6, 7, 9, 10, 18, 25, 30, 49, 273, 1001);
        if (usual * 3 > scale && usual < 4 * scale)
            scale = usual;
    }
    if (check_random_below(random, 3) == 0)
        scale = exp2(rint(log2(scale)));
    filter->scale = fmin(scale, CONV_FILTER_MAX_COEF);
    filter->offset = rint(255 * negative / filter->scale);
    int odd = check_random_below(random, 12);
    if (odd == 0)
        filter->offset = check_random_below(random, 600) - 300;
    else if (odd == 1)
        filter->scale = 1 + check_random_below(random, 30);
    else if (odd == 2)
        filter->scale = 1 + check_random_below(random, 2147483646);
    filter->offset = fmax(-CONV_FILTER_MAX_OFFSET, fmin(filter->offset, CONV_FILTER_MAX_OFFSET));
    if (check_random_below(random, 4) == 0)
        negate(filter);
}

// Two neighbours in a column that together fill 16 bits where each alone does not.
static void heavy_column(struct check_random *random, struct conv_filter *filter)
{
    int taps = filter->width * filter->height;
    int k = check_random_below(random, taps);
    for (int i = 0; i < taps; i++)
        filter->coef[i] = 0;
    filter->coef[k] = 30 + check_random_below(random, 98);
    filter->coef[(k + filter->width) % taps] = 30 + check_random_below(random, 98);
}

// A column times a row, often a large one; in one of four filters one coefficient deviates from
// that. Some columns are all ones.
static void separable(struct check_random *random, struct conv_filter *filter)
{
    if (check_random_below(random, 2)) {
        filter->width = PICK(random, 3, 9, 15, 17, 19, 31);
        filter->height = PICK(random, 9, 11, 15, 17, 19, 31);
    }
    bool plain = check_random_below(random, 3) == 0;
    int range = PICK(random, 3, 5, 40);
    int column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    for (int i = 0; i < CONV_FILTER_MAX_SIDE; i++) {
        column[i] = plain ? 1 : check_random_below(random, range) - 1;
        row[i] = check_random_below(random, range) - (check_random_below(random, 3) == 0);
    }
    int taps = filter->width * filter->height;
    for (int i = 0; i < taps; i++)
        filter->coef[i] = column[i / filter->width] * row[i % filter->width];
    if (check_random_below(random, 4) == 0)
        filter->coef[check_random_below(random, taps)] += 1;
}

// Two columns times two rows, often with sums of more than 24 or, at 16 bits, 32 bits; in one of
// four filters one coefficient deviates from that. Or small coefficients with a few that do not fit
// a byte.
static void products(struct check_random *random, struct conv_filter *filter)
{
    filter->width = PICK(random, 3, 9, 15, 17, 23, 31);
    filter->height = PICK(random, 9, 11, 15, 17, 23, 31);
    int taps = filter->width * filter->height, range = PICK(random, 9, 100, 1200);
    int column[2][CONV_FILTER_MAX_SIDE], row[2][CONV_FILTER_MAX_SIDE];
    for (int i = 0; i < CONV_FILTER_MAX_SIDE; i++) {
        for (int k = 0; k < 2; k++) {
            column[k][i] = check_random_below(random, range) - range / 2;
            row[k][i] = check_random_below(random, 9) - 4;
        }
    }
    bool peaks = check_random_below(random, 3) == 0;
    for (int i = 0; i < taps; i++) {
        int across = i % filter->width, down = i / filter->width;
        int sum = column[0][down] * row[0][across] + column[1][down] * row[1][across];
        filter->coef[i] = peaks ? check_random_below(random, 13) - 6 : sum;
    }
    for (int i = 0; peaks && i < 5; i++)
        filter->coef[check_random_below(random, taps)] = check_random_below(random, 6001) - 3000;
    if (!peaks && check_random_below(random, 4) == 0)
        filter->coef[check_random_below(random, taps)] += 1;
    if (check_random_below(random, 3) == 0) // rows as those as far below the centre
        for (int i = 0; i < taps; i++)
            filter->coef[taps - 1 - i] =
                filter->coef[(taps - 1 - i) % filter->width + i / filter->width * filter->width];
}

// Weights of a smoothing filter, whose sum is returned: any up to `most`, or 0 and one number, with
// which results are often ties.
static double random_weights(struct check_random *random, double *weights, int side, int most)
{
    bool equal = check_random_below(random, 3) == 0;
    int number = most - check_random_below(random, most / 2 + 1);
    double sum = 0;
    for (int i = 0; i < side; i++) {
        weights[i] =
            equal ? number * check_random_below(random, 2) : check_random_below(random, most + 1);
        sum += weights[i];
    }
    if (sum == 0)
        sum = weights[check_random_below(random, side)] = most;
    return sum;
}

// A column times a row of positive weights with sums of 25 to 31 bits, where the divisor is their
// sum or a little more; or a multiple of the image minus that, with a divisor of any size. 32 bits
// hold 255 times 2^23.
static void smoothing(struct check_random *random, struct conv_filter *filter)
{
    double row[CONV_FILTER_MAX_SIDE], column[CONV_FILTER_MAX_SIDE];
    bool sharpens = check_random_below(random, 3) == 0;
    double most = sharpens ? 2000000 : 8380000;
    filter->width = PICK(random, 1, 3, 9, 15, 17, 19, 25, 31);
    filter->height = PICK(random, 3, 9, 15, 17, 19, 25, 31);
    double across = random_weights(random, row, filter->width, PICK(random, 1, 60, 255, 255));
    double down = random_weights(random, column, filter->height, PICK(random, 255, 4000, 60000));
    if (across * down > most) // smaller weights, some of which are 0
        for (int j = 0; j < filter->height; j++)
            column[j] = floor(column[j] * most / (across * down));
    double sum = 0;
    int taps = filter->width * filter->height;
    for (int k = 0; k < taps; k++)
        sum += filter->coef[k] = column[k / filter->width] * row[k % filter->width];
    filter->scale = fmax(sum, 1) + PICK(random, 0, 0, 0, 1, 700);
    if (check_random_below(random, 8) == 0)
        filter->scale = exp2(ceil(log2(filter->scale)));
    filter->offset = 0;
    if (sharpens) {
        negate(filter);
        filter->scale = 131073 + check_random_below(random, 1800000);
        filter->coef[taps / 2] += filter->scale + sum;
        filter->offset = PICK(random, 0, 0, 0, 100, -20);
    }
    if (check_random_below(random, 4) == 0)
        negate(filter);
}

// A real filter with one number far from the others, or with all of them large. Scaled sums must
// still be right, or a variant that has them must refuse the filter: the limits are 2^-102, 2^10
// and, for 8 bits, 2^103.
static void extreme_numbers(struct check_random *random, struct conv_filter *filter)
{
    static const double sizes[] = {1e-300, 1e-40,  0x1.fffffep-103, 0x1p-102,      1e-30, 1e-9,
                                   1e3,    0x1p10, 0x1.000002p10,   0x1.fffffep11, 1e9,   0x1p31};
    double size = sizes[check_random_below(random, (int)(sizeof sizes / sizeof *sizes))];
    double *number = &filter->coef[check_random_below(random, filter->width * filter->height)];
    int which = check_random_below(random, 3);
    if (which == 0)
        filter->scale *= 0x1p-106;
    else if (which == 1)
        filter->offset = fmin(size, CONV_FILTER_MAX_OFFSET);
    else
        *number = fmin(size * fabs(filter->scale), CONV_FILTER_MAX_COEF) * (*number < 0 ? -1 : 1);
}

// A few taps with divisor 1: small ones, or with sums that only unsigned 16 bits hold.
static void undivided(struct check_random *random, struct conv_filter *filter)
{
    int taps = filter->width * filter->height, sum = 0;
    bool heavy = check_random_below(random, 2);
    for (int i = 0; i < taps; i++) {
        bool some = check_random_below(random, taps) < 4;
        int coef = heavy ? check_random_below(random, 91) - 20 : check_random_below(random, 5) - 2;
        filter->coef[i] = some ? coef : 0;
        sum += (int)filter->coef[i];
    }
    filter->scale = 1;
    filter->offset = check_random_below(random, 2) ? 0 : 127 - 127 * sum;
}

// 3x3 matrices with relations that save multiplications: rows equal to the first one, or it and its
// double; or two opposite corners of 0. In one of three filters one coefficient deviates from that.
static void related_rows(struct check_random *random, struct conv_filter *filter)
{
    int kind = check_random_below(random, 4), range = PICK(random, 3, 9, 60);
    filter->width = filter->height = 3;
    for (int i = 0; i < 9; i++) {
        filter->coef[i] = check_random_below(random, range) - PICK(random, 0, 1) * (range / 2);
        if (kind < 2 && i >= 3)
            filter->coef[i] = (i < 6 ? 1 + kind : 1) * filter->coef[i % 3];
    }
    if (kind >= 2)
        filter->coef[kind == 2 ? 0 : 2] = filter->coef[kind == 2 ? 8 : 6] = 0;
    if (check_random_below(random, 3) == 0)
        filter
            ->coef[kind < 2 ? 3 + check_random_below(random, 3) : check_random_below(random, 9)] +=
            1;
}

// Sobel, Scharr and Prewitt, and other matrices; half of them divided or moved.
static void magnitude(struct check_random *random, struct conv_filter *filter)
{
    int outer = PICK(random, 1, 1, 3, 2, 0, 5), inner = PICK(random, 2, 1, 10, 0, 6);
    int sign = check_random_below(random, 2) ? 1 : -1;
    bool usual = check_random_below(random, 4) != 0;
    filter->magnitude = true;
    filter->width = filter->height = usual ? 3 : PICK(random, 1, 3, 5);
    for (int k = 0; k < filter->width * filter->height; k++)
        filter->coef[k] = usual ? sign * (k % 3 - 1) * (k / 3 == 1 ? inner : outer)
                                : check_random_below(random, 9) - 4;
    filter->scale = filter->offset = 0;
    if (check_random_below(random, 2))
        filter->offset = check_random_below(random, 300) - 150 + PICK(random, 0, 0, 1) * 0.3;
    filter->scale = PICK(random, 1, 1, 1, 4, 16, -2, 7) * (check_random_below(random, 4) ? 1 : 1.3);
}

// A large Gaussian, of any step, or a sharpening by it.
static void decimated(struct check_random *random, struct conv_filter *filter)
{
    double sigma = exp(1.1 + 4.4 * random_unit(random)),
           amount = PICK(random, 0, 0, 1, 3, 40, 40) / 4.0;
    *filter = (struct conv_filter){0};
    conv_filter_decimate(filter, sigma, amount);
}

// Makes a matrix equal to its transpose; of one in four, one coefficient deviates from that.
static void symmetric(struct check_random *random, struct conv_filter *filter)
{
    int side = filter->height = filter->width;
    for (int k = 0; k < side * side; k++)
        filter->coef[k] = filter->coef[k % side * side + k / side];
    if (check_random_below(random, 4) == 0)
        filter->coef[check_random_below(random, side * side)] += 1;
}

// The threshold of a filter that may have one: either most of the results differ by less, or few
// do.
static void random_threshold(struct check_random *random, struct conv_filter *filter)
{
    if (!filter->magnitude && check_random_below(random, 9) == 0)
        filter->threshold = (1 + check_random_below(random, 640)) / 8.0;
}

// Each kind aims at an arithmetic: 8- and 16-bit operands, two passes, float32, float64 and more.
const char *check_random_filter(struct check_random *random, struct conv_filter *filter)
{
    static const char *const kinds[] = {
        "small",     "sparse",    "positive",  "8-bit",     "large",    "real",    "heavy",
        "separable", "undivided", "magnitude", "smoothing", "products", "related", "decimated"};
    int kind = PICK(random, 0, 0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 7, 8, 9, 10, 11, 12, 13, 13);
    random_sides(random, filter);
    for (int i = 0; i < filter->width * filter->height; i++) {
        double values[sizeof kinds / sizeof kinds[0]] = {
            check_random_below(random, 13) - 6,
            check_random_below(random, 5) ? 0 : check_random_below(random, 9) - 4,
            check_random_below(random, 5),
            check_random_below(random, 257) - 128,
            (check_random_below(random, 65536) - 32768) * 65535.0,
            random_unit(random) - 0.4,
        };
        filter->coef[i] = values[kind];
    }
    if (kind == 6)
        heavy_column(random, filter);
    if (kind == 7)
        separable(random, filter);
    if (kind == 11)
        products(random, filter);
    if (kind == 12)
        related_rows(random, filter);
    if ((kind == 0 || kind == 3) && check_random_below(random, 3) == 0) // as one that sharpens
        filter->coef[filter->width * filter->height / 2] =
            check_random_below(random, 60001) - 30000;
    random_scale(random, filter);
    if (kind == 8)
        undivided(random, filter);
    if (kind == 9)
        magnitude(random, filter);
    if (kind == 10)
        smoothing(random, filter);
    if (kind == 5) {
        filter->scale *= 0.37 + random_unit(random);
        filter->offset += 0.25;
        if (check_random_below(random, 4) == 0)
            extreme_numbers(random, filter);
    }
    if (kind == 13)
        decimated(random, filter);
    if (kind < 7 && check_random_below(random, 3) == 0)
        symmetric(random, filter);
    random_threshold(random, filter);
    return kinds[kind];
}
