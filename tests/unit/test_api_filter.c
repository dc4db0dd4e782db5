// SPDX-License-Identifier: MIT
// Filters of the C interface against groups, which the program uses: all layouts, sample
// types, alpha modes, chains, borders, heights of several bands, and any number of threads.
#include <stdio.h>

#include "support/api_image.h"
#include "support/api_test.h"
#include "support/filter_group.h"
#include "support/random.h"

#define FILL 0xa5

static uint64_t noise = 20;

// Copies samples into planes of 8 or 16 bits.
static void stage(const struct conv_image *staged, const conv_image *source)
{
    for (int c = 0; c < staged->channels; c++)
        for (int y = 0; y < staged->height; y++)
            for (int x = 0; x < staged->width; x++) {
                uint32_t value = api_image_get(source, c, x, y);
                uint8_t *at = staged->plane[c].data + y * staged->plane[c].stride;
                if (staged->depth == 8)
                    at[x] = (uint8_t)value;
                else
                    ((uint16_t *)(void *)at)[x] = (uint16_t)value;
            }
}

// The bits of a sample of a result. Also handles float32 alpha that no filter has changed.
static uint32_t read_result(const struct conv_image *out, const conv_image *source, bool passes,
                            bool floats, int c, int x, int y)
{
    const uint8_t *row = out->plane[c].data + y * out->plane[c].stride;
    uint32_t value;
    if (floats) {
        float number = passes ? (float)api_image_get(source, c, x, y) : 0;
        memcpy(&value, passes ? (const void *)&number : row + 4 * x, sizeof value);
        return value;
    }
    return conv_sample_bytes(source->sample) == 1 ? row[x]
                                                  : ((const uint16_t *)(const void *)row)[x];
}

// The program's result for the image: planes of uint8_t, uint16_t or float.
static void expect(conv_image *result, const conv_image *source, const char *text,
                   const conv_filter_options *options)
{
    struct conv_filter *filters = calloc(CONV_FILTER_MAX_CHAIN, sizeof *filters);
    struct conv_filter_settings settings = {.flip = options->flip};
    struct conv_backend_config config = {.filters = filters, .floats = options->floats != 0};
    struct conv_backend *backend = NULL;
    struct filter_group filter;
    struct conv_err err = {0};
    assert_ok(conv_filter_parse_chain(filters, &config.filter_count, text, &settings, &err));
    assert_ok(conv_filter_parse_border(&config.border, &config.border_value,
                                       options->border ? options->border : "replicate", &err));
    config.alpha = !options->alpha                         ? CONV_ALPHA_KEEP
                   : strcmp(options->alpha, "filter") == 0 ? CONV_ALPHA_FILTER
                                                           : CONV_ALPHA_PREMULTIPLY;
    assert_ok(conv_device_cpu.open(&backend, &config, &err));
    struct conv_image shape = {
        .width = source->width,
        .height = source->height,
        .channels = source->channels,
        .depth = 8 * (int)conv_sample_bytes(source->sample),
        .result_depth = options->floats ? 32 : 0,
        .alpha = source->has_alpha,
    };
    struct conv_image out;
    filter_group_open(&filter, backend, config.alpha, &shape, 1);
    stage(&filter.placed[0].in, source);
    assert_ok(filter_group_run(&filter, &out, &err));
    for (int c = 0; c < shape.channels; c++) {
        bool passes = source->has_alpha && !options->alpha && c == shape.channels - 1;
        for (int y = 0; y < shape.height; y++)
            for (int x = 0; x < shape.width; x++)
                api_image_set(result, c, x, y,
                              read_result(&out, source, passes, options->floats, c, x, y));
    }
    filter_group_close(&filter);
    conv_device_cpu.close(backend);
    free(filters);
}

struct run_case {
    const char *text;
    conv_filter_options options;
};

