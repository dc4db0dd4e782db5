// SPDX-License-Identifier: MIT
// Float32 samples through filters of the C interface, against a definition of their sums that
// shares no code with kernels/, and large Gaussians, which filter 8-bit samples with 16 bits.
#include <math.h>

#include "filter/filter.h"
#include "support/api_image.h"
#include "support/api_test.h"
#include "support/random.h"

#define FILL 0xa5

static uint64_t noise = 77;

static float get(const conv_image *view, int c, int x, int y)
{
    uint32_t bits = api_image_get(view, c, x, y);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The border is replicated, or the constant `border` if it is a number.
static float sample_at(const conv_image *view, int c, int x, int y, float border)
{
    int nearest_x = x < 0 ? 0 : x < view->width ? x : view->width - 1;
    int nearest_y = y < 0 ? 0 : y < view->height ? y : view->height - 1;
    bool inside = nearest_x == x && nearest_y == y;
    return inside || isnan(border) ? get(view, c, nearest_x, nearest_y) : border;
}

static float sum_of(const struct conv_filter *f, const conv_image *view, int c, int x, int y,
                    float border, bool transposed)
{
    float sum = f->magnitude ? 0 : (float)f->offset;
    int w = f->width, left = x - w / 2, top = y - f->height / 2;
    bool pairs = w == f->height && !f->magnitude;
    for (int k = 0; k < w * w && pairs; k++)
        pairs = f->coef[k] == f->coef[k % w * w + k / w];
    for (int a = 0; a < f->height; a++)
        for (int b = 0; b < (pairs ? w - a : w); b++) {
            int i = pairs ? a + b : b, j = pairs ? b : a;
            double number = f->coef[j * w + i];
            float coef = f->magnitude ? (float)number : (float)(number / f->scale);
            float mirrored = sample_at(view, c, left + j, top + i, border);
            float sample = transposed ? mirrored : sample_at(view, c, left + i, top + j, border);
            if (pairs && i != j)
                sample += mirrored;
            if (coef != 0)
                sum = fmaf(coef, sample, sum);
        }
    return sum;
}

// Parametric filters have coefficients of float64 for float32 samples.
static float sum_precise(const struct conv_filter *f, const conv_image *view, int c, int x, int y,
                         float border)
{
    const struct conv_real *real = &f->real;
    int half = real->side / 2;
    double sum = (double)(float)f->offset;
    for (int k = 0; k < real->lines; k++)
        for (int i = -half; i <= half; i++) {
            double down = 0;
            for (int j = -half; j <= half; j++)
                down = fma(real->column[k][half + j],
                           (double)sample_at(view, c, x + i, y + j, border), down);
            sum = fma(real->row[k][half + i], down, sum);
        }
    for (int k = 0; k < real->taps; k++)
        sum = fma(real->tap[k].coef,
                  (double)sample_at(view, c, x + real->tap[k].x, y + real->tap[k].y, border), sum);
    return (float)sum;
}

static float define(const struct conv_filter *f, const conv_image *view, int c, int x, int y,
                    float border)
{
    if (f->real.side)
        return sum_precise(f, view, c, x, y, border);
    float across = sum_of(f, view, c, x, y, border, false);
    if (!f->magnitude)
        return across;
    float down = sum_of(f, view, c, x, y, border, true);
    float a = across * across, b = down * down, squares = a + b;
    return sqrtf(squares) / (float)f->scale + (float)f->offset;
}

static void expect(const conv_image *result, const conv_image *source, const char *text,
                   float border, bool filters_alpha)
{
    struct conv_filter *filters = calloc(CONV_FILTER_MAX_CHAIN, sizeof *filters);
    struct conv_filter_settings settings = {0};
    struct conv_err err;
    struct api_image at[2];
    int count, channels = source->channels - (source->has_alpha && !filters_alpha);
    assert_ok(conv_filter_parse_chain(filters, &count, text, &settings, &err));
    for (int k = 0; k < 2; k++)
        api_image_make(&at[k], API_PLANAR, source->width, source->height, source->channels,
                       CONV_SAMPLE_F32, 0);
    const conv_image *from = source;
    for (int f = 0; f < count; f++) {
        const conv_image *to = f == count - 1 ? result : &at[f % 2].view;
        for (int c = 0; c < source->channels; c++)
            for (int y = 0; y < source->height; y++)
                for (int x = 0; x < source->width; x++) {
                    float value = c < channels ? define(&filters[f], from, c, x, y, border)
                                               : get(from, c, x, y);
                    uint32_t bits;
                    memcpy(&bits, &value, sizeof bits);
                    api_image_set(to, c, x, y, bits);
                }
        from = to;
    }
    for (int k = 0; k < 2; k++)
        api_image_free(&at[k]);
    free(filters);
}

static const struct {
    const char *text, *border, *alpha;
    float value;
} cases[] = {
    {"emboss", NULL, NULL, NAN},
    {"gaussian5,sharpen", "constant:7", NULL, 7},
    {"gaussian:2.5", NULL, "filter", NAN},
    {"sobel,blur", "constant:200", NULL, 200},
    {"blur", "constant:0.5", NULL, 0.5f},
    {"blur:2.3,gaussian:0.3", NULL, NULL, NAN},
    {"emboss,gaussian:1.5", "constant:-3.25", "filter", -3.25f},
    {"prewitt,sharpen", "constant:1e3", NULL, 1000},
    {"unsharp:1,0.8,emboss", NULL, NULL, NAN},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void check(conv_context *context, int k, int width, int height, int channels)
{
    struct api_image source, result, expected;
    conv_filter_options options = CONV_FILTER_OPTIONS_INIT;
    conv_filter *filter;
    options.border = cases[k].border;
    options.alpha = cases[k].alpha;
    options.floats = (int32_t)random_below(&noise, 2);
    enum api_layout from = (enum api_layout)random_below(&noise, API_LAYOUTS),
                    to = (enum api_layout)random_below(&noise, API_LAYOUTS);
    api_image_make(&source, from, width, height, channels, CONV_SAMPLE_F32, FILL);
    api_image_make(&result, to, width, height, channels, CONV_SAMPLE_F32, FILL);
    api_image_make(&expected, API_PLANAR, width, height, channels, CONV_SAMPLE_F32, 0);
    api_image_fill(&source.view, &noise);
    expect(&expected.view, &source.view, cases[k].text, cases[k].value, cases[k].alpha != NULL);
    if (conv_filter_create(&filter, context, cases[k].text, &options) ||
        conv_filter_run(filter, &source.view, &result.view, 1, NULL))
        fail_msg("%s", conv_context_message(context));
    if (!api_image_equal(&result.view, &expected.view))
        fail_msg("%s, layouts %d to %d", cases[k].text, from, to);
    assert_true(api_image_gaps_are(&result, FILL));
    assert_ok(conv_filter_run(filter, &source.view, &source.view, 1, NULL));
    assert_true(api_image_equal(&source.view, &expected.view));
    conv_filter_destroy(filter);
    api_image_free(&source);
    api_image_free(&result);
    api_image_free(&expected);
}

UNIT_TEST(sums_are_the_defined_ones)
{
    for (int threads = 1; threads <= 4; threads += 3) {
        conv_context *context = api_open(threads);
        for (int i = 0; i < (CONV_SANITIZED ? 1 : 4) * CASES; i++)
            check(context, i % CASES, 1 + (int)random_below(&noise, 70),
                  1 + (int)random_below(&noise, 60), 1 + (int)random_below(&noise, 4));
        check(context, 1, 90, 700, 3); // several bands
        check(context, 4, 300, 600, 1);
        conv_context_destroy(context);
    }
}

API_TEST(what_cannot_be_is_refused, 1)
{
    conv_filter_options options = CONV_FILTER_OPTIONS_INIT;
    struct api_image source, bytes;
    conv_filter *filter;
    api_image_make(&source, API_PLANAR, 4, 4, 4, CONV_SAMPLE_F32, 0);
    api_image_make(&bytes, API_PLANAR, 4, 4, 4, CONV_SAMPLE_U8, 0);
    options.alpha = "premultiply";
    assert_ok(conv_filter_create(&filter, context, "blur", &options));
    assert_int_equal(conv_filter_run(filter, &source.view, &source.view, 1, NULL),
                     CONV_ERR_UNSUPPORTED);
    source.view.has_alpha = 0; // four colours
    assert_ok(conv_filter_run(filter, &source.view, &source.view, 1, NULL));
    bytes.view.has_alpha = 0;
    assert_int_equal(conv_filter_run(filter, &source.view, &bytes.view, 1, NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_filter_run(filter, &bytes.view, &source.view, 1, NULL), CONV_ERR_USAGE);
    conv_filter_destroy(filter);
    api_image_free(&source);
    api_image_free(&bytes);
}

UNIT_MAIN(NULL, NULL)
