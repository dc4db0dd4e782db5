// SPDX-License-Identifier: MIT
// Filters and copies of the C interface on a CUDA device against the same calls on the CPU, in
// every layout.
#include "support/device.h"
#include "support/random.h"
#include "support/unit.h"
#include "unit/api_pair.h"

#define OPTIONS(...)                                                                               \
    {                                                                                              \
        .size = sizeof(conv_filter_options), __VA_ARGS__                                           \
    }

static const struct {
    const char *text;
    conv_filter_options options;
} chains[] = {
    {"emboss", OPTIONS(.flip = 1)},
    {"gaussian5", OPTIONS(.border = "reflect101")},
    {"sobel-x,blur5,sharpen,edge", OPTIONS(.border = "wrap")},
    {"laplacian5,edge", OPTIONS(.border = "constant:77", .alpha = "filter")},
    {"blur,gaussian5,sharpen", OPTIONS(.alpha = "premultiply")},
    {"sharpen", OPTIONS(.alpha = "premultiply")},
    {"sobel,blur", OPTIONS(.border = "reflect")},
    {"emboss5", OPTIONS(.floats = 1)},
    {"blur,laplacian", OPTIONS(.floats = 1)},
    {"gaussian:8", OPTIONS(.border = "reflect101")}, // by way of a coarse image
    {"blur:3,scharr", OPTIONS(.alpha = "filter")},
};
enum { CHAINS = sizeof chains / sizeof chains[0], MOST = 5 };

static conv_sample random_sample(const conv_filter_options *options)
{
    bool premultiplies = options->alpha && strcmp(options->alpha, "premultiply") == 0;
    int kind = (int)random_below(&api_noise, 6);
    return kind < 3                    ? CONV_SAMPLE_U8
           : kind < 5 || premultiplies ? CONV_SAMPLE_U16
                                       : CONV_SAMPLE_F32;
}

// A batch of images through a chain, in device memory and on the CPU. `runs` times, so that tables
// on the device are used again.
static void filter_both(int chain, int count, bool alike, int runs, void *stream)
{
    const conv_filter_options *options = &chains[chain].options;
    conv_filter *on_cpu, *on_gpu;
    api_must(api_cpu, conv_filter_create(&on_cpu, api_cpu, chains[chain].text, options));
    api_must(api_gpu, conv_filter_create(&on_gpu, api_gpu, chains[chain].text, options));
    struct api_pair from[MOST], to[MOST];
    struct api_image expected[MOST];
    conv_image sources[MOST], results[MOST];
    enum api_layout in = (enum api_layout)random_below(&api_noise, API_LAYOUTS);
    enum api_layout out = (enum api_layout)random_below(&api_noise, API_LAYOUTS);
    int width = 16, height = 1, channels = 1;
    conv_sample sample = CONV_SAMPLE_U8;
    for (int i = 0; i < count; i++) {
        if (i == 0 || !alike) {
            width = 16 * (1 + (int)random_below(&api_noise, 5));
            if (random_below(&api_noise, 2))
                width -= (int)random_below(&api_noise, 15);
            height = 1 + (int)random_below(&api_noise, 40);
            channels = 1 + (int)random_below(&api_noise, 4);
            sample = random_sample(options);
        }
        conv_sample result = options->floats ? CONV_SAMPLE_F32 : sample;
        api_pair_make(&from[i], in, width, height, channels, sample);
        api_pair_make(&to[i], out, width, height, channels, result);
        api_image_make(&expected[i], API_PLANAR, width, height, channels, result, 0);
        sources[i] = from[i].view;
        results[i] = to[i].view;
    }
    for (int run = 0; run < runs; run++) {
        for (int i = 0; i < count; i++) {
            api_image_fill(&from[i].host.view, &api_noise);
            api_pair_upload(&from[i]);
            api_pair_upload(&to[i]);
            api_must(api_cpu,
                     conv_filter_run(on_cpu, &from[i].host.view, &expected[i].view, 1, NULL));
        }
        api_must(api_gpu, conv_filter_run(on_gpu, sources, results, count, stream));
        api_must(api_gpu, conv_stream_wait(api_gpu, stream));
        for (int i = 0; i < count; i++) {
            api_pair_download(&to[i]);
            if (!api_image_equal(&to[i].host.view, &expected[i].view))
                fail_msg("%s, run %d, image %d, layouts %d to %d", chains[chain].text, run, i, in,
                         out);
            assert_true(api_image_gaps_are(&to[i].host, FILL));
        }
    }
    for (int i = 0; i < count; i++) {
        api_pair_free(&from[i]);
        api_pair_free(&to[i]);
        api_image_free(&expected[i]);
    }
    conv_filter_destroy(on_cpu);
    conv_filter_destroy(on_gpu);
}

