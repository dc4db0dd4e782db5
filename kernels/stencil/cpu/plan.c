// SPDX-License-Identifier: MIT
// Chooses the arithmetic for a stencil, with the proofs that it computes the defined bytes.
#include <math.h>
#include <stdlib.h>

#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/stencil.h"

#define LEAST_MIRRORED 7    // taps of a row that share its addition
#define LEAST_GAIN 1        // multiplications of one pass per one of two passes
#define LEAST_SAMPLE_SIDE 7 // below it, one pass multiplies little more

// An upper bound of the magnitude of sums and partial sums for any image.
static int64_t sum_bound(const struct conv_stencil *stencil)
{
    int64_t magnitude = 0;
    for (int i = 0; i < stencil->width * stencil->height; i++)
        magnitude += llabs(stencil->icoef[i]);
    return magnitude * stencil->max + llabs(stencil->bias);
}

// floats.h computes fl(N / d), one correctly rounded division (by a power of two: a multiplication
// without error), and rounds that half to even. With B bits a sample, N and d integers of at most P
// significant bits (24 or 53):
//   a tie N / d = k + 1/2 with k < 2^B has B + 1 bits, so the division is exact;
//   any other quotient is at least 1 / (2d) from a tie and moves by at most half a unit in the last
//   place, 2^(B-1-P) where N / d < 2^B; it stays on its side if d < 2^(P-B).
// Quotients beyond 2^B stay beyond max - 1/2, as division rounds monotonically, and are clamped.
static bool division_is_exact(const struct conv_stencil *stencil, int precision)
{
    int64_t divisor = stencil->divisor;
    bool power_of_two = (divisor & (divisor - 1)) == 0;
    return sum_bound(stencil) <= (int64_t)1 << precision &&
           (power_of_two || divisor < (int64_t)1 << (precision - stencil->depth));
}

int conv_cpu_order(int *order, int *singles, const struct conv_stencil *stencil)
{
    const float *coef = stencil->fcoef;
    int side = stencil->width, count = 0;
    bool pairs = stencil->symmetric;
    for (int i = 0; i < side * stencil->height; i++)
        if (coef[i] != 0 && (!pairs || i / side == i % side))
            order[count++] = i;
    *singles = count;
    for (int d = 1; d < side && pairs; d++)
        for (int j = 0; j < side - d; j++)
            if (coef[j * side + j + d] != 0) {
                order[count++] = j * side + j + d;
                order[count++] = (j + d) * side + j;
            }
    return count;
}

// If the division is exact in this sense, floats.h may compute fl(N * fl(1 / d)) instead. For d a
// power of two that is N / d. For an odd d there are no ties, and the error of two roundings, less
// than 2^(B-23), is smaller than the distance 1 / (2d) to the nearest half if d <= 2^(22-B).
bool conv_cpu_may_multiply(const struct conv_stencil *stencil)
{
    int64_t divisor = stencil->divisor;
    if (!stencil->exact || (divisor & (divisor - 1)) == 0)
        return true; // real filters have no divisor
    return !stencil->floats && divisor % 2 != 0 && divisor <= (int64_t)1 << (22 - stencil->depth);
}

// For exact stencils with float32 results: the quotient of two integers of at most 24 bits, rounded
// to float64 and then to float32, equals the quotient rounded to float32 directly (Figueroa, "When
// is double rounding innocuous?", 1995: 53 >= 2 * 24 + 2). So floats.h divides floats if every sum
// fits them, and doubles otherwise.
static enum conv_cpu_sums sums_of_floats(const struct conv_stencil *stencil)
{
    int64_t bound = sum_bound(stencil);
    if (bound <= 1 << 24 && stencil->divisor <= 1 << 24)
        return CONV_CPU_FLOATS;
    return bound <= (int64_t)1 << 53 ? CONV_CPU_DOUBLES : CONV_CPU_NONE;
}

// With a threshold: the conditions of sums_of_floats or division_is_exact, and the sums' type must
// also hold the sample times the divisor and its difference from the sum.
static enum conv_cpu_sums sums_of_kept(const struct conv_stencil *stencil)
{
    if (!stencil->exact)
        return CONV_CPU_FLOATS;
    int64_t bound = sum_bound(stencil) + stencil->max * stencil->divisor;
    enum conv_cpu_sums sums;
    if (stencil->floats)
        sums = sums_of_floats(stencil);
    else
        sums = division_is_exact(stencil, 24)   ? CONV_CPU_FLOATS
               : division_is_exact(stencil, 53) ? CONV_CPU_DOUBLES
                                                : CONV_CPU_NONE;
    if (sums == CONV_CPU_FLOATS && bound > 1 << 24)
        sums = CONV_CPU_DOUBLES;
    return bound <= (int64_t)1 << 53 ? sums : CONV_CPU_NONE;
}

