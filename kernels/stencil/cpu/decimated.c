// SPDX-License-Identifier: MIT
// Large Gaussians by way of a coarse image (struct conv_decimated), compiled once per instruction
// set (CMakeLists.txt), which CONV_ISA_... names, and once for any processor: the definition. Rows
// stream through: source rows are added to four coarse rows, coarse rows pass through a ring to
// filtered rows, and four of these at the source's width make `step` rows of results. Float64 holds
// all sums of integers exactly, so that vectors may add them in any order.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "kernels/stencil/cpu/cpu_internal.h"

// Vectors of 64 bytes take 10 to 30 % more time for 8-bit samples.
#if defined CONV_ISA_AVX512
#define DECIMATED conv_cpu_decimated_avx512
#define SUFFIX "_avx512"
#define SUMMARY "samples of 16 and 32 bits with vectors of 64 bytes"
#define NEEDS CONV_CPU_AVX512
#define SCORE 50
#elif defined CONV_ISA_AVX2
#define DECIMATED conv_cpu_decimated_avx2
#define SUFFIX "_avx2"
#define SUMMARY "the same with vectors of 32 bytes"
#define NEEDS CONV_CPU_AVX2
#define SCORE 40
#else
#define DECIMATED conv_cpu_decimated
#define SUFFIX ""
#define SUMMARY "the definition of large Gaussians: by way of a coarse image"
#define NEEDS 0
#define SCORE CONV_SCORE_LAST
#endif

#ifdef CONV_COMPILE_ONCE
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#define MOST_STEP CONV_DECIMATED_MAX_STEP
// Sums that the compiler keeps in registers; as many spare samples end the lines of a coarse image.
#define BLOCK 32
#define ROW_BLOCK 16 // columns of four of these

// The weights as factors. Pixel i after coarse sample m counts down[k][i] in sample m - 1 + k and
// depends by up[k][i] on it.
struct factors {
    double down[4][MOST_STEP], up[4][MOST_STEP], line[CONV_DECIMATED_MAX_RADIUS + 1];
    float down_floats[4][MOST_STEP];
    double unit;         // of a sample of the source, in coarse samples
    double fine;         // of a coarse sample, in filtered ones
    double one;          // of a sample of the source in what is rounded before it is sharpened
    double blurred;      // of a filtered sample in that; without an amount, in samples
    double amount, keep; // keep: of samples in filtered ones times CONV_DECIMATED_AMOUNT
};
_Static_assert(sizeof(struct factors) <= CONV_STENCIL_PLAN_BYTES, "constants fit");

// The coarse samples that filtered ones depend on begin at -radius - 1. Numbers of an axis of n
// pixels:
static int count_filtered(const struct conv_decimated *d, int n)
{
    return (n - 1) / d->step + 4; // from -1 on
}

static int count_coarse(const struct conv_decimated *d, int n)
{
    return count_filtered(d, n) + 2 * d->radius;
}

static int count_pitch(const struct conv_decimated *d, int n)
{
    return count_coarse(d, n) + 3 + BLOCK;
}

struct rows {
    const struct conv_stencil *stencil;
    const struct factors *factors;
    const struct conv_stencil_plane *plane;
    int pitch;         // of the lines of coarse samples
    void *down[4];     // sums over source rows, for coarse row m: [m & 3]
    double *phases;    // one of them with its border: pixel i after each coarse sample in line i
    double *coarse;    // ring of 2 * radius + 1 lines
    double *column;    // sums over coarse rows
    double *filtered;  // a line
    double *wide[4];   // the same at the source's width, for filtered row m: [m & 3]
    uint8_t *constant; // a row of border values
};

