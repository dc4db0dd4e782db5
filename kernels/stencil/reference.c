// SPDX-License-Identifier: MIT
// The definition of a stencil, one sample after the other, without optimisations. Every other
// variant is compared with this one, byte for byte.
#include <math.h>
#include <stdlib.h>

#include "kernels/stencil/cpu/cpu_internal.h"

static int read_sample(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                       int x, int y)
{
    int sx = conv_border_sample(stencil->border, x, plane->width, stencil->channels);
    int sy = conv_border_index(stencil->border, y, plane->height);
    if (sx < 0 || sy < 0)
        return (int)stencil->border_value;
    const uint8_t *row = plane->src + sy * plane->src_stride;
    return stencil->depth == 16 ? ((const uint16_t *)(const void *)row)[sx] : row[sx];
}

// The same at any depth, as a float.
static float read_float(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                        int x, int y)
{
    int sx = conv_border_sample(stencil->border, x, plane->width, stencil->channels);
    int sy = conv_border_index(stencil->border, y, plane->height);
    if (sx < 0 || sy < 0)
        return stencil->border_value;
    if (stencil->depth != 32)
        return (float)read_sample(stencil, plane, x, y);
    return ((const float *)(const void *)(plane->src + sy * plane->src_stride))[sx];
}

// The same where tap i of a row, counted from the centre, leads to from column x.
static float read_tap(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                      int x, int i, int y)
{
    return read_float(stencil, plane, x + (stencil->depth == 32 ? i * stencil->channels : i), y);
}

static void write_sample(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                         int x, int y, int value)
{
    uint8_t *row = plane->dst + y * plane->dst_stride;
    if (stencil->depth == 16)
        ((uint16_t *)(void *)row)[x] = (uint16_t)value;
    else
        row[x] = (uint8_t)value;
}

static int64_t round_half_even(int64_t numerator, int64_t divisor)
{
    int64_t quotient = numerator / divisor;
    int64_t rest = numerator % divisor;
    if (rest < 0) { // C rounds towards zero: make it the floor
        quotient--;
        rest += divisor;
    }
    bool above = 2 * rest > divisor;
    bool tie = 2 * rest == divisor;
    return above || (tie && quotient % 2 != 0) ? quotient + 1 : quotient;
}

// The sum, or the sample in its place if it is near enough.
static int64_t keep_exact(const struct conv_stencil *stencil,
                          const struct conv_stencil_plane *plane, int x, int y, int64_t sum)
{
    if (!stencil->keeps)
        return sum;
    int64_t kept = read_sample(stencil, plane, x, y) * stencil->divisor + stencil->bias;
    return llabs(sum - kept) < stencil->keep_below ? kept : sum;
}

static float keep_real(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                       int x, int y, float sum)
{
    if (!stencil->keeps)
        return sum;
    float kept = stencil->fbias + read_float(stencil, plane, x, y);
    return fabsf(sum - kept) < stencil->fkeep_below ? kept : sum;
}

static int64_t sum_exact(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                         int x, int y)
{
    int left = x - stencil->width / 2, top = y - stencil->height / 2;
    int64_t sum = stencil->bias;
    for (int j = 0; j < stencil->height; j++)
        for (int i = 0; i < stencil->width; i++)
            sum += (int64_t)stencil->icoef[j * stencil->width + i] *
                   read_sample(stencil, plane, left + i, top + j);
    return keep_exact(stencil, plane, x, y, sum);
}

static float sum_real(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                      int x, int y)
{
    int width = stencil->width, left = -(width / 2), top = y - stencil->height / 2;
    bool pairs = stencil->symmetric; // then a is a diagonal, else a row
    float sum = stencil->fbias;
    for (int a = 0; a < stencil->height; a++) {
        for (int b = 0; b < (pairs ? width - a : width); b++) {
            int i = pairs ? a + b : b, j = pairs ? b : a;
            float coef = stencil->fcoef[j * width + i];
            float sample = read_tap(stencil, plane, x, left + i, top + j);
            if (pairs && a > 0)
                sample += read_tap(stencil, plane, x, left + j, top + i);
            if (coef != 0)
                sum = fmaf(coef, sample, sum);
        }
    }
    return keep_real(stencil, plane, x, y, sum);
}

static float sum_precise(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                         int x, int y)
{
    const struct conv_real *real = &stencil->real;
    int half = real->side / 2;
    double sum = (double)stencil->fbias;
    for (int k = 0; k < real->lines; k++)
        for (int i = 0; i < real->side; i++) {
            double down = 0;
            for (int j = 0; j < real->side; j++)
                down = fma(real->column[k][j],
                           (double)read_tap(stencil, plane, x, i - half, y + j - half), down);
            sum = fma(real->row[k][i], down, sum);
        }
    for (const struct conv_real_tap *tap = real->tap; tap < real->tap + real->taps; tap++)
        sum = fma(tap->coef, (double)read_tap(stencil, plane, x, tap->x, y + tap->y), sum);
    return keep_real(stencil, plane, x, y, (float)sum);
}