// Whether rows of samples can be added to those as far below the centre before they are multiplied:
// half as many multiplications. No sum is larger than what sum_bound allows for.
static bool is_mirrored(const struct conv_stencil *stencil)
{
    const int32_t *coef = stencil->icoef;
    int width = stencil->width, height = stencil->height;
    for (int j = 0; j < height / 2; j++)
        for (int i = 0; i < width; i++)
            if (coef[j * width + i] != coef[(height - 1 - j) * width + i])
                return false;
    return width >= LEAST_MIRRORED && height >= LEAST_MIRRORED;
}

// Sets column, row and plain if the stencil has integer factors; else false.
static bool find_factors(struct conv_cpu_plan *plan, const struct conv_stencil *stencil)
{
    if (!conv_stencil_factors(stencil, plan->column, plan->row))
        return false;
    plan->plain = true;
    for (int j = 0; j < stencil->height; j++)
        plan->plain = plan->plain && plan->column[j] == 1;
    return true;
}

// True if no coefficient exceeds `most` in magnitude. Scheduled taps hold coefficients of that size
// (tap_schedule.c), and only the complete sum has to fit: everything before is modulo 2^32.
static bool has_coefs_within(const struct conv_cpu_plan *plan, const struct conv_stencil *stencil,
                             int most)
{
    const int32_t *coefs = plan->separable ? plan->row : stencil->icoef;
    int count = stencil->width * (plan->separable ? 1 : stencil->height);
    for (int i = 0; i < count; i++)
        if (abs(coefs[i]) > most)
            return false;
    return true;
}

static int count_taps(const struct conv_stencil *stencil)
{
    int count = 0;
    for (int i = 0; i < stencil->width * stencil->height; i++)
        count += stencil->icoef[i] != 0;
    return count;
}

// For larger coefficients in a matrix: the schedule may still hold them all, since one load covers
// 127 of each magnitude and most are small. A load costs about as much as a tap of doubles; of
// floats, only where a quad is one instruction.
static bool has_few_quads(const struct conv_cpu_plan *plan, const struct conv_stencil *stencil)
{
    if (plan->separable || (plan->quads == CONV_CPU_QUADS_SLOW && division_is_exact(stencil, 24)))
        return false;
    int count = conv_cpu_quads_count(stencil, 0);
    return count <= CONV_CPU_MAX_TAPS && count < count_taps(stencil);
}

static bool pays_separable(const struct conv_stencil *stencil, enum conv_cpu_quads quads)
{
    int least = quads != CONV_CPU_QUADS_SLOW && stencil->depth == 8 ? 15 : 9;
    return stencil->width > 1 && stencil->height > 1 && stencil->width * stencil->height >= least;
}

static uint32_t sum_coefs(const int32_t *coefs, int count)
{
    uint32_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += (uint32_t)coefs[i];
    return sum;
}

// Samples that are converted to signed are smaller by half their range; the sums lack that amount
// times the coefficients.
static void plan_lift(struct conv_cpu_plan *plan, const struct conv_stencil *stencil)
{
    uint32_t sum = plan->separable ? sum_coefs(plan->row, stencil->width)
                                   : sum_coefs(stencil->icoef, stencil->width * stencil->height) -
                                         (uint32_t)plan->sample;
    if (plan->sums == CONV_CPU_WORDS)
        plan->lift = sum << 15;
    else if (plan->sums == CONV_CPU_QUADS && plan->quads == CONV_CPU_QUADS_SIGNED)
        plan->lift = sum << 7;
}

// True for 3x3 and 5x5 if one multiplication can handle any two neighbouring coefficients.
static bool fits_direct(const struct conv_stencil *stencil)
{
    int side = stencil->width;
    if (stencil->height != side || (side != 3 && side != 5))
        return false;
    for (int j = 0; j < side; j++) {
        for (int i = 0; i <= side; i++) {
            const int32_t *row = &stencil->icoef[j * side];
            uint32_t packed;
            if (!conv_cpu_tap_pack_pair(&packed, i > 0 ? row[i - 1] : 0, i < side ? row[i] : 0))
                return false;
        }
    }
    return true;
}