static void plan_integers(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    struct factors *factors = (struct factors *)(void *)plan->constants;
    const struct conv_decimated *d = &stencil->decimated;
    size_t lines = (size_t)(2 * d->radius + 1 + 2 + d->step), step = (size_t)d->step;
    size_t extra = (size_t)count_pitch(d, 1) + 1;
    for (int i = 0; i < d->step; i++)
        for (int k = 0; k < 4; k++) {
            int away = i < (k - 1) * d->step ? (k - 1) * d->step - i : i - (k - 1) * d->step;
            factors->down[k][i] = away < 2 * d->step ? d->down[away] / 65536.0 : 0;
            factors->down_floats[k][i] = (float)factors->down[k][i];
            factors->up[k][i] = d->up[i][k] / 1024.0;
        }
    for (int i = 0; i <= d->radius; i++)
        factors->line[i] = d->line[i] / 65536.0;
    factors->unit = stencil->depth == 8 ? 256 : 1;
    factors->fine = stencil->depth == 8 ? 1.0 / 16 : 16;
    factors->one = stencil->depth == 8 ? 4096 : factors->fine;
    factors->blurred = (d->amount ? factors->one : 1) / (factors->unit * factors->fine);
    factors->amount = d->amount;
    factors->keep = (double)stencil->keep_below;
    plan->cpu.scratch_per_column =
        8 * sizeof(double) + sizeof(float) + (lines * sizeof(double) + step - 1) / step;
    plan->cpu.scratch_fixed = lines * extra * sizeof(double);
}

// The nearest integer, halves up. `tie` decides these: less than the unit of which all values are
// multiples, and so large that the first sum is exact. The compiler keeps the order.
INLINE double nearest(double value, double tie)
{
    return (value + tie) + 0x1.8p52 - 0x1.8p52;
}
#define COARSE_TIE 0x1p-33    // multiples of 2^-32 below 2^20
#define BLURRED_TIE 0x1p-37   // of 2^-36 below 2^16: filtered samples of 8 bits as well
#define SHARPENED_TIE 0x1p-24 // of 2^-23

// Products are exact (float32 or integers times weights of up to 17 bits), so that it makes no
// difference whether the instruction set can fuse them with the addition.
INLINE double add_product(double sum, double weight, double value)
{
#ifdef __FMA__
    return __builtin_fma(weight, value, sum);
#else
    return sum + weight * value;
#endif
}

INLINE double load(const void *row, int x, int depth)
{
    return depth == 8 ? ((const uint8_t *)row)[x] : ((const uint16_t *)row)[x];
}

// --- from the source to coarse samples -----------------------------------------------------------

// The sums of 8-bit samples are integers of at most 24 bits, which float32 holds.
INLINE double sum_at(const void *sums, int x, int depth)
{
    return depth == 8 ? (double)((const float *)sums)[x] : ((const double *)sums)[x];
}

// Adds the rows after coarse row m to the sums of m - 1 to m + 2 at columns x to x + count - 1,
// which stay in registers if `count` is a constant.
INLINE void add_floats(const struct rows *r, const void *const *rows, int m, int x, int count)
{
    float sum[4][ROW_BLOCK], value[ROW_BLOCK];
    for (int k = 0; k < 4; k++)
        memcpy(sum[k], (float *)r->down[(m - 1 + k) & 3] + x, (size_t)count * sizeof(float));
    for (int i = 0; i < r->stencil->decimated.step; i++) {
        const uint8_t *row = (const uint8_t *)rows[i] + x;
        for (int n = 0; n < count; n++)
            value[n] = (float)row[n];
        for (int k = 0; k < 4; k++) {
            float weight = r->factors->down_floats[k][i];
            for (int n = 0; n < count; n++)
                sum[k][n] += weight * value[n];
        }
    }
    for (int k = 0; k < 4; k++)
        memcpy((float *)r->down[(m - 1 + k) & 3] + x, sum[k], (size_t)count * sizeof(float));
}

INLINE void add_doubles(const struct rows *r, const void *const *rows, int m, int x, int count,
                        int depth)
{
    double sum[4][ROW_BLOCK], value[ROW_BLOCK];
    for (int k = 0; k < 4; k++)
        memcpy(sum[k], (double *)r->down[(m - 1 + k) & 3] + x, (size_t)count * sizeof(double));
    for (int i = 0; i < r->stencil->decimated.step; i++) {
        for (int n = 0; n < count; n++)
            value[n] = load(rows[i], x + n, depth);
        for (int k = 0; k < 4; k++) {
            double weight = r->factors->down[k][i];
            for (int n = 0; n < count; n++)
                sum[k][n] = add_product(sum[k][n], weight, value[n]);
        }
    }
    for (int k = 0; k < 4; k++)
        memcpy((double *)r->down[(m - 1 + k) & 3] + x, sum[k], (size_t)count * sizeof(double));
}

