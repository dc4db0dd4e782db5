// SPDX-License-Identifier: MIT
// The table of variants, the choice among them, and the analysis of a filter.
#include "kernels/stencil/stencil.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/stencil/cpu/cpu_internal.h"
#if CONV_HAVE_CUDA
#include "kernels/stencil/cuda/cuda_variants.h"
#endif

static const struct conv_variant *const variants[] = {
#if CONV_HAVE_CUDA
    &conv_cuda_tma_mma_wide,  &conv_cuda_tma_mma_wide16,
    &conv_cuda_tma_mma,       &conv_cuda_tma_mma_large,
    &conv_cuda_mma,           &conv_cuda_tma,
    &conv_cuda_separable,     &conv_cuda_tma_large,
    &conv_cuda_gradient,      &conv_cuda_blocked_floats,
    &conv_cuda_blocked,       &conv_cuda_decimated,
#endif
#ifdef __x86_64__
    &conv_cpu_separable_vnni, &conv_cpu_vnni,
    &conv_cpu_avx512,         &conv_cpu_avx2,
    &conv_cpu_sse41,
#endif
#ifdef __aarch64__
    &conv_cpu_neon_dot,       &conv_cpu_neon,
#endif
    &conv_cpu_portable,
#ifdef __x86_64__
    &conv_cpu_decimated_vnni, &conv_cpu_decimated_avx512,
    &conv_cpu_decimated_avx2,
#endif
    &conv_cpu_decimated,      &conv_cpu_reference,
};

const struct conv_variant *const *conv_stencil_variants(int *count)
{
    *count = (int)(sizeof variants / sizeof variants[0]);
    return variants;
}

bool conv_stencil_takes(const struct conv_variant *variant, const struct conv_stencil *stencil)
{
    bool decimated = stencil->decimated.step > 0;
    return (variant->decimated == decimated || variant == &conv_cpu_reference) &&
           (variant->magnitudes || !stencil->magnitude) && (variant->floats || !stencil->floats) &&
           (variant->float_samples || stencil->depth != 32) &&
           (variant->thresholds || !stencil->keeps) &&
           (variant->symmetric || !stencil->symmetric) &&
           (variant->pixels || stencil->channels == 1) && (!variant->can || variant->can(stencil));
}

bool conv_stencil_can(const struct conv_variant *variant, const struct conv_stencil *stencil,
                      unsigned have)
{
    return conv_place_offers(variant->place, have, variant->needs) &&
           conv_stencil_takes(variant, stencil);
}

const struct conv_variant *conv_stencil_pick(const struct conv_stencil *stencil,
                                             size_t launch_bytes, enum conv_place place,
                                             unsigned have, const char *name)
{
    const struct conv_variant *best = NULL;
    int best_score = -1;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        const struct conv_variant *variant = variants[i];
        if (variant->place != place || (name && strcmp(variant->name, name) != 0) ||
            !conv_stencil_can(variant, stencil, have))
            continue;
        int score = variant->score(stencil, launch_bytes);
        if (score > best_score) {
            best = variant;
            best_score = score;
        }
    }
    return best;
}

void conv_stencil_plan_init(struct conv_stencil_plan *plan, const struct conv_variant *variant,
                            const struct conv_stencil *stencil)
{
    *plan = (struct conv_stencil_plan){.variant = variant, .stencil = stencil};
    if (variant->plan)
        variant->plan(stencil, plan);
}

size_t conv_stencil_plan_scratch(const struct conv_stencil_plan *plan, int width)
{
    if (plan->variant->place != CONV_ON_CPU)
        return 0;
    return plan->cpu.scratch_fixed + (size_t)width * plan->cpu.scratch_per_column;
}

// Every magnitude is below 2^31 (CONV_FILTER_MAX_COEF), so the bias is below 2^16 * 257 * 2^31 <
// 2^56 and the sum of 961 taps of 16-bit samples below 2^57: everything here and in the reference
// fits 64 bits.
static void init_exact(struct conv_stencil *stencil, const struct conv_filter *filter, int unit)
{
    int sign = filter->scale < 0 ? -1 : 1;
    int64_t magnitude = 0;
    for (int i = 0; i < filter->width * filter->height; i++) {
        stencil->icoef[i] = (int32_t)filter->coef[i] * sign;
        magnitude += llabs(stencil->icoef[i]);
    }
    stencil->divisor = llabs((int64_t)filter->scale);
    stencil->bias = (int64_t)filter->offset * unit * stencil->divisor;
    if (stencil->keeps) {
        double below = ceil(filter->threshold * unit * (double)stencil->divisor);
        stencil->keep_below = below < 0x1p62 ? (int64_t)below : (int64_t)1 << 62;
        stencil->fkeep_below = below > 0x1p24 ? INFINITY : (float)below;
        magnitude += stencil->divisor; // of s - k
    }
    // Rounding adds half the divisor; the bound allows for all of it.
    int64_t bound = magnitude * stencil->max + llabs(stencil->bias) + stencil->divisor;
    stencil->fits_int32 = bound <= INT32_MAX;
}