// Chooses two passes and a multiple of the sample, with or without a threshold, if possible; true
// if chosen.
static bool plan_sample_passes(struct conv_cpu_plan *plan, const struct conv_stencil *stencil)
{
    struct conv_cpu_rounding rounding;
    if (stencil->depth != 8 || stencil->floats || stencil->width < LEAST_SAMPLE_SIDE ||
        stencil->height < LEAST_SAMPLE_SIDE || !conv_cpu_rounding_wide(&rounding, stencil) ||
        !conv_stencil_sample_factors(stencil, &plan->sample, plan->column, plan->row))
        return false;
    plan->separable = true;
    if (!has_coefs_within(plan, stencil, 254)) {
        plan->separable = false;
        plan->sample = 0;
        return false;
    }
    plan->sums = CONV_CPU_QUADS;
    plan_lift(plan, stencil);
    return true;
}

// Chooses quads and a multiple of the sample, with or without a threshold, for a matrix with a
// large coefficient at its centre, as sharpening filters have; true if chosen. A load costs as much
// as a tap of floats, or two where a quad takes several instructions.
static bool plan_sample_taps(struct conv_cpu_plan *plan, const struct conv_stencil *stencil)
{
    struct conv_cpu_rounding rounding;
    int32_t centre = stencil->icoef[stencil->width * stencil->height / 2];
    if (!stencil->exact || stencil->depth != 8 || stencil->floats || abs(centre) <= 254 ||
        !conv_cpu_rounding_wide(&rounding, stencil) ||
        (stencil->keeps ? sum_bound(stencil) + stencil->max * stencil->divisor > INT32_MAX
                        : conv_cpu_rounding_narrow(&rounding, stencil)) ||
        (pays_separable(stencil, plan->quads) && find_factors(plan, stencil)))
        return false;
    int count = conv_cpu_quads_count(stencil, centre);
    if (count > CONV_CPU_MAX_TAPS ||
        count * (plan->quads == CONV_CPU_QUADS_SLOW ? 2 : 1) >= count_taps(stencil))
        return false;
    plan->sample = centre;
    plan->sums = CONV_CPU_QUADS;
    plan_lift(plan, stencil);
    return true;
}

// Chooses two passes of doubles instead of one pass of floats or doubles if they multiply less and
// all of their sums fit doubles. An operation on floats has twice as many lanes, and the passes
// load and convert samples as well. The quotients are then those of doubles: division_is_exact
// holds for all divisors of 31 bits, and float32 results are defined by such a division.
static void plan_products(struct conv_cpu_plan *plan, const struct conv_stencil *stencil)
{
    struct conv_stencil_products products;
    int taps = count_taps(stencil) / (plan->sums == CONV_CPU_FLOATS ? 2 : 1);
    if (stencil->magnitude || taps <= LEAST_GAIN * (stencil->width + stencil->height) ||
        !conv_stencil_find_products(stencil, &products) ||
        taps <= LEAST_GAIN * products.count * (stencil->width + stencil->height))
        return;
    double bound = products.magnitude * stencil->max + fabs((double)stencil->bias);
    if (stencil->keeps)
        bound += (double)stencil->max * (double)stencil->divisor;
    if (bound > 0x1p53)
        return;
    plan->sums = CONV_CPU_DOUBLES;
    plan->products = true;
}