INLINE void add_step(const struct rows *r, int m, int depth)
{
    const struct conv_stencil_plane *plane = r->plane;
    int step = r->stencil->decimated.step, x = 0, rest = plane->width % ROW_BLOCK;
    const void *rows[MOST_STEP];
    for (int i = 0; i < step; i++) {
        int y = conv_border_index(r->stencil->border, m * step + i, plane->height);
        rows[i] = y < 0 ? r->constant : plane->src + y * plane->src_stride;
    }
    memset(r->down[(m + 2) & 3], 0, (size_t)plane->width * sizeof(double));
    for (; x < plane->width - rest; x += ROW_BLOCK) {
        if (depth == 8)
            add_floats(r, rows, m, x, ROW_BLOCK);
        else
            add_doubles(r, rows, m, x, ROW_BLOCK, depth);
    }
    if (depth == 8)
        add_floats(r, rows, m, x, rest);
    else
        add_doubles(r, rows, m, x, rest, depth);
}

// The sums of a coarse row, with the border to the left and right, by their place after a coarse
// sample.
INLINE void split_phases(const struct rows *r, const void *sums, int depth)
{
    const struct conv_decimated *d = &r->stencil->decimated;
    int width = r->plane->width, x = -d->step * (d->radius + 3);
    double constant = r->stencil->border_value;
    for (int q = 0; q < count_coarse(d, width) + 3; q++, x += d->step) {
        double *phase = r->phases + q;
        bool inside = x >= 0 && x + d->step <= width;
        for (int i = 0; i < d->step; i++, phase += r->pitch) {
            int from = inside ? x + i : conv_border_index(r->stencil->border, x + i, width);
            *phase = from < 0 ? constant : sum_at(sums, from, depth);
        }
    }
}

static void make_coarse(const struct rows *r, double *coarse)
{
    const struct conv_decimated *d = &r->stencil->decimated;
    const struct factors *factors = r->factors;
    int count = count_coarse(d, r->plane->width);
    for (int at = 0; at < count; at += BLOCK) {
        double sum[BLOCK] = {0};
        for (int k = 3; k >= 0; k--)
            for (int i = 0; i < d->step; i++) {
                const double *line = r->phases + i * r->pitch + at + 3 - k;
                double factor = factors->down[k][i];
                for (int x = 0; x < BLOCK; x++)
                    sum[x] = add_product(sum[x], factor, line[x]);
            }
        for (int x = 0; x < BLOCK; x++)
            coarse[at + x] = nearest(sum[x] * factors->unit, COARSE_TIE);
    }
}

// --- the coarse image ----------------------------------------------------------------------------

static double *ring_line(const struct rows *r, int m)
{
    int lines = 2 * r->stencil->decimated.radius + 1, line = m % lines;
    return r->coarse + (line < 0 ? line + lines : line) * r->pitch;
}

// A line times the weights: from lines above and below (by line), or from neighbours in one.
INLINE void add_pairs(const struct rows *r, double *sum, const double *centre, int m, int at,
                      bool across)
{
    const double *weights = r->factors->line;
    for (int x = 0; x < BLOCK; x++)
        sum[x] = weights[0] * centre[x];
    for (int i = 1; i <= r->stencil->decimated.radius; i++) {
        const double *before = across ? centre - i : ring_line(r, m - i) + at;
        const double *after = across ? centre + i : ring_line(r, m + i) + at;
        for (int x = 0; x < BLOCK; x++)
            sum[x] = add_product(sum[x], weights[i], before[x] + after[x]);
    }
}