UNIT_TEST(filters_give_what_the_cpu_gives)
{
    for (int i = 0; i < 60 / PORTION; i++)
        filter_both((int)random_below(&api_noise, CHAINS), 1 + (int)random_below(&api_noise, MOST),
                    i % 2, 1 + i % 3, NULL);
}

// Images stored as RGBRGB... that are filtered where they are, with every border. check_kernels
// tests narrower ones.
UNIT_TEST(pixels_give_what_the_cpu_gives)
{
    static const char *const borders[] = {"replicate", "reflect", "reflect101", "wrap",
                                          "constant:77"};
    static const char *const texts[] = {"emboss", "gaussian5", "sharpen,blur5"};
    for (int i = 0; i < 15; i++) {
        conv_filter_options options = {
            .size = sizeof options, .border = borders[i % 5], .alpha = "filter"};
        int channels = i < 10 ? 3 : 2 + i % 3, width = 16 * (1 + i * 7);
        conv_filter *on_cpu, *on_gpu;
        struct api_pair from, to;
        struct api_image expected;
        api_must(api_cpu, conv_filter_create(&on_cpu, api_cpu, texts[i % 3], &options));
        api_must(api_gpu, conv_filter_create(&on_gpu, api_gpu, texts[i % 3], &options));
        api_pair_make(&from, API_INTERLEAVED, width, 5 + i, channels, CONV_SAMPLE_U8);
        api_pair_make(&to, API_INTERLEAVED, width, 5 + i, channels, CONV_SAMPLE_U8);
        api_image_make(&expected, API_PLANAR, width, 5 + i, channels, CONV_SAMPLE_U8, 0);
        api_image_fill(&from.host.view, &api_noise);
        api_pair_upload(&from);
        api_must(api_cpu, conv_filter_run(on_cpu, &from.host.view, &expected.view, 1, NULL));
        api_must(api_gpu, conv_filter_run(on_gpu, &from.view, &to.view, 1, NULL));
        api_pair_download(&to);
        if (!api_image_equal(&to.host.view, &expected.view))
            fail_msg("%s, border %s, %d x %d", texts[i % 3], borders[i % 5], width, channels);
        api_pair_free(&from);
        api_pair_free(&to);
        api_image_free(&expected);
        conv_filter_destroy(on_cpu);
        conv_filter_destroy(on_gpu);
    }
}

// More images in flight than there are tables for.
UNIT_TEST(many_images_are_in_flight)
{
    enum { IMAGES = 80 };
    struct api_pair from[IMAGES], to[IMAGES];
    struct api_image expected;
    conv_filter *on_cpu, *on_gpu;
    api_must(api_cpu, conv_filter_create(&on_cpu, api_cpu, "emboss,blur", NULL));
    api_must(api_gpu, conv_filter_create(&on_gpu, api_gpu, "emboss,blur", NULL));
    for (int i = 0; i < IMAGES; i++) {
        api_pair_make(&from[i], API_INTERLEAVED, 40 + i % 3, 9, 3, CONV_SAMPLE_U8);
        api_pair_make(&to[i], API_INTERLEAVED, 40 + i % 3, 9, 3, CONV_SAMPLE_U8);
        api_image_fill(&from[i].host.view, &api_noise);
        api_pair_upload(&from[i]);
    }
    for (int i = 0; i < IMAGES; i++)
        api_must(api_gpu, conv_filter_run(on_gpu, &from[i].view, &to[i].view, 1, NULL));
    for (int i = 0; i < IMAGES; i++) {
        api_image_make(&expected, API_PLANAR, 40 + i % 3, 9, 3, CONV_SAMPLE_U8, 0);
        api_must(api_cpu, conv_filter_run(on_cpu, &from[i].host.view, &expected.view, 1, NULL));
        api_pair_download(&to[i]);
        assert_true(api_image_equal(&to[i].host.view, &expected.view));
        api_image_free(&expected);
        api_pair_free(&from[i]);
        api_pair_free(&to[i]);
    }
    conv_filter_destroy(on_cpu);
    conv_filter_destroy(on_gpu);
}