static void init_real(struct conv_stencil *stencil, const struct conv_filter *filter, int unit)
{
    for (int i = 0; i < filter->width * filter->height; i++)
        stencil->fcoef[i] = (float)(filter->coef[i] / filter->scale);
    stencil->fbias = (float)(filter->offset * unit);
    stencil->fkeep_below = (float)(filter->threshold * unit);
    int side = stencil->width;
    stencil->symmetric = side == stencil->height && !stencil->keeps;
    for (int i = 0; i < side * side && stencil->symmetric; i++)
        stencil->symmetric = stencil->fcoef[i] == stencil->fcoef[i % side * side + i / side];
}

// Float32 samples get the coefficients that are not rounded.
static void init_precise(struct conv_stencil *stencil, const struct conv_filter *filter)
{
    stencil->real = filter->real;
    stencil->width = stencil->height = filter->real.side;
    stencil->fbias = (float)filter->offset;
    stencil->fkeep_below = (float)filter->threshold;
}

static void init_decimated(struct conv_stencil *stencil, const struct conv_filter *filter, int unit)
{
    double one = stencil->depth == 8 ? 4096 : 16;
    stencil->keep_below = (int64_t)ceil(filter->threshold * unit * one * CONV_DECIMATED_AMOUNT);
}

// Real weights for float32 samples: Gaussians of about one step to reduce and to enlarge, and the
// rest of the variance between. On any image and with any border, results are within 2^-20.8 of its
// range of those of the Gaussian, as the weights of all pixels show (python/tests/test_filter.py
// has the largest steps of each). With a sigma of V steps squared, sampling adds multiples of
// exp(-2 * pi^2 * NEAR * (V - NEAR) / V) or less, and the Gaussians end at 5.7 of their sigma.
#define NEAR 1.1        // variance, in steps squared
#define LEAST_STEPS 1.9 // of a sigma
#define LINE_CUT 5.7

static void init_coarse(struct conv_stencil *stencil, const struct conv_filter *filter)
{
    static const int steps[] = {32, 24, 16, 12, 8, 6, 4, 3, 2}; // all divide CONV_DECIMATED_GRID
    struct conv_coarse *coarse = &stencil->coarse;
    struct conv_decimated *d = &stencil->decimated;
    int s = 0, last = (int)(sizeof steps / sizeof steps[0]) - 1;
    while (s < last && filter->real.sigma < LEAST_STEPS * steps[s])
        s++;
    int step = d->step = steps[s], reach = CONV_COARSE_REACH * step;
    double sigma = filter->real.sigma / step, variance = sigma * sigma - 2 * NEAR, sum = 0;
    d->radius = (int)ceil(LINE_CUT * sqrt(variance));
    d->around = 2 * CONV_COARSE_REACH;
    for (int i = 0; i < reach; i++)
        sum += (i ? 2 : 1) * (coarse->near[i] = exp(-0.5 * i * i / (NEAR * step * step)));
    for (int i = 0; i < reach; i++)
        coarse->near[i] /= sum;
    for (int k = 0; k < step; k++) {
        sum = 0;
        for (int i = k - reach; i < reach; i += step)
            sum += abs(i) < reach ? coarse->near[abs(i)] : 0;
        coarse->scale[k] = 1 / sum;
    }
    sum = 0;
    for (int i = 0; i <= d->radius; i++)
        sum += (i ? 2 : 1) * (coarse->line[i] = exp(-0.5 * i * i / variance));
    for (int i = 0; i <= d->radius; i++)
        coarse->line[i] /= sum;
    coarse->amount = filter->real.gain;
    stencil->fkeep_below = (float)filter->threshold;
}

static void init_magnitude(struct conv_stencil *stencil, const struct conv_filter *filter, int unit)
{
    for (int i = 0; i < filter->width * filter->height; i++) {
        stencil->icoef[i] = (int32_t)filter->coef[i];
        stencil->fcoef[i] = (float)filter->coef[i];
    }
    stencil->fdivisor = (float)filter->scale;
    stencil->fbias = (float)(filter->offset * unit);
}

