// SPDX-License-Identifier: MIT
// The C interface on a CUDA device against the same calls on the CPU: PNG files to device memory
// and back, filters, copies; all layouts, and files of which some are damaged. Runs on a GPU, and
// as test_api_emulated on the emulated device.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api_context.h"
#include "support/api_image.h"
#include "support/device.h"
#include "support/own_memory.h"
#include "support/png_make.h"
#include "support/png_mutate.h"
#include "support/random.h"

#define FILL 0x5a
// Under a sanitizer a third of the images: as many kinds and layouts, fewer of each.
#define PORTION (CONV_SANITIZED ? 3 : 1)

static uint64_t noise = 31;
static conv_context *cpu, *gpu;

static void must(conv_context *context, conv_status status)
{
    if (status)
        fail_msg("%s: %s", conv_status_name(status), conv_context_message(context));
}

// The device's table with functions that count the device's own work.
static struct conv_api_device_ops counting;
static int decoded_there, encoded_there;
// The emulated device has little memory (CONV_EMULATED): batches are cut into many parts, of which
// some do not fit.
static bool short_of_memory;

static enum conv_status decode_and_count(struct conv_api_device *device,
                                         struct conv_api_decode *items, int count, void *stream,
                                         struct conv_err *err)
{
    enum conv_status status = conv_api_device_cuda.decode(device, items, count, stream, err);
    for (int i = 0; i < count; i++)
        decoded_there += items[i].done;
    return status;
}

static enum conv_status encode_and_count(struct conv_api_device *device,
                                         struct conv_api_encode *items, int count,
                                         struct conv_api_file_memory *files, void *stream,
                                         struct conv_err *err)
{
    enum conv_status status = conv_api_device_cuda.encode(device, items, count, files, stream, err);
    for (int i = 0; i < count; i++)
        encoded_there += items[i].done;
    return status;
}

// --- images in device memory ---------------------------------------------------------------------

// A view of device memory, and of a copy in host memory that may have guard bytes.
struct pair {
    struct api_image host;
    conv_image view;
    void *d_memory;
};

static void make_pair(struct pair *pair, enum api_layout layout, int width, int height,
                      int channels, conv_sample sample)
{
    api_image_make(&pair->host, layout, width, height, channels, sample, FILL);
    must(gpu, conv_allocate(gpu, CONV_DEVICE, pair->host.size, &pair->d_memory));
    pair->view = pair->host.view;
    pair->view.data =
        (uint8_t *)pair->d_memory + ((uint8_t *)pair->host.view.data - pair->host.memory);
    pair->view.memory = CONV_DEVICE;
}

static void upload(const struct pair *pair)
{
    must(gpu, conv_copy(gpu, pair->d_memory, CONV_DEVICE, pair->host.memory, CONV_HOST,
                        pair->host.size, NULL));
}

static void download(const struct pair *pair)
{
    must(gpu, conv_copy(gpu, pair->host.memory, CONV_HOST, pair->d_memory, CONV_DEVICE,
                        pair->host.size, NULL));
}

static void free_pair(struct pair *pair)
{
    conv_free(gpu, CONV_DEVICE, pair->d_memory);
    api_image_free(&pair->host);
}

// --- decoding ------------------------------------------------------------------------------------

enum { FILES = 42 / PORTION };

struct files {
    struct png_file file[FILES];
    conv_bytes bytes[FILES];
};