static void check(conv_context *context, const struct run_case *run, int width, int height,
                  int channels, conv_sample sample, enum api_layout from, enum api_layout to)
{
    struct api_image source, result, expected;
    conv_sample out = run->options.floats ? CONV_SAMPLE_F32 : sample;
    conv_filter *filter;
    api_image_make(&source, from, width, height, channels, sample, FILL);
    api_image_make(&result, to, width, height, channels, out, FILL);
    api_image_make(&expected, API_PLANAR, width, height, channels, out, 0);
    api_image_fill(&source.view, &noise);
    expect(&expected.view, &source.view, run->text, &run->options);
    if (conv_filter_create(&filter, context, run->text, &run->options))
        fail_msg("%s", conv_context_message(context));
    if (conv_filter_run(filter, &source.view, &result.view, 1, NULL))
        fail_msg("%s", conv_context_message(context));
    if (!api_image_equal(&result.view, &expected.view))
        fail_msg("%s, layouts %d to %d, sample %d", run->text, from, to, sample);
    assert_true(api_image_gaps_are(&result, FILL));
    assert_true(api_image_gaps_are(&source, FILL));
    if (!run->options.floats) { // the source is the result
        assert_ok(conv_filter_run(filter, &source.view, &source.view, 1, NULL));
        assert_true(api_image_equal(&source.view, &expected.view));
        assert_true(api_image_gaps_are(&source, FILL));
    }
    conv_filter_destroy(filter);
    api_image_free(&source);
    api_image_free(&result);
    api_image_free(&expected);
}

#define OPTIONS(...)                                                                               \
    {                                                                                              \
        .size = sizeof(conv_filter_options), __VA_ARGS__                                           \
    }

static const struct run_case cases[] = {
    {"emboss", OPTIONS(.flip = 1)},
    {"gaussian5", OPTIONS(.border = "reflect101")},
    {"sobel-x,blur5,sharpen", OPTIONS(.border = "reflect")},
    {"blur5", OPTIONS(.border = "wrap")},
    {"laplacian5,edge", OPTIONS(.border = "constant:77", .alpha = "filter")},
    {"blur,gaussian5", OPTIONS(.alpha = "premultiply")},
    {"sharpen", OPTIONS(.alpha = "premultiply", .border = "wrap")},
    {"sobel,blur", OPTIONS(.border = "reflect")},
    {"emboss5", OPTIONS(.floats = 1)},
    {"blur,laplacian", OPTIONS(.floats = 1, .border = "constant:3")},
};
enum { CASES = sizeof cases / sizeof cases[0] };

UNIT_TEST(all_layouts_give_what_the_program_gives)
{
    static const int threads[] = {1, 2, 5};
    for (int t = 0; t < 3; t++) {
        conv_context *context = api_open(threads[t]);
        for (int i = 0; i < (CONV_SANITIZED ? 50 : 150); i++) {
            int c = 1 + (int)random_below(&noise, 4);
            check(context, &cases[random_below(&noise, CASES)], 1 + (int)random_below(&noise, 90),
                  1 + (int)random_below(&noise, 90), c,
                  random_below(&noise, 3) ? CONV_SAMPLE_U8 : CONV_SAMPLE_U16,
                  (enum api_layout)random_below(&noise, API_LAYOUTS),
                  (enum api_layout)random_below(&noise, API_LAYOUTS));
        }
        conv_context_destroy(context);
    }
}

// Heights of many bands, whose seams must not show. Under a sanitizer each filter takes one of the
// four pairs of layouts.
API_TEST(bands_do_not_show, 4)
{
    for (int i = 0; i < CASES; i++)
        for (int layout = CONV_SANITIZED ? i % 4 : 0; layout < 4;
             layout += CONV_SANITIZED ? 4 : 1) {
            enum api_layout from = (enum api_layout)(layout & 1),
                            to = (enum api_layout)(layout >> 1);
            check(context, &cases[i], 300, 700 + i, 3 + layout % 2, CONV_SAMPLE_U8, from, to);
            check(context, &cases[i], 61, 1500 - i, 1 + layout, CONV_SAMPLE_U16, from, to);
        }
}