static float join_gradient(const struct conv_stencil *stencil, float gx, float gy)
{
    return sqrtf(gx * gx + gy * gy) / stencil->fdivisor + stencil->fbias;
}

// gx and gy are below 2^57, as the sums of exact filters are.
static float find_magnitude(const struct conv_stencil *stencil,
                            const struct conv_stencil_plane *plane, int x, int y)
{
    int side = stencil->width, left = x - side / 2, top = y - side / 2;
    int64_t across = 0, down = 0;
    for (int j = 0; j < side; j++) {
        for (int i = 0; i < side; i++) {
            int64_t sample = read_sample(stencil, plane, left + i, top + j);
            across += stencil->icoef[j * side + i] * sample;
            down += stencil->icoef[i * side + j] * sample;
        }
    }
    return join_gradient(stencil, (float)across, (float)down);
}

static float find_float_magnitude(const struct conv_stencil *stencil,
                                  const struct conv_stencil_plane *plane, int x, int y)
{
    int side = stencil->width, left = -(side / 2), top = y - side / 2;
    float across = 0, down = 0;
    for (int j = 0; j < side; j++) {
        for (int i = 0; i < side; i++) {
            float coef = stencil->fcoef[j * side + i];
            if (coef == 0)
                continue;
            across = fmaf(coef, read_tap(stencil, plane, x, left + i, top + j), across);
            down = fmaf(coef, read_tap(stencil, plane, x, left + j, top + i), down);
        }
    }
    return join_gradient(stencil, across, down);
}

// The result before it is rounded to an integer; for exact stencils only if results are float32.
static float filter_float(const struct conv_stencil *stencil,
                          const struct conv_stencil_plane *plane, int x, int y)
{
    if (stencil->magnitude)
        return stencil->depth == 32 ? find_float_magnitude(stencil, plane, x, y)
                                    : find_magnitude(stencil, plane, x, y);
    if (stencil->real.side)
        return sum_precise(stencil, plane, x, y);
    if (!stencil->exact)
        return sum_real(stencil, plane, x, y);
    return (float)((double)sum_exact(stencil, plane, x, y) / (double)stencil->divisor);
}

static int filter_sample(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                         int x, int y)
{
    if (stencil->exact) {
        int64_t value = round_half_even(sum_exact(stencil, plane, x, y), stencil->divisor);
        if (value < 0)
            return 0;
        return value > stencil->max ? stencil->max : (int)value;
    }
    float value = rintf(filter_float(stencil, plane, x, y));
    if (!(value > 0)) // NaN, which coefficients beyond float32's range can make, becomes 0
        return 0;
    return value > (float)stencil->max ? stencil->max : (int)value;
}

static void filter_row(const struct conv_stencil *stencil, const struct conv_stencil_plane *plane,
                       int y)
{
    float *floats = (float *)(void *)(plane->dst + y * plane->dst_stride);
    for (int x = 0; x < plane->width; x++) {
        if (stencil->floats)
            floats[x] = filter_float(stencil, plane, x, y);
        else
            write_sample(stencil, plane, x, y, filter_sample(stencil, plane, x, y));
    }
}

static int score_reference(const struct conv_stencil *, size_t)
{
    return CONV_SCORE_LAST;
}

static void plan_reference(const struct conv_stencil *stencil, struct conv_stencil_plan *plan)
{
    if (stencil->decimated.step)
        conv_cpu_decimated.plan(stencil, plan);
}

static enum conv_status run_reference(const struct conv_stencil_plan *plan,
                                      const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    if (stencil->decimated.step)
        return conv_cpu_decimated.run(plan, batch);
    for (int p = 0; p < batch->count; p++) {
        const struct conv_stencil_plane *plane = &batch->planes[p];
        for (int y = batch->cpu.from, end = conv_cpu_end(batch, plane); y < end; y++)
            filter_row(stencil, plane, y);
    }
    return CONV_OK;
}

const struct conv_variant conv_cpu_reference = {
    .name = "cpu_reference",
    .summary = "the definition, one sample after the other",
    .place = CONV_ON_CPU,
    .score = score_reference,
    .plan = plan_reference,
    .run = run_reference,
    .magnitudes = true,
    .floats = true,
    .float_samples = true,
    .thresholds = true,
    .pixels = true,
    .symmetric = true,
};