// Every kind of file: those that the device decodes, others, and damaged ones.
static void make_files(struct files *files, bool damaged)
{
    static const struct {
        int color_type, depth;
    } kinds[] = {{2, 8},  {0, 8},  {4, 8},  {6, 8}, {2, 16},
                 {0, 16}, {4, 16}, {6, 16}, {3, 8}, {0, 4}};
    *files = (struct files){0};
    for (int i = 0; i < FILES; i++) {
        int k = i % 3 ? (int)random_below(&noise, 10) : 0;
        // The files have about the same size, so that the device is faster for all of them
        // together.
        int width = (i % 8 ? 60 : 1) + (int)random_below(&noise, 60);
        int height = (i % 9 ? 20 : 1) + (int)random_below(&noise, 20), type = kinds[k].color_type;
        size_t count = (size_t)width * (size_t)height * (size_t)png_make_channels(type);
        uint16_t *samples = malloc(count * sizeof *samples), value = 0;
        unsigned most = type == 3 ? 100 : 1u << kinds[k].depth;
        for (size_t s = 0; s < count; s++) {
            if (random_below(&noise, 3))
                value = (uint16_t)random_below(&noise, most);
            samples[s] = value;
        }
        struct png_spec spec = {.width = width,
                                .height = height,
                                .color_type = type,
                                .depth = kinds[k].depth,
                                .interlaced = random_below(&noise, 9) == 0,
                                .palette_size = type == 3 ? 100 : 0,
                                .transparency = !(type & 4) && random_below(&noise, 9) == 0,
                                .samples = samples};
        png_make_image(&files->file[i], &spec);
        free(samples);
        if (damaged && i % 2) {
            size_t size = files->file[i].size, room = size + 1000;
            files->file[i].data = realloc(files->file[i].data, room);
            files->file[i].size =
                png_mutate(files->file[i].data, size, room, (uint32_t)random_bits(&noise), NULL);
        }
        files->bytes[i] = (conv_bytes){files->file[i].data, files->file[i].size};
    }
}

static void free_files(struct files *files)
{
    for (int i = 0; i < FILES; i++)
        png_make_free(&files->file[i]);
}

// Decodes all files on the CPU and to device memory; the images and the items must agree.
static void decode_both(const struct files *files, const conv_decode_options *options, int layout)
{
    conv_image expected[FILES] = {0}, found[FILES] = {0};
    conv_item expected_items[FILES], found_items[FILES];
    struct pair pairs[FILES];
    conv_decode_options on_device = *options;
    conv_status status =
        conv_decode_png(cpu, files->bytes, FILES, options, expected, expected_items, NULL);
    on_device.memory = CONV_DEVICE;
    for (int i = 0; i < FILES && layout >= 0; i++) {
        const conv_image *like = &expected[i];
        bool good = like->data;
        make_pair(&pairs[i], (enum api_layout)layout, good ? like->width : 1,
                  good ? like->height : 1, good ? like->channels : 1,
                  good ? like->sample : CONV_SAMPLE_U8);
        upload(&pairs[i]);
        if (good) // a damaged file's image may have any shape: the library makes it
            found[i] = pairs[i].view;
    }
    assert_int_equal(
        conv_decode_png(gpu, files->bytes, FILES, &on_device, found, found_items, NULL), status);
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(found_items[i].status, expected_items[i].status);
        assert_string_equal(found_items[i].message, expected_items[i].message);
        assert_true(!found[i].data == !expected[i].data);
        if (!found[i].data)
            continue;
        struct pair own = {.view = found[i]};
        if (layout < 0) {
            bool planar = options->planar && found[i].channels > 1;
            assert_int_equal(found[i].memory, CONV_DEVICE);
            api_image_make(&own.host, planar ? API_PLANAR : API_INTERLEAVED, found[i].width,
                           found[i].height, found[i].channels, found[i].sample, FILL);
            own.d_memory = found[i].data;
            assert_int_equal(own.host.view.row_stride, found[i].row_stride);
        } else {
            own = pairs[i];
        }
        download(&own);
        if (!api_image_equal(&own.host.view, &expected[i]))
            fail_msg("file %d, layout %d", i, layout);
        if (layout >= 0)
            assert_true(api_image_gaps_are(&own.host, FILL));
        else
            free_pair(&own);
        conv_free(cpu, CONV_HOST, expected[i].data);
    }
    for (int i = 0; i < FILES && layout >= 0; i++)
        free_pair(&pairs[i]);
}