// Filtered row m at the source's width.
static void make_filtered(const struct rows *r, int m)
{
    const struct conv_decimated *d = &r->stencil->decimated;
    double tie = r->stencil->depth == 8 ? BLURRED_TIE : COARSE_TIE;
    int width = r->plane->width;
    for (int at = 0; at < count_coarse(d, width); at += BLOCK) {
        double sum[BLOCK];
        add_pairs(r, sum, ring_line(r, m) + at, m, at, false);
        for (int x = 0; x < BLOCK; x++)
            r->column[at + x] = sum[x];
    }
    for (int at = 0; at < count_filtered(d, width); at += BLOCK) {
        double sum[BLOCK];
        add_pairs(r, sum, r->column + d->radius + at, m, at, true);
        for (int x = 0; x < BLOCK; x++)
            r->filtered[at + x] = nearest(sum[x] * r->factors->fine, tie);
    }
    double *wide = r->wide[m & 3];
    int whole = (width - 1) / d->step + 1;
    for (int i = 0; i < d->step; i++) {
        double up[4], *phase = r->phases + i * r->pitch;
        for (int k = 0; k < 4; k++)
            up[k] = r->factors->up[k][i];
        for (int q = 0; q < whole; q++) {
            const double *near = r->filtered + q;
            double sum = add_product(near[0] * up[0], up[1], near[1]);
            phase[q] = add_product(add_product(sum, up[2], near[2]), up[3], near[3]);
        }
    }
    for (int q = 0, x = 0; q < whole; q++)
        for (int i = 0; i < d->step && x < width; i++, x++)
            wide[x] = r->phases[i * r->pitch + q];
}

// --- results -------------------------------------------------------------------------------------

// Columns x to x + count - 1 of row y.
INLINE void write_block(const struct rows *r, int y, int x, int count, int depth, bool floats,
                        bool sharpens)
{
    const struct factors *factors = r->factors;
    int step = r->stencil->decimated.step, m = y / step, i = y % step;
    const double *above = r->wide[(m - 1) & 3] + x, *near = r->wide[m & 3] + x;
    const double *next = r->wide[(m + 1) & 3] + x, *below = r->wide[(m + 2) & 3] + x;
    double unit = factors->blurred, up0 = factors->up[0][i] * unit, up1 = factors->up[1][i] * unit;
    double up2 = factors->up[2][i] * unit, up3 = factors->up[3][i] * unit, one = factors->one;
    double amount = factors->amount, keep = factors->keep, max = r->stencil->max;
    const uint8_t *src = r->plane->src + y * r->plane->src_stride;
    uint8_t *dst = r->plane->dst + y * r->plane->dst_stride;
    double value[BLOCK];
    int32_t whole[BLOCK];
    for (int n = 0; n < count; n++) {
        double sum = add_product(above[n] * up0, up1, near[n]);
        sum = add_product(add_product(sum, up2, next[n]), up3, below[n]);
        value[n] = sharpens ? nearest(sum, COARSE_TIE) : sum;
    }
    for (int n = 0; n < count && sharpens; n++) {
        double sample = load(src, x + n, depth) * one, change = amount * (sample - value[n]);
        double sharp = (sample * CONV_DECIMATED_AMOUNT + change) * (1.0 / CONV_DECIMATED_AMOUNT);
        value[n] = (fabs(change) < keep ? sample : sharp) * (1 / one);
    }
    for (int n = 0; n < count && floats; n++)
        ((float *)(void *)dst)[x + n] = (float)value[n];
    for (int n = 0; n < count && !floats; n++) {
        double sample = nearest(value[n], sharpens ? SHARPENED_TIE : BLURRED_TIE);
        if (sharpens) {
            sample = sample < 0 ? 0 : sample;
            sample = sample > max ? max : sample;
        }
        whole[n] = (int32_t)sample;
    }
    for (int n = 0; n < count && !floats && depth == 8; n++)
        dst[x + n] = (uint8_t)whole[n];
    for (int n = 0; n < count && !floats && depth == 16; n++)
        ((uint16_t *)(void *)dst)[x + n] = (uint16_t)whole[n];
}

INLINE void write_row(const struct rows *r, int y, int depth, bool floats, bool sharpens)
{
    int x = 0, width = r->plane->width;
    for (; x + BLOCK <= width; x += BLOCK)
        write_block(r, y, x, BLOCK, depth, floats, sharpens);
    write_block(r, y, x, width - x, depth, floats, sharpens);
}