static void plan_sums(struct conv_cpu_plan *plan, const struct conv_stencil *stencil,
                      enum conv_cpu_quads quads, bool pairs)
{
    struct conv_cpu_rounding rounding;
    int outer, inner;
    *plan = (struct conv_cpu_plan){.sums = CONV_CPU_FLOATS, .quads = quads};
    if (stencil->depth == 32) {
        // A magnitude's taps are kept twice.
        int lists = stencil->magnitude ? 2 : 1;
        bool fits = lists * stencil->width * stencil->height <= CONV_FILTER_MAX_TAPS;
        plan->sums = fits || stencil->real.side ? CONV_CPU_SAMPLES : CONV_CPU_NONE;
        return;
    }
    if (stencil->channels > 1) {
        plan->sums = CONV_CPU_NONE;
        return;
    }
    if (stencil->magnitude)
        plan->sums =
            conv_stencil_smoothing(stencil, &outer, &inner) ? CONV_CPU_GRADIENT : CONV_CPU_NONE;
    else if (plan_sample_passes(plan, stencil) || plan_sample_taps(plan, stencil))
        return;
    else if (stencil->keeps)
        plan->sums = sums_of_kept(stencil);
    else if (stencil->exact && stencil->floats)
        plan->sums = sums_of_floats(stencil);
    if (!stencil->exact || stencil->floats || stencil->keeps)
        return;
    bool wide = conv_cpu_rounding_wide(&rounding, stencil);
    bool fast = quads != CONV_CPU_QUADS_SLOW;
    plan->narrow = conv_cpu_rounding_narrow(&rounding, stencil);
    plan->separable = pays_separable(stencil, quads) && find_factors(plan, stencil);
    bool one_pass = stencil->width == 3 || !plan->separable;
    plan->direct = pairs && plan->narrow && one_pass && fits_direct(stencil);
    if (plan->direct) {
        plan->separable = false;
        plan->sums = CONV_CPU_PAIRS;
        return;
    }
    bool fits_quads = wide && stencil->depth == 8 &&
                      (has_coefs_within(plan, stencil, 254) || has_few_quads(plan, stencil));
    if (fits_quads && (!plan->narrow || (fast && !plan->separable)))
        plan->sums = CONV_CPU_QUADS;
    else if (plan->narrow)
        plan->sums = CONV_CPU_PAIRS;
    else if (wide && stencil->depth == 16 && has_coefs_within(plan, stencil, 32767))
        plan->sums = CONV_CPU_WORDS;
    else if (!division_is_exact(stencil, 24))
        plan->sums = division_is_exact(stencil, 53) ? CONV_CPU_DOUBLES : CONV_CPU_NONE;
    plan_lift(plan, stencil);
}

void conv_cpu_plan_init(struct conv_cpu_plan *plan, const struct conv_stencil *stencil,
                        enum conv_cpu_quads quads, bool pairs)
{
    plan_sums(plan, stencil, quads, pairs);
    if (!stencil->exact || (plan->sums != CONV_CPU_FLOATS && plan->sums != CONV_CPU_DOUBLES))
        return;
    plan_products(plan, stencil);
    plan->mirrored = !plan->products && is_mirrored(stencil);
}

size_t conv_cpu_line_bytes(const struct conv_stencil *stencil)
{
    return CONV_CPU_LINE * (size_t)(stencil->depth / 8);
}

// Two 16-bit sums for two 8-bit samples, four 32-bit sums for four 8-bit samples, two 32-bit sums
// for two 16-bit samples.
size_t conv_cpu_sums_bytes(const struct conv_stencil *stencil, const struct conv_cpu_plan *plan)
{
    return conv_cpu_line_bytes(stencil) * (plan->sums == CONV_CPU_QUADS ? 4 : 2);
}

// Direct: a ring of edges, and two rows, each rounded up to blocks. Dots: a ring with one line more
// than the stencil has, of samples or of sums, and two lines of samples. Floats: a ring of lines of
// floats, a line of samples, and lines of doubles if there are products or of floats if
// mirrored. Gradients: four lines of
// samples and two of sums, of the largest types.
void conv_cpu_plan_scratch(const struct conv_cpu_plan *plan, const struct conv_stencil *stencil,
                           size_t *fixed, size_t *per_column)
{
    size_t rows = (size_t)stencil->height, line = conv_cpu_line_bytes(stencil);
    *per_column = plan->direct ? 2 : 0;
    if (plan->direct)
        *fixed = (size_t)CONV_CPU_EDGE_LINES * CONV_CPU_EDGES + 2 * (size_t)CONV_CPU_BLOCK;
    else if (plan->sums == CONV_CPU_GRADIENT)
        *fixed = CONV_CPU_LINE * (4 * sizeof(uint16_t) + 2 * sizeof(float));
    else if (plan->sums >= CONV_CPU_FLOATS)
        *fixed = CONV_CPU_LINE * rows * sizeof(float) + line +
                 (plan->mirrored ? CONV_CPU_LINE * (rows / 2) * sizeof(float) : 0) +
                 (plan->products ? CONV_STENCIL_MOST_PRODUCTS * CONV_CPU_LINE * sizeof(double) : 0);
    else
        *fixed =
            (rows + 1) * (plan->separable ? conv_cpu_sums_bytes(stencil, plan) : line) + 2 * line;
}