static void files_are_decoded_as_on_the_cpu(void **state)
{
    (void)state;
    decoded_there = 0;
    for (int layout = -2; layout < API_LAYOUTS; layout++) {
        struct files files;
        conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
        make_files(&files, layout % 2 == 0);
        options.planar = layout == -2;
        decode_both(&files, &options, layout);
        options.channels = 3 + (int)random_below(&noise, 2);
        options.sample = layout % 2 ? CONV_SAMPLE_U8 : CONV_SAMPLE_U16;
        decode_both(&files, &options, layout);
        free_files(&files);
    }
    assert_true(short_of_memory || decoded_there >= 14 * FILES / 3); // of 14 batches
    assert_true(decoded_there > 0);
}

// --- encoding ------------------------------------------------------------------------------------

static void images_are_encoded(void **state)
{
    (void)state;
    enum { IMAGES = 30 / PORTION };
    encoded_there = 0;
    for (int layout = 0; layout < API_LAYOUTS; layout++) {
        struct pair pairs[IMAGES];
        conv_image views[IMAGES], decoded[IMAGES] = {0};
        conv_bytes files[IMAGES];
        conv_item items[IMAGES];
        for (int i = 0; i < IMAGES; i++) {
            int width = i == 0 ? 3000 : 16 * (1 + (int)random_below(&noise, 12));
            if (i % 2)
                width += (int)random_below(&noise, 16);
            make_pair(&pairs[i], (enum api_layout)layout, width, 1 + (int)random_below(&noise, 40),
                      1 + (int)random_below(&noise, 4),
                      random_below(&noise, 2) ? CONV_SAMPLE_U8 : CONV_SAMPLE_U16);
            api_image_fill(&pairs[i].host.view, &noise);
            upload(&pairs[i]);
            views[i] = pairs[i].view;
        }
        // Encodes alternately into memory of the pool and of the caller.
        struct own_memory own = {.caller = pthread_self(), .most = IMAGES, .refused = -1};
        conv_encode_options options = CONV_ENCODE_OPTIONS_INIT;
        options.allocate = layout % 2 ? own_memory_allocate : NULL;
        options.user = &own;
        must(gpu, conv_encode_png(gpu, views, IMAGES, &options, files, items, NULL));
        must(cpu, conv_decode_png(cpu, files, IMAGES, NULL, decoded, NULL, NULL));
        for (int i = 0; i < IMAGES; i++) {
            assert_int_equal(items[i].status, CONV_OK);
            assert_int_equal(decoded[i].channels, views[i].channels);
            assert_int_equal(decoded[i].sample, views[i].sample);
            if (!api_image_equal(&decoded[i], &pairs[i].host.view))
                fail_msg("image %d, layout %d", i, layout);
            conv_free(cpu, CONV_HOST, decoded[i].data);
            if (options.allocate) {
                assert_true(own_memory_holds(&own, files, i));
            } else {
                conv_free(gpu, CONV_HOST, (void *)(uintptr_t)files[i].data);
            }
            free_pair(&pairs[i]);
        }
        own_memory_free(&own);
    }
    assert_true(short_of_memory || encoded_there == API_LAYOUTS * IMAGES);
    assert_true(encoded_there > 0);
}

// --- filters -------------------------------------------------------------------------------------

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
    {"gaussian:8", OPTIONS(.border = "reflect101")}, // passes: 8 bits are filtered with 16
    {"blur:3,scharr", OPTIONS(.alpha = "filter")},
};
enum { CHAINS = sizeof chains / sizeof chains[0], MOST = 5 };