INLINE void write_rows(const struct rows *r, int from, int to, int depth)
{
    bool floats = r->stencil->floats, sharpens = r->stencil->decimated.amount != 0;
    for (int y = from; y < to; y++) {
        if (floats && sharpens)
            write_row(r, y, depth, true, true);
        else if (floats)
            write_row(r, y, depth, true, false);
        else if (sharpens)
            write_row(r, y, depth, false, true);
        else
            write_row(r, y, depth, false, false);
    }
}

// Rows [from, to), which are rows of the coarse samples first to last.
INLINE void filter_plane(const struct rows *r, int from, int to, int depth)
{
    const struct conv_decimated *d = &r->stencil->decimated;
    int first = from / d->step, last = (to - 1) / d->step, coarse = first - 1 - d->radius;
    for (int m = coarse - 2; m <= last + d->radius + 3; m++) {
        add_step(r, m, depth);
        if (m - 1 < coarse)
            continue; // begun by rows that were not added
        split_phases(r, r->down[(m - 1) & 3], depth);
        make_coarse(r, ring_line(r, m - 1));
        int filtered = m - 1 - d->radius, done = filtered - 2;
        if (filtered < first - 1)
            continue;
        make_filtered(r, filtered);
        int begin = done * d->step, end = begin + d->step;
        if (done >= first)
            write_rows(r, begin > from ? begin : from, end < to ? end : to, depth);
    }
}

static double *take(double **scratch, size_t count)
{
    *scratch += count;
    return *scratch - count;
}

static void set_rows(struct rows *r, const struct conv_stencil *stencil, double *scratch)
{
    const struct conv_decimated *d = &stencil->decimated;
    size_t width = (size_t)r->plane->width, pitch = (size_t)count_pitch(d, r->plane->width);
    r->stencil = stencil;
    r->pitch = (int)pitch;
    for (int k = 0; k < 4; k++) {
        r->down[k] = memset(take(&scratch, width), 0, width * sizeof(double));
        r->wide[k] = take(&scratch, width);
    }
    r->phases = take(&scratch, pitch * (size_t)d->step);
    r->coarse = take(&scratch, pitch * (size_t)(2 * d->radius + 1));
    r->column = take(&scratch, pitch);
    r->filtered = take(&scratch, pitch);
    r->constant = (uint8_t *)scratch;
    for (size_t x = 0; x < width && stencil->border == CONV_BORDER_CONSTANT; x++) {
        if (stencil->depth == 8)
            r->constant[x] = (uint8_t)stencil->border_value;
        else
            ((uint16_t *)(void *)r->constant)[x] = (uint16_t)stencil->border_value;
    }
}

static enum conv_status run_integers(const struct conv_stencil_plan *plan,
                                     const struct conv_stencil_batch *batch)
{
    struct rows r = {.factors = (const struct factors *)(const void *)plan->constants};
    for (int p = 0; p < batch->count; p++) {
        r.plane = &batch->planes[p];
        set_rows(&r, plan->stencil, batch->cpu.scratch);
        int from = batch->cpu.from, to = conv_cpu_end(batch, r.plane);
        if (plan->stencil->depth == 8)
            filter_plane(&r, from, to, 8);
        else
            filter_plane(&r, from, to, 16);
    }
    return CONV_OK;
}

#include "kernels/stencil/cpu/decimated_floats.h"

static void plan_decimated(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->depth == 32)
        plan_floats(stencil, plan);
    else
        plan_integers(stencil, plan);
}

static enum conv_status run_decimated(const struct conv_stencil_plan *plan,
                                      const struct conv_stencil_batch *batch)
{
    return plan->stencil->depth == 32 ? run_floats(plan, batch) : run_integers(plan, batch);
}

static bool can_decimated(const struct conv_stencil *stencil)
{
    return NEEDS != CONV_CPU_AVX512 || stencil->depth > 8;
}

static int score_decimated(const struct conv_stencil *, size_t)
{
    return SCORE;
}

const struct conv_variant DECIMATED = {
    .name = "cpu_decimated" SUFFIX,
    .summary = SUMMARY,
    .place = CONV_ON_CPU,
    .needs = NEEDS,
    .can = can_decimated,
    .score = score_decimated,
    .plan = plan_decimated,
    .run = run_decimated,
    .floats = true,
    .float_samples = true,
    .thresholds = true,
    .pixels = true, // of float32 samples
    .decimated = true,
};
