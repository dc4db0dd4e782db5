// SPDX-License-Identifier: MIT
// The expected result of a case of check_kernels: a definition that shares no code with kernels/,
// and the comparison.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check_kernels.h"
#include "support/border.h"

// --- the definition ------------------------------------------------------------------------------

static int get_sample(const uint8_t *row, int depth, int x)
{
    return depth == 16 ? ((const uint16_t *)(const void *)row)[x] : row[x];
}

// The sample of a row of interleaved pixels that the border maps x to; -1: the constant.
static int walk_row(const struct check_case *c, int x, int n)
{
    int channels = c->stencil.channels, channel = x;
    while (channel < 0)
        channel += channels;
    channel %= channels;
    int pixel = step_inside(c->border, (x - channel) / channels, n / channels);
    return pixel < 0 ? -1 : pixel * channels + channel;
}

static int sample_at(const struct check_case *c, int p, int x, int y)
{
    int value = (int)c->border_value;
    const struct conv_stencil_plane *plane = &c->planes[p];
    x = walk_row(c, x, plane->width);
    y = step_inside(c->border, y, plane->height);
    if (x < 0 || y < 0)
        return c->stencil.depth == 16 ? value * 257 : value;
    return get_sample(plane->src + y * plane->src_stride, c->stencil.depth, x);
}

// The column of tap k of the filter for the result at column x.
static int tap_column(const struct check_case *c, int x, int k)
{
    return x + (k % c->filter.width - c->filter.width / 2) * c->stencil.channels;
}

static int tap_row(const struct check_case *c, int y, int k)
{
    return y + k / c->filter.width - c->filter.height / 2;
}

// From the filter as the user wrote it: the exact rational number, doubled so that halves are
// integers. *quotient: the number itself, rounded twice.
static int define_exact(const struct check_case *c, int p, int x, int y, float *quotient)
{
    const struct conv_filter *f = &c->filter;
    int unit = c->stencil.depth == 16 ? 257 : 1;
    __int128 scale = (__int128)f->scale, sum = (__int128)f->offset * unit * scale;
    for (int k = 0; k < f->width * f->height; k++)
        sum += (__int128)f->coef[k] * sample_at(c, p, tap_column(c, x, k), tap_row(c, y, k));
    if (scale < 0) {
        scale = -scale;
        sum = -sum;
    }
    __int128 kept = (sample_at(c, p, x, y) + (__int128)f->offset * unit) * scale, off = sum - kept;
    if (f->threshold > 0 && (double)(off < 0 ? -off : off) < f->threshold * unit * (double)scale)
        sum = kept;
    *quotient = (float)((double)sum / (double)scale);
    __int128 max = 255 * unit;
    if (sum < 0)
        return 0;
    if (sum > max * scale)
        return (int)max;
    __int128 value = (2 * sum + scale) / (2 * scale); // half up
    if (2 * sum + scale == 2 * scale * value && value % 2 != 0)
        value--;
    return (int)value;
}

// A sample as a float, at any depth.
static float float_at(const struct check_case *c, int p, int x, int y)
{
    const struct conv_stencil_plane *plane = &c->planes[p];
    int column = walk_row(c, x, plane->width);
    int row = step_inside(c->border, y, plane->height);
    if (c->stencil.depth != 32)
        return (float)sample_at(c, p, x, y);
    if (column < 0 || row < 0)
        return c->border_value;
    return ((const float *)(const void *)(plane->src + row * plane->src_stride))[column];
}

// In the order of stencil.h, with samples from the filter's own taps.
static float define_precise(const struct check_case *c, int p, int x, int y)
{
    const struct conv_real *f = &c->filter.real;
    int half = f->side / 2, channels = c->stencil.channels;
    double sum = (double)(float)c->filter.offset;
    for (int k = 0; k < f->lines; k++)
        for (int i = -half; i <= half; i++) {
            double down = 0;
            for (int j = -half; j <= half; j++)
                down = fma(f->column[k][half + j], float_at(c, p, x + i * channels, y + j), down);
            sum = fma(f->row[k][half + i], down, sum);
        }
    for (int k = 0; k < f->taps; k++)
        sum = fma(f->tap[k].coef, float_at(c, p, x + f->tap[k].x * channels, y + f->tap[k].y), sum);
    return (float)sum;
}