static conv_sample random_sample(const conv_filter_options *options)
{
    bool premultiplies = options->alpha && strcmp(options->alpha, "premultiply") == 0;
    int kind = (int)random_below(&noise, 6);
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
    must(cpu, conv_filter_create(&on_cpu, cpu, chains[chain].text, options));
    must(gpu, conv_filter_create(&on_gpu, gpu, chains[chain].text, options));
    struct pair from[MOST], to[MOST];
    struct api_image expected[MOST];
    conv_image sources[MOST], results[MOST];
    enum api_layout in = (enum api_layout)random_below(&noise, API_LAYOUTS);
    enum api_layout out = (enum api_layout)random_below(&noise, API_LAYOUTS);
    int width = 16, height = 1, channels = 1;
    conv_sample sample = CONV_SAMPLE_U8;
    for (int i = 0; i < count; i++) {
        if (i == 0 || !alike) {
            width = 16 * (1 + (int)random_below(&noise, 5));
            if (random_below(&noise, 2))
                width -= (int)random_below(&noise, 15);
            height = 1 + (int)random_below(&noise, 40);
            channels = 1 + (int)random_below(&noise, 4);
            sample = random_sample(options);
        }
        conv_sample result = options->floats ? CONV_SAMPLE_F32 : sample;
        make_pair(&from[i], in, width, height, channels, sample);
        make_pair(&to[i], out, width, height, channels, result);
        api_image_make(&expected[i], API_PLANAR, width, height, channels, result, 0);
        sources[i] = from[i].view;
        results[i] = to[i].view;
    }
    for (int run = 0; run < runs; run++) {
        for (int i = 0; i < count; i++) {
            api_image_fill(&from[i].host.view, &noise);
            upload(&from[i]);
            upload(&to[i]);
            must(cpu, conv_filter_run(on_cpu, &from[i].host.view, &expected[i].view, 1, NULL));
        }
        must(gpu, conv_filter_run(on_gpu, sources, results, count, stream));
        must(gpu, conv_stream_wait(gpu, stream));
        for (int i = 0; i < count; i++) {
            download(&to[i]);
            if (!api_image_equal(&to[i].host.view, &expected[i].view))
                fail_msg("%s, run %d, image %d, layouts %d to %d", chains[chain].text, run, i, in,
                         out);
            assert_true(api_image_gaps_are(&to[i].host, FILL));
        }
    }
    for (int i = 0; i < count; i++) {
        free_pair(&from[i]);
        free_pair(&to[i]);
        api_image_free(&expected[i]);
    }
    conv_filter_destroy(on_cpu);
    conv_filter_destroy(on_gpu);
}

static void filters_give_what_the_cpu_gives(void **state)
{
    (void)state;
    for (int i = 0; i < 60 / PORTION; i++)
        filter_both((int)random_below(&noise, CHAINS), 1 + (int)random_below(&noise, MOST), i % 2,
                    1 + i % 3, NULL);
}

// Images stored as RGBRGB... that are filtered where they are, with every border. check_kernels
// tests narrower ones.
static void pixels_give_what_the_cpu_gives(void **state)
{
    (void)state;
    static const char *const borders[] = {"replicate", "reflect", "reflect101", "wrap",
                                          "constant:77"};
    static const char *const texts[] = {"emboss", "gaussian5", "sharpen,blur5"};
    for (int i = 0; i < 15; i++) {
        conv_filter_options options = {
            .size = sizeof options, .border = borders[i % 5], .alpha = "filter"};
        int channels = i < 10 ? 3 : 2 + i % 3, width = 16 * (1 + i * 7);
        conv_filter *on_cpu, *on_gpu;
        struct pair from, to;
        struct api_image expected;
        must(cpu, conv_filter_create(&on_cpu, cpu, texts[i % 3], &options));
        must(gpu, conv_filter_create(&on_gpu, gpu, texts[i % 3], &options));
        make_pair(&from, API_INTERLEAVED, width, 5 + i, channels, CONV_SAMPLE_U8);
        make_pair(&to, API_INTERLEAVED, width, 5 + i, channels, CONV_SAMPLE_U8);
        api_image_make(&expected, API_PLANAR, width, 5 + i, channels, CONV_SAMPLE_U8, 0);
        api_image_fill(&from.host.view, &noise);
        upload(&from);
        must(cpu, conv_filter_run(on_cpu, &from.host.view, &expected.view, 1, NULL));
        must(gpu, conv_filter_run(on_gpu, &from.view, &to.view, 1, NULL));
        download(&to);
        if (!api_image_equal(&to.host.view, &expected.view))
            fail_msg("%s, border %s, %d x %d", texts[i % 3], borders[i % 5], width, channels);
        free_pair(&from);
        free_pair(&to);
        api_image_free(&expected);
        conv_filter_destroy(on_cpu);
        conv_filter_destroy(on_gpu);
    }
}