// A matrix of 31 x 31 reaches 15 rows, of which an image may have fewer.
API_TEST(large_matrices_reach_across_bands, 3)
{
    double coefficients[31 * 31];
    char spec[31 * 31 * 4 + 16] = "31x31:";
    for (int i = 0; i < 31 * 31; i++) {
        coefficients[i] = (int)random_below(&noise, 19) - 9;
        size_t used = strlen(spec);
        snprintf(spec + used, sizeof spec - used, " %d", (int)coefficients[i]);
    }
    conv_filter_options options = CONV_FILTER_OPTIONS_INIT;
    for (int i = 0; i < 6; i++) {
        static const int heights[] = {1, 7, 241, 300, 481, 900}; // some end in bands of one row
        int width = i < 2 ? 67 : i < 3 ? 35 : 17; // the definition takes 3,000 products per pixel
        struct api_image source, results[2];
        conv_filter *filters[2];
        bool wraps = i % 3 == 0; // planes are cut into bands then, too
        enum api_layout layout = wraps ? API_PLANAR : (enum api_layout)(i % 2);
        api_image_make(&source, layout, width, heights[i], 3, CONV_SAMPLE_U8, 0);
        api_image_fill(&source.view, &noise);
        conv_filter_options custom = options;
        custom.kernel = spec;
        custom.divisor = "300";
        custom.bias = "100";
        custom.variant = "cpu_reference"; // whole planes, one thread's worth of work
        custom.border = options.border = wraps ? "wrap" : "reflect";
        assert_ok(conv_filter_create(&filters[0], context, "custom", &custom));
        assert_ok(conv_filter_create_matrix(&filters[1], context, coefficients, 31, 31, 300, 100,
                                            &options));
        for (int k = 0; k < 2; k++) {
            api_image_make(&results[k], API_PLANAR, width, heights[i], 3, CONV_SAMPLE_U8, k);
            assert_ok(conv_filter_run(filters[k], &source.view, &results[k].view, 1, NULL));
            conv_filter_destroy(filters[k]);
        }
        assert_true(api_image_equal(&results[0].view, &results[1].view));
        for (int k = 0; k < 2; k++)
            api_image_free(&results[k]);
        api_image_free(&source);
    }
}

API_TEST(batches_are_of_any_mix, 3)
{
    enum { COUNT = 40 };
    struct api_image sources[COUNT], results[COUNT], expected;
    conv_image from[COUNT], to[COUNT];
    conv_filter *filter;
    assert_ok(conv_filter_create(&filter, context, cases[2].text, &cases[2].options));
    for (int i = 0; i < COUNT; i++) {
        int width = 1 + (int)random_below(&noise, 200), height = 1 + (int)random_below(&noise, 200);
        int c = 1 + i % 4;
        conv_sample sample = i % 3 ? CONV_SAMPLE_U8 : CONV_SAMPLE_U16;
        api_image_make(&sources[i], (enum api_layout)(i % API_LAYOUTS), width, height, c, sample,
                       0);
        api_image_make(&results[i], (enum api_layout)(i / 2 % API_LAYOUTS), width, height, c,
                       sample, 0);
        api_image_fill(&sources[i].view, &noise);
        from[i] = sources[i].view;
        to[i] = results[i].view;
    }
    assert_ok(conv_filter_run(filter, from, to, COUNT, NULL));
    for (int i = 0; i < COUNT; i++) {
        api_image_make(&expected, API_PLANAR, from[i].width, from[i].height, from[i].channels,
                       from[i].sample, 0);
        expect(&expected.view, &from[i], cases[2].text, &cases[2].options);
        assert_true(api_image_equal(&to[i], &expected.view));
        api_image_free(&expected);
        api_image_free(&sources[i]);
        api_image_free(&results[i]);
    }
    conv_filter_destroy(filter);
}

UNIT_MAIN(NULL, NULL)