static float define_real(const struct check_case *c, int p, int x, int y)
{
    const struct conv_filter *f = &c->filter;
    int unit = c->stencil.depth == 16 ? 257 : 1;
    bool precise = c->stencil.depth == 32 && f->real.side, pairs = c->stencil.symmetric;
    float sum = precise ? define_precise(c, p, x, y) : (float)(f->offset * unit);
    for (int a = 0, w = f->width; a < f->height && !precise; a++)
        for (int b = 0; b < (pairs ? w - a : w); b++) {
            int k = pairs ? b * w + a + b : a * w + b, other = k % w * w + k / w;
            float coef = (float)(f->coef[k] / f->scale);
            float sample = float_at(c, p, tap_column(c, x, k), tap_row(c, y, k));
            if (k != other && pairs)
                sample += float_at(c, p, tap_column(c, x, other), tap_row(c, y, other));
            if (coef != 0)
                sum = fmaf(coef, sample, sum);
        }
    float kept = (float)(f->offset * unit) + float_at(c, p, x, y);
    return f->threshold > 0 && fabsf(sum - kept) < (float)(f->threshold * unit) ? kept : sum;
}

static bool is_integer(const struct conv_filter *f)
{
    bool integer = floor(f->scale) == f->scale && floor(f->offset) == f->offset;
    for (int k = 0; k < f->width * f->height; k++)
        integer = integer && floor(f->coef[k]) == f->coef[k];
    return integer;
}

static float define_magnitude(const struct check_case *c, int p, int x, int y)
{
    const struct conv_filter *f = &c->filter;
    int side = f->width, unit = c->stencil.depth == 16 ? 257 : 1;
    float g[2] = {0}; // sums of small integers, exact, but at 32 bits
    for (int k = 0; k < side * side; k++) {
        int at[2] = {k, k % side * side + k / side};
        for (int i = 0; i < 2 && f->coef[k] != 0; i++)
            g[i] = fmaf((float)f->coef[k],
                        float_at(c, p, tap_column(c, x, at[i]), tap_row(c, y, at[i])), g[i]);
    }
    float across = g[0] * g[0], down = g[1] * g[1], length = sqrtf(across + down);
    return length / (float)f->scale + (float)(f->offset * unit);
}