// More images in flight than there are tables for.
static void many_images_are_in_flight(void **state)
{
    (void)state;
    enum { IMAGES = 150 };
    struct pair from[IMAGES], to[IMAGES];
    struct api_image expected;
    conv_filter *on_cpu, *on_gpu;
    must(cpu, conv_filter_create(&on_cpu, cpu, "emboss,blur", NULL));
    must(gpu, conv_filter_create(&on_gpu, gpu, "emboss,blur", NULL));
    for (int i = 0; i < IMAGES; i++) {
        make_pair(&from[i], API_INTERLEAVED, 40 + i % 3, 9, 3, CONV_SAMPLE_U8);
        make_pair(&to[i], API_INTERLEAVED, 40 + i % 3, 9, 3, CONV_SAMPLE_U8);
        api_image_fill(&from[i].host.view, &noise);
        upload(&from[i]);
    }
    for (int i = 0; i < IMAGES; i++)
        must(gpu, conv_filter_run(on_gpu, &from[i].view, &to[i].view, 1, NULL));
    for (int i = 0; i < IMAGES; i++) {
        api_image_make(&expected, API_PLANAR, 40 + i % 3, 9, 3, CONV_SAMPLE_U8, 0);
        must(cpu, conv_filter_run(on_cpu, &from[i].host.view, &expected.view, 1, NULL));
        download(&to[i]);
        assert_true(api_image_equal(&to[i].host.view, &expected.view));
        api_image_free(&expected);
        free_pair(&from[i]);
        free_pair(&to[i]);
    }
    conv_filter_destroy(on_cpu);
    conv_filter_destroy(on_gpu);
}

// Host memory with a context of a device, and images with only source or result in device memory.
static void host_memory_passes_through_the_device(void **state)
{
    (void)state;
    for (int i = 0; i < 30 / PORTION; i++) {
        int chain = (int)random_below(&noise, CHAINS), width = 1 + (int)random_below(&noise, 90),
            height = 1 + (int)random_below(&noise, 50), channels = 1 + (int)random_below(&noise, 4);
        conv_sample sample = random_sample(&chains[chain].options),
                    out = chains[chain].options.floats ? CONV_SAMPLE_F32 : sample;
        struct api_image source, result, expected;
        conv_filter *on_cpu, *on_gpu;
        must(cpu, conv_filter_create(&on_cpu, cpu, chains[chain].text, &chains[chain].options));
        must(gpu, conv_filter_create(&on_gpu, gpu, chains[chain].text, &chains[chain].options));
        api_image_make(&source, (enum api_layout)(i % API_LAYOUTS), width, height, channels, sample,
                       FILL);
        api_image_make(&result, (enum api_layout)(i / API_LAYOUTS % API_LAYOUTS), width, height,
                       channels, out, FILL);
        api_image_make(&expected, API_PLANAR, width, height, channels, out, FILL);
        api_image_fill(&source.view, &noise);
        must(cpu, conv_filter_run(on_cpu, &source.view, &expected.view, 1, NULL));
        must(gpu, conv_filter_run(on_gpu, &source.view, &result.view, 1, NULL));
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
static void bytes_are_copied(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 1000, 1 << 20, (1 << 20) + 3, (5 << 20) - 1, (40 << 20) + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t size = sizes[i];
        uint8_t *from = malloc(size), *to = malloc(size);
        void *device[2];
        for (size_t b = 0; b < size; b++)
            from[b] = (uint8_t)(b * 2654435761u >> 13);
        memset(to, 0, size);
        must(gpu, conv_allocate(gpu, CONV_DEVICE, size, &device[0]));
        must(gpu, conv_allocate(gpu, CONV_DEVICE, size, &device[1]));
        must(gpu, conv_copy(gpu, device[0], CONV_DEVICE, from, CONV_HOST, size, NULL));
        must(gpu, conv_copy(gpu, device[1], CONV_DEVICE, device[0], CONV_DEVICE, size, NULL));
        must(gpu, conv_copy(gpu, to, CONV_HOST, device[1], CONV_DEVICE, size, NULL));
        assert_memory_equal(from, to, size);
        conv_free(gpu, CONV_DEVICE, device[0]);
        conv_free(gpu, CONV_DEVICE, device[1]);
        free(from);
        free(to);
    }
}

#if defined(CONV_EMULATED) && CONV_EMULATED
// After the first call with a shape, a call allocates no memory, does not wait for the device, and
// copies only tables of planes that are new: those of images that are filtered where they are.
static void filters_are_queued_only(void **state)
{
    (void)state;
    enum { IMAGES = 8 };
    static const struct {
        enum api_layout layout;
        int width;
        bool rearranged;
    } kinds[] = {
        {API_PLANAR, 64, false}, {API_INTERLEAVED, 64, false}, {API_INTERLEAVED, 60, true}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct pair from[IMAGES], to[IMAGES];
        conv_filter *filter;
        must(gpu, conv_filter_create(&filter, gpu, "emboss,blur", NULL));
        for (int i = 0; i < IMAGES; i++) {
            make_pair(&from[i], kinds[k].layout, kinds[k].width, 9, 3, CONV_SAMPLE_U8);
            make_pair(&to[i], kinds[k].layout, kinds[k].width, 9, 3, CONV_SAMPLE_U8);
        }
        must(gpu, conv_filter_run(filter, &from[0].view, &to[0].view, 1, NULL));
        struct emulated_calls before = emulated_count(), after;
        for (int i = 0; i < 3 * IMAGES; i++)
            must(gpu,
                 conv_filter_run(filter, &from[i % IMAGES].view, &to[i % IMAGES].view, 1, NULL));
        after = emulated_count();
        assert_int_equal(after.allocations, before.allocations);
        assert_int_equal(after.waits, before.waits);
        assert_int_equal(after.copies - before.copies, kinds[k].rearranged ? 0 : IMAGES - 1);
        for (int i = 0; i < IMAGES; i++) {
            free_pair(&from[i]);
            free_pair(&to[i]);
        }
        conv_filter_destroy(filter);
    }
}
#endif

#if CONV_HAVE_CUDA
static void streams_of_the_caller_are_used(void **state)
{
    (void)state;
    cudaStream_t streams[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), 0);
    for (int i = 0; i < 20 / PORTION; i++)
        filter_both((int)random_below(&noise, CHAINS), 2, true, 2, streams[i % 2]);
    must(gpu, conv_stream_order(gpu, streams[0], streams[1]));
    for (int i = 0; i < 2; i++)
        assert_int_equal(cudaStreamDestroy(streams[i]), 0);
}
#endif