void conv_stencil_init(struct conv_stencil *stencil, const struct conv_filter *filter, int depth,
                       enum conv_border border, float border_value)
{
    // 257 * 255 = 65535: an 8-bit unit at 16 bits.
    int unit = depth == 16 ? 257 : 1;
    bool float_samples = depth == 32;
    *stencil = (struct conv_stencil){
        .width = filter->width,
        .height = filter->height,
        .channels = 1,
        .depth = depth,
        .max = float_samples ? 0 : 255 * unit,
        .border = border,
        .border_value = border_value * (float)unit,
        .exact = conv_filter_is_exact(filter) && !float_samples,
        .magnitude = filter->magnitude,
        .keeps = filter->threshold > 0 && !filter->magnitude,
        .floats = float_samples,
    };
    if (!float_samples)
        stencil->decimated = filter->decimated;
    if (float_samples && filter->real.sigma > 0)
        init_coarse(stencil, filter);
    else if (stencil->decimated.step)
        init_decimated(stencil, filter, unit);
    else if (stencil->magnitude)
        init_magnitude(stencil, filter, unit);
    else if (float_samples && filter->real.side)
        init_precise(stencil, filter);
    else if (stencil->exact)
        init_exact(stencil, filter, unit);
    else
        init_real(stencil, filter, unit);
}

bool conv_stencil_interleave(struct conv_stencil *stencil, int channels)
{
    int from = stencil->width, to = (from - 1) * channels + 1;
    if (stencil->depth == 32) {
        stencil->channels = channels;
        return true;
    }
    if (stencil->magnitude || stencil->symmetric || stencil->decimated.step ||
        to > CONV_FILTER_MAX_SIDE)
        return false;
    struct conv_stencil taps = *stencil;
    memset(stencil->icoef, 0, sizeof stencil->icoef);
    memset(stencil->fcoef, 0, sizeof stencil->fcoef);
    for (int j = 0; j < stencil->height; j++) {
        for (int i = 0; i < from; i++) {
            stencil->icoef[j * to + i * channels] = taps.icoef[j * from + i];
            stencil->fcoef[j * to + i * channels] = taps.fcoef[j * from + i];
        }
    }
    stencil->width = to;
    stencil->channels = channels;
    return true;
}

bool conv_stencil_factors(const struct conv_stencil *stencil, int32_t *column, int32_t *row)
{
    return stencil->exact &&
           conv_filter_factor(stencil->icoef, stencil->width, stencil->height, column, row);
}

bool conv_stencil_smoothing(const struct conv_stencil *stencil, int *outer, int *inner)
{
    const int32_t *coef = stencil->icoef;
    if (!stencil->magnitude || stencil->width != 3 || coef[2] != coef[8])
        return false;
    for (int j = 0; j < 3; j++)
        if ((int64_t)coef[3 * j] + coef[3 * j + 2] != 0 || coef[3 * j + 1] != 0)
            return false;
    if ((int64_t)coef[2] * coef[5] < 0 || 2 * llabs(coef[2]) + llabs(coef[5]) > 16)
        return false;
    *outer = abs(coef[2]);
    *inner = abs(coef[5]);
    return true;
}

uint32_t conv_stencil_tiles(const struct conv_variant *variant, struct conv_stencil_plane *planes,
                            int count)
{
    uint32_t tiles = 0;
    for (int i = 0; i < count; i++) {
        int32_t across = (planes[i].width - 1) / variant->tile_width + 1;
        int32_t down = (planes[i].height - 1) / variant->tile_height + 1;
        planes[i].cuda.first_tile = tiles;
        tiles += (uint32_t)across * (uint32_t)down;
    }
    return tiles;
}

size_t conv_stencil_cells(const struct conv_stencil *stencil, struct conv_stencil_plane *planes,
                          int count)
{
    const struct conv_decimated *d = &stencil->decimated;
    size_t at = 0;
    for (int i = 0; i < count && d->step; i++) {
        size_t border = 2 * (size_t)d->radius, around = (size_t)d->around;
        size_t width = (size_t)((planes[i].width - 1) / d->step) + around;
        size_t height = (size_t)((planes[i].height - 1) / d->step) + around;
        size_t rows = (height + border) * (size_t)planes[i].width; // of floats
        width = width / 2 * 2 + 2;                                 // even, and more
        size_t bytes = (width + border) * 2 * (height + border + 20) + width * height;
        bytes = stencil->depth == 32 ? (bytes + rows) * sizeof(double) : bytes * sizeof(uint32_t);
        planes[i].cuda.work_counter = (uint32_t)at;
        at += bytes / CONV_DECIMATED_CELLS_ALIGN + 1;
    }
    return at * CONV_DECIMATED_CELLS_ALIGN;
}