// The bits of a float, or a sample.
static unsigned define(const struct check_case *c, int p, int x, int y)
{
    float value;
    unsigned bits;
    if (is_integer(&c->filter) && !c->filter.magnitude && c->stencil.depth != 32) {
        int sample = define_exact(c, p, x, y, &value);
        if (!c->stencil.floats)
            return (unsigned)sample;
    } else {
        value = c->filter.magnitude ? define_magnitude(c, p, x, y) : define_real(c, p, x, y);
        if (!c->stencil.floats)
            return (unsigned)nearbyintf(fminf(fmaxf(value, 0), (float)c->stencil.max));
    }
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static unsigned get_result(const struct check_case *c, const uint8_t *row, int x)
{
    unsigned bits;
    if (!c->stencil.floats)
        return (unsigned)get_sample(row, c->stencil.depth, x);
    memcpy(&bits, row + 4 * (size_t)x, sizeof bits);
    return bits;
}

// --- the comparison ------------------------------------------------------------------------------

void check_case_print(const struct check_case *c)
{
    const struct conv_filter *f = &c->filter;
    printf(
        "  %s filter %dx%d, scale %.17g, offset %.17g, border %d (value %g), %d bits%s, %d channels"
        "\n  coef",
        c->kind, f->width, f->height, f->scale, f->offset, (int)c->border, (double)c->border_value,
        c->stencil.depth, c->stencil.floats ? " to float32" : "", c->stencil.channels);
    for (int k = 0; k < f->width * f->height; k++)
        printf(" %.17g", f->coef[k]);
    printf(", threshold %.17g\n", f->threshold);
    if (c->seed)
        printf("  again: the same command with --seed %" PRIu64 " --rounds 1\n", c->seed);
}

static bool is_nan(unsigned bits)
{
    return (bits & 0x7fffffff) > 0x7f800000;
}

// True if the results are equal; all NaNs count as equal.
static bool is_same(const struct check_case *c, unsigned a, unsigned b)
{
    return a == b || (c->stencil.floats && is_nan(a) && is_nan(b));
}

static void print_difference(const struct check_case *c, const char *variant, int p, int x, int y,
                             unsigned got, unsigned expected)
{
    const struct conv_stencil_plane *plane = &c->planes[p];
    printf("FAILED %s: plane %d of %d, %dx%d, strides %d -> %d, at (%d,%d): %#x, expected %#x\n",
           variant, p, c->count, plane->width, plane->height, (int)plane->src_stride,
           (int)plane->dst_stride, x, y, got, expected);
    check_case_print(c);
}

static bool check_definition(const struct check_case *c, int p)
{
    const struct conv_stencil_plane *plane = &c->planes[p];
    for (int y = 0; y < plane->height; y++) {
        for (int x = 0; x < plane->width; x++) {
            unsigned expected = define(c, p, x, y);
            unsigned got = get_result(c, plane->dst + y * plane->dst_stride, x);
            if (!is_same(c, got, expected)) {
                print_difference(c, "cpu_reference, compared with the definition", p, x, y, got,
                                 expected);
                return false;
            }
        }
    }
    return true;
}

static int64_t count_saturated(const struct check_case *c, int p)
{
    const struct conv_stencil_plane *plane = &c->planes[p];
    int max = c->stencil.depth == 16 ? 65535 : 255;
    int64_t saturated = 0;
    for (int y = 0; y < plane->height && !c->stencil.floats; y++) {
        for (int x = 0; x < plane->width; x++) {
            int sample = get_sample(plane->dst + y * plane->dst_stride, c->stencil.depth, x);
            saturated += sample == 0 || sample == max;
        }
    }
    return saturated;
}

bool check_case_expect(struct check_case *c, bool define)
{
    static struct conv_stencil_plan plan;
    struct conv_stencil_batch batch = {.planes = c->planes, .count = c->count};
    int64_t saturated = 0, samples = 0;
    check_case_clear(c);
    if (c->stencil.decimated.step) { // tests/cli/test_parametric.py has the definition
        if (!check_cpu_run(&conv_cpu_decimated, c))
            return false;
        define = false;
    } else {
        conv_stencil_plan_init(&plan, &conv_cpu_reference, &c->stencil);
        conv_cpu_reference.run(&plan, &batch);
    }
    for (int p = 0; p < c->count; p++) {
        memcpy(c->expected[p], c->dst[p].data, c->dst[p].size);
        samples += (int64_t)c->planes[p].width * c->planes[p].height;
        if (define && !check_definition(c, p))
            return false;
        saturated += count_saturated(c, p);
    }
    c->saturated = (double)saturated / (double)samples;
    return check_case_compare(c, "cpu_reference", false);
}

// True if every byte of dst that may not be written still holds the guard pattern: those before the
// first row, after each one, and after the last.
static bool check_guards(const struct check_case *c, int p, const char *variant, bool quiet)
{
    const struct conv_stencil_plane *plane = &c->planes[p];
    size_t row = (size_t)plane->width * check_case_result_bytes(c) + plane->dst_spare, at = 0;
    for (int y = 0; y <= plane->height; y++, at += row) {
        size_t next = CHECK_GUARD_BYTES + (size_t)y * (size_t)plane->dst_stride;
        size_t end = y < plane->height ? next : c->dst[p].size;
        while (at < end && c->dst[p].data[at] == CHECK_GUARD)
            at++;
        if (at == end)
            continue;
        if (!quiet) {
            printf("FAILED %s: plane %d of %d, %dx%d, stride %d: wrote to byte %td of dst\n",
                   variant, p, c->count, plane->width, plane->height, (int)plane->dst_stride,
                   (ptrdiff_t)at - CHECK_GUARD_BYTES);
            check_case_print(c);
        }
        return false;
    }
    return true;
}

bool check_case_compare(const struct check_case *c, const char *variant, bool quiet)
{
    for (int p = 0; p < c->count; p++) {
        const struct conv_stencil_plane *plane = &c->planes[p];
        if (!check_guards(c, p, variant, quiet))
            return false;
        size_t row = (size_t)plane->width * check_case_result_bytes(c);
        for (int y = 0; y < plane->height; y++) {
            const uint8_t *got = plane->dst + y * plane->dst_stride;
            const uint8_t *expected = c->expected[p] + CHECK_GUARD_BYTES + y * plane->dst_stride;
            if (memcmp(got, expected, row) == 0)
                continue;
            for (int x = 0; x < plane->width; x++) {
                unsigned g = get_result(c, got, x), e = get_result(c, expected, x);
                if (is_same(c, g, e))
                    continue;
                if (!quiet)
                    print_difference(c, variant, p, x, y, g, e);
                return false;
            }
        }
    }
    return true;
}