static conv_context *open_context(const char *device, char *message)
{
    conv_context *context;
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    options.device = device;
    options.threads = 2; // more would decode small batches themselves
    return conv_context_create(&context, &options, message) ? NULL : context;
}

int main(void)
{
    char message[CONV_MESSAGE_SIZE];
    cpu = open_context("cpu", message);
    gpu = open_context("cuda", message);
    if (!cpu || !gpu) {
        conv_context_destroy(cpu);
        return device_missing("test_api_device", message);
    }
    counting = *gpu->ops;
    counting.decode = decode_and_count;
    counting.encode = encode_and_count;
    gpu->ops = &counting;
    short_of_memory = getenv("CONV_EMULATED") != NULL;
    const struct CMUnitTest batches[] = {
        cmocka_unit_test(files_are_decoded_as_on_the_cpu),
        cmocka_unit_test(images_are_encoded),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(filters_give_what_the_cpu_gives),
        cmocka_unit_test(pixels_give_what_the_cpu_gives),
        cmocka_unit_test(many_images_are_in_flight),
        cmocka_unit_test(host_memory_passes_through_the_device),
        cmocka_unit_test(bytes_are_copied),
#if defined(CONV_EMULATED) && CONV_EMULATED
        cmocka_unit_test(filters_are_queued_only),
#endif
#if CONV_HAVE_CUDA
        cmocka_unit_test(streams_of_the_caller_are_used),
#endif
    };
    int failed = cmocka_run_group_tests(batches, NULL, NULL);
    if (!short_of_memory)
        failed += cmocka_run_group_tests(others, NULL, NULL);
    conv_context_destroy(cpu);
    conv_context_destroy(gpu);
    return failed;
}