// Host memory with a context of a device, and images with only source or result in device memory.
UNIT_TEST(host_memory_passes_through_the_device)
{
    for (int i = 0; i < 30 / PORTION; i++) {
        int chain = (int)random_below(&api_noise, CHAINS),
            width = 1 + (int)random_below(&api_noise, 90),
            height = 1 + (int)random_below(&api_noise, 50),
            channels = 1 + (int)random_below(&api_noise, 4);
        conv_sample sample = random_sample(&chains[chain].options),
                    out = chains[chain].options.floats ? CONV_SAMPLE_F32 : sample;
        struct api_image source, result, expected;
        conv_filter *on_cpu, *on_gpu;
        api_must(api_cpu,
                 conv_filter_create(&on_cpu, api_cpu, chains[chain].text, &chains[chain].options));
        api_must(api_gpu,
                 conv_filter_create(&on_gpu, api_gpu, chains[chain].text, &chains[chain].options));
        api_image_make(&source, (enum api_layout)(i % API_LAYOUTS), width, height, channels, sample,
                       FILL);
        api_image_make(&result, (enum api_layout)(i / API_LAYOUTS % API_LAYOUTS), width, height,
                       channels, out, FILL);
        api_image_make(&expected, API_PLANAR, width, height, channels, out, FILL);
        api_image_fill(&source.view, &api_noise);
        api_must(api_cpu, conv_filter_run(on_cpu, &source.view, &expected.view, 1, NULL));
        api_must(api_gpu, conv_filter_run(on_gpu, &source.view, &result.view, 1, NULL));
        if (!api_image_equal(&result.view, &expected.view))
            fail_msg("%s, round %d", chains[chain].text, i);
        assert_true(api_image_gaps_are(&result, FILL));
        api_image_free(&source);
        api_image_free(&result);
        api_image_free(&expected);
        conv_filter_destroy(on_cpu);
        conv_filter_destroy(on_gpu);
    }
}

// Sizes around those at which copies are cut into rows and pieces.
UNIT_TEST(bytes_are_copied)
{
    static const size_t sizes[] = {1, 1000, 1 << 20, (1 << 20) + 3, (5 << 20) - 1, (9 << 20) + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t size = sizes[i];
        uint8_t *from = malloc(size), *to = malloc(size);
        void *device[2];
        for (size_t b = 0; b < size; b++)
            from[b] = (uint8_t)(b * 2654435761u >> 13);
        memset(to, 0, size);
        api_must(api_gpu, conv_allocate(api_gpu, CONV_DEVICE, size, &device[0]));
        api_must(api_gpu, conv_allocate(api_gpu, CONV_DEVICE, size, &device[1]));
        api_must(api_gpu, conv_copy(api_gpu, device[0], CONV_DEVICE, from, CONV_HOST, size, NULL));
        api_must(api_gpu,
                 conv_copy(api_gpu, device[1], CONV_DEVICE, device[0], CONV_DEVICE, size, NULL));
        api_must(api_gpu, conv_copy(api_gpu, to, CONV_HOST, device[1], CONV_DEVICE, size, NULL));
        assert_true(memcmp(from, to, size) == 0); // 9 MB: cmocka compares byte by byte
        conv_free(api_gpu, CONV_DEVICE, device[0]);
        conv_free(api_gpu, CONV_DEVICE, device[1]);
        free(from);
        free(to);
    }
}

#if defined(CONV_EMULATED) && CONV_EMULATED
// After the first call with a shape, a call allocates no memory, does not wait for the device, and
// copies only tables of planes that are new: those of images that are filtered where they are.
UNIT_TEST(filters_are_queued_only)
{
    enum { IMAGES = 8 };
    static const struct {
        enum api_layout layout;
        int width;
        bool rearranged;
    } kinds[] = {
        {API_PLANAR, 64, false}, {API_INTERLEAVED, 64, false}, {API_INTERLEAVED, 60, true}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct api_pair from[IMAGES], to[IMAGES];
        conv_filter *filter;
        api_must(api_gpu, conv_filter_create(&filter, api_gpu, "emboss,blur", NULL));
        for (int i = 0; i < IMAGES; i++) {
            api_pair_make(&from[i], kinds[k].layout, kinds[k].width, 9, 3, CONV_SAMPLE_U8);
            api_pair_make(&to[i], kinds[k].layout, kinds[k].width, 9, 3, CONV_SAMPLE_U8);
        }
        api_must(api_gpu, conv_filter_run(filter, &from[0].view, &to[0].view, 1, NULL));
        struct emulated_calls before = emulated_count(), after;
        for (int i = 0; i < 3 * IMAGES; i++)
            api_must(api_gpu, conv_filter_run(filter, &from[i % IMAGES].view, &to[i % IMAGES].view,
                                              1, NULL));
        after = emulated_count();
        assert_int_equal(after.allocations, before.allocations);
        assert_int_equal(after.waits, before.waits);
        assert_int_equal(after.copies - before.copies, kinds[k].rearranged ? 0 : IMAGES - 1);
        for (int i = 0; i < IMAGES; i++) {
            api_pair_free(&from[i]);
            api_pair_free(&to[i]);
        }
        conv_filter_destroy(filter);
    }
}
#endif

#if CONV_HAVE_CUDA
UNIT_TEST(streams_of_the_caller_are_used)
{
    cudaStream_t streams[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), 0);
    for (int i = 0; i < 20 / PORTION; i++)
        filter_both((int)random_below(&api_noise, CHAINS), 2, true, 2, streams[i % 2]);
    api_must(api_gpu, conv_stream_order(api_gpu, streams[0], streams[1]));
    for (int i = 0; i < 2; i++)
        assert_int_equal(cudaStreamDestroy(streams[i]), 0);
}
#endif

int api_device_filters(void)
{
    return UNIT_RUN(NULL, NULL);
}
