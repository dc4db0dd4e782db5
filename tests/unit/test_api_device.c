// SPDX-License-Identifier: MIT
// The C interface on a CUDA device against the same calls on the CPU: PNG and JPEG files to device
// memory and back, in every layout, some of them damaged; layers whose weights are there; the tests
// of api_device_filters.c. Runs on a GPU, and as test_api_emulated on the emulated device.

#include "api/api.h"
#include "kernels/layer/layer.h"
#include "support/device.h"
#if CONV_HAVE_JPEG
#include "support/jpeg_make.h"
#endif
#include "support/own_memory.h"
#include "support/png_make.h"
#include "support/png_mutate.h"
#include "support/random.h"
#include "support/unit.h"
#include "unit/api_pair.h"

uint64_t api_noise = 31;
conv_context *api_cpu, *api_gpu;

void api_must(conv_context *context, conv_status status)
{
    if (status)
        fail_msg("%s: %s", conv_status_name(status), conv_context_message(context));
}

// The device's table with functions that count the device's own work.
static struct conv_device_ops counting;
static int decoded_there, jpegs_there, encoded_there;
// The emulated device has little memory (CONV_EMULATED): batches are cut into many parts, of which
// some do not fit.
static bool short_of_memory;

static enum conv_status decode_and_count(struct conv_device_context *device,
                                         struct conv_device_decode *items, int count, void *stream,
                                         struct conv_err *err)
{
    enum conv_status status = conv_device_cuda.decode(device, items, count, stream, err);
    for (int i = 0; i < count; i++) {
        decoded_there += items[i].done;
        jpegs_there += items[i].done && items[i].format != &conv_png_format;
    }
    return status;
}

static enum conv_status encode_and_count(struct conv_device_context *device,
                                         struct conv_device_encode *items, int count,
                                         struct conv_file_memory *files, void *stream,
                                         struct conv_err *err)
{
    enum conv_status status = conv_device_cuda.encode(device, items, count, files, stream, err);
    for (int i = 0; i < count; i++)
        encoded_there += items[i].done;
    return status;
}

// --- images in device memory ---------------------------------------------------------------------

void api_pair_make(struct api_pair *pair, enum api_layout layout, int width, int height,
                   int channels, conv_sample sample)
{
    api_image_make(&pair->host, layout, width, height, channels, sample, FILL);
    api_must(api_gpu, conv_allocate(api_gpu, CONV_DEVICE, pair->host.size, &pair->d_memory));
    pair->view = pair->host.view;
    pair->view.data =
        (uint8_t *)pair->d_memory + ((uint8_t *)pair->host.view.data - pair->host.memory);
    pair->view.memory = CONV_DEVICE;
}

void api_pair_upload(const struct api_pair *pair)
{
    api_must(api_gpu, conv_copy(api_gpu, pair->d_memory, CONV_DEVICE, pair->host.memory, CONV_HOST,
                                pair->host.size, NULL));
}

void api_pair_download(const struct api_pair *pair)
{
    api_must(api_gpu, conv_copy(api_gpu, pair->host.memory, CONV_HOST, pair->d_memory, CONV_DEVICE,
                                pair->host.size, NULL));
}

void api_pair_free(struct api_pair *pair)
{
    conv_free(api_gpu, CONV_DEVICE, pair->d_memory);
    api_image_free(&pair->host);
}

// --- decoding ------------------------------------------------------------------------------------

enum { FILES = 42 / PORTION };

struct files {
    struct png_file file[FILES];
    conv_bytes bytes[FILES];
};

#if CONV_HAVE_JPEG
// A JPEG instead of a PNG, of the same size.
static void make_jpeg(struct png_file *file, const struct png_spec *like, bool damaged)
{
    struct jpeg_spec spec = {.width = like->width,
                             .height = like->height,
                             .channels = random_below(&api_noise, 4) ? 3 : 1,
                             .sampling_h = 1 + (int)random_below(&api_noise, 2),
                             .sampling_v = 1 + (int)random_below(&api_noise, 2),
                             .restart = (int)random_below(&api_noise, 3),
                             .progressive = random_below(&api_noise, 6) == 0};
    png_make_free(file);
    jpeg_make(file, &spec, random_bits(&api_noise));
    if (damaged)
        file->data[file->size / 2] ^= (uint8_t)(1 + random_below(&api_noise, 255));
    jpeg_orient(file, 1 + (int)random_below(&api_noise, 8));
}
#endif

// Every kind of file: those that the device decodes, others, and damaged ones.
static void make_files(struct files *files, bool damaged)
{
    static const struct {
        int color_type, depth;
    } kinds[] = {{2, 8},  {0, 8},  {4, 8},  {6, 8}, {2, 16},
                 {0, 16}, {4, 16}, {6, 16}, {3, 8}, {0, 4}};
    *files = (struct files){0};
    for (int i = 0; i < FILES; i++) {
        int k = i % 3 ? (int)random_below(&api_noise, 10) : 0;
        // The files have about the same size, so that the device is faster for all of them
        // together, and are so large that it is worth to start it for JPEG.
        int width = (i % 8 ? 60 : 1) + (int)random_below(&api_noise, 60);
        int height = (i % 9 ? 40 * PORTION : 1) + (int)random_below(&api_noise, 20),
            type = kinds[k].color_type;
        size_t count = (size_t)width * (size_t)height * (size_t)png_make_channels(type);
        uint16_t *samples = malloc(count * sizeof *samples), value = 0;
        unsigned most = type == 3 ? 100 : 1u << kinds[k].depth;
        for (size_t s = 0; s < count; s++) {
            if (random_below(&api_noise, 3))
                value = (uint16_t)random_below(&api_noise, most);
            samples[s] = value;
        }
        struct png_spec spec = {.width = width,
                                .height = height,
                                .color_type = type,
                                .depth = kinds[k].depth,
                                .interlaced = random_below(&api_noise, 9) == 0,
                                .palette_size = type == 3 ? 100 : 0,
                                .transparency = !(type & 4) && random_below(&api_noise, 9) == 0,
                                .samples = samples};
        png_make_image(&files->file[i], &spec);
        free(samples);
        if (damaged && i % 2) {
            size_t size = files->file[i].size, room = size + 1000;
            files->file[i].data = realloc(files->file[i].data, room);
            files->file[i].size = png_mutate(files->file[i].data, size, room,
                                             (uint32_t)random_bits(&api_noise), NULL);
        }
#if CONV_HAVE_JPEG
        if (i % 4 == 1)
            make_jpeg(&files->file[i], &spec, damaged && i % 3 == 0);
#endif
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
    struct api_pair pairs[FILES];
    conv_decode_options on_device = *options;
    conv_status status =
        conv_decode_image(api_cpu, files->bytes, FILES, options, expected, expected_items, NULL);
    on_device.memory = CONV_DEVICE;
    for (int i = 0; i < FILES && layout >= 0; i++) {
        const conv_image *like = &expected[i];
        bool good = like->data;
        api_pair_make(&pairs[i], (enum api_layout)layout, good ? like->width : 1,
                      good ? like->height : 1, good ? like->channels : 1,
                      good ? like->sample : CONV_SAMPLE_U8);
        api_pair_upload(&pairs[i]);
        if (good) // a damaged file's image may have any shape: the library makes it
            found[i] = pairs[i].view;
    }
    assert_int_equal(
        conv_decode_image(api_gpu, files->bytes, FILES, &on_device, found, found_items, NULL),
        status);
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(found_items[i].status, expected_items[i].status);
        assert_string_equal(found_items[i].message, expected_items[i].message);
        assert_true(!found[i].data == !expected[i].data);
        if (!found[i].data)
            continue;
        struct api_pair own = {.view = found[i]};
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
        api_pair_download(&own);
        if (!api_image_equal(&own.host.view, &expected[i]))
            fail_msg("file %d, layout %d", i, layout);
        if (layout >= 0)
            assert_true(api_image_gaps_are(&own.host, FILL));
        else
            api_pair_free(&own);
        conv_free(api_cpu, CONV_HOST, expected[i].data);
    }
    for (int i = 0; i < FILES && layout >= 0; i++)
        api_pair_free(&pairs[i]);
}

UNIT_TEST(files_are_decoded_as_on_the_cpu)
{
    decoded_there = jpegs_there = 0;
    for (int layout = -2; layout < API_LAYOUTS; layout++) {
        struct files files;
        conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
        make_files(&files, layout % 2 == 0);
        options.planar = layout == -2;
        decode_both(&files, &options, layout);
        options.channels = layout % 3 ? 3 + (int)random_below(&api_noise, 2) : 1;
        options.gray = options.orient = 1;
        options.sample = layout % 2 ? CONV_SAMPLE_U8 : CONV_SAMPLE_U16;
        decode_both(&files, &options, layout);
        free_files(&files);
    }
    assert_true(short_of_memory || decoded_there >= 14 * FILES / 4); // of 14 batches
    assert_true(decoded_there > 0);
    assert_true(!CONV_HAVE_JPEG || short_of_memory || jpegs_there > FILES);
}

// --- encoding ------------------------------------------------------------------------------------

UNIT_TEST(images_are_encoded)
{
    enum { IMAGES = 30 / PORTION };
    encoded_there = 0;
    for (int layout = 0; layout < API_LAYOUTS; layout++) {
        struct api_pair pairs[IMAGES];
        conv_image views[IMAGES], decoded[IMAGES] = {0};
        conv_bytes files[IMAGES];
        conv_item items[IMAGES];
        for (int i = 0; i < IMAGES; i++) {
            int width = i == 0 ? 3000 : 16 * (1 + (int)random_below(&api_noise, 12));
            if (i % 2)
                width += (int)random_below(&api_noise, 16);
            api_pair_make(&pairs[i], (enum api_layout)layout, width,
                          1 + (int)random_below(&api_noise, 40),
                          1 + (int)random_below(&api_noise, 4),
                          random_below(&api_noise, 2) ? CONV_SAMPLE_U8 : CONV_SAMPLE_U16);
            api_image_fill(&pairs[i].host.view, &api_noise);
            api_pair_upload(&pairs[i]);
            views[i] = pairs[i].view;
        }
        // Encodes alternately into memory of the pool and of the caller.
        struct own_memory own = {.caller = pthread_self(), .most = IMAGES, .refused = -1};
        conv_encode_options options = CONV_ENCODE_OPTIONS_INIT;
        options.allocate = layout % 2 ? own_memory_allocate : NULL;
        options.user = &own;
        api_must(api_gpu, conv_encode_png(api_gpu, views, IMAGES, &options, files, items, NULL));
        api_must(api_cpu, conv_decode_png(api_cpu, files, IMAGES, NULL, decoded, NULL, NULL));
        for (int i = 0; i < IMAGES; i++) {
            assert_ok(items[i].status);
            assert_int_equal(decoded[i].channels, views[i].channels);
            assert_int_equal(decoded[i].sample, views[i].sample);
            if (!api_image_equal(&decoded[i], &pairs[i].host.view))
                fail_msg("image %d, layout %d", i, layout);
            conv_free(api_cpu, CONV_HOST, decoded[i].data);
            if (options.allocate) {
                assert_true(own_memory_holds(&own, files, i));
            } else {
                conv_free(api_gpu, CONV_HOST, (void *)(uintptr_t)files[i].data);
            }
            api_pair_free(&pairs[i]);
        }
        own_memory_free(&own);
    }
    assert_true(short_of_memory || encoded_there == API_LAYOUTS * IMAGES);
    assert_true(encoded_there > 0);
}

#if CONV_HAVE_JPEG
UNIT_TEST(jpegs_are_those_of_the_cpu)
{
    enum { IMAGES = 12 };
    static const int qualities[] = {0, 75, 95}, samplings[] = {0, 420, 422, 444};
    encoded_there = 0;
    for (int layout = 0; layout < API_LAYOUTS; layout++) {
        struct api_pair pairs[IMAGES];
        conv_image views[IMAGES], hosts[IMAGES];
        conv_bytes files[IMAGES], expected[IMAGES];
        struct own_memory own = {.caller = pthread_self(), .most = IMAGES, .refused = -1};
        conv_jpeg_encode_options options = CONV_JPEG_ENCODE_OPTIONS_INIT;
        options.quality = qualities[layout % 3];
        options.sampling = samplings[layout % 4];
        for (int i = 0; i < IMAGES; i++) {
            api_pair_make(&pairs[i], (enum api_layout)layout,
                          1 + (int)random_below(&api_noise, i == 0 ? 400 : 60),
                          1 + (int)random_below(&api_noise, 60), i % 3 ? 3 : 1, CONV_SAMPLE_U8);
            api_image_fill(&pairs[i].host.view, &api_noise);
            api_pair_upload(&pairs[i]);
            views[i] = pairs[i].view;
            hosts[i] = pairs[i].host.view;
        }
        api_must(api_cpu, conv_encode_jpeg(api_cpu, hosts, IMAGES, &options, expected, NULL, NULL));
        options.allocate = layout % 2 ? own_memory_allocate : NULL;
        options.user = &own;
        api_must(api_gpu, conv_encode_jpeg(api_gpu, views, IMAGES, &options, files, NULL, NULL));
        for (int i = 0; i < IMAGES; i++) {
            assert_int_equal(files[i].size, expected[i].size);
            assert_memory_equal(files[i].data, expected[i].data, files[i].size);
            conv_free(api_cpu, CONV_HOST, (void *)(uintptr_t)expected[i].data);
            if (!options.allocate)
                conv_free(api_gpu, CONV_HOST, (void *)(uintptr_t)files[i].data);
            api_pair_free(&pairs[i]);
        }
        own_memory_free(&own);
    }
    assert_true(encoded_there == API_LAYOUTS * IMAGES || (short_of_memory && encoded_there > 0));
}
#endif

// --- layers --------------------------------------------------------------------------------------

// Copies numbers to new device memory.
static void *upload(const float *numbers, size_t count)
{
    void *d_data;
    api_must(api_gpu, conv_allocate(api_gpu, CONV_DEVICE, count * sizeof *numbers, &d_data));
    api_must(api_gpu, conv_copy(api_gpu, d_data, CONV_DEVICE, numbers, CONV_HOST,
                                count * sizeof *numbers, NULL));
    return d_data;
}

// A layer without weights on the device: the first call has others, which change in place. False if
// the variant cannot do it.
static bool check_late_weights(const conv_layer_options *options, const char *variant, int side,
                               bool has_bias)
{
    enum { IMAGES = 2, MOST = 40000 };
    static float x[MOST], weights[MOST], bias[64];
    static _Alignas(16) float y[MOST], got[MOST];
    for (int i = 0; i < MOST; i++) {
        x[i] = (float)random_below(&api_noise, 2001) / 1000 - 1;
        weights[i] = (float)random_below(&api_noise, 2001) / 1000 - 1;
        bias[i % 64] = weights[i];
    }
    conv_layer *on_cpu, *late;
    int rows, columns;
    size_t room, taps = (size_t)(options->kernel_height * options->kernel_width),
                 count = taps * (size_t)(options->maps * options->channels / options->groups);
    api_must(api_cpu,
             conv_layer_create(&on_cpu, api_cpu, weights, has_bias ? bias : NULL, options));
    conv_layer_options there = *options;
    there.variant = variant;
    api_must(api_gpu, conv_layer_create(&late, api_gpu, NULL, NULL, &there));
    if (conv_layer_workspace(late, IMAGES, side, side, &room)) {
        conv_layer_destroy(late);
        conv_layer_destroy(on_cpu);
        return false;
    }
    api_must(api_cpu, conv_layer_result_size(on_cpu, side, side, &rows, &columns));
    size_t results = (size_t)(IMAGES * options->maps * rows * columns);
    assert_true(results <= MOST);
    conv_tensor input = {.data = x, .height = side, .width = side, .images = IMAGES};
    api_must(api_cpu, conv_layer_run(on_cpu, &input, y, NULL));
    void *d_x = upload(x, (size_t)(IMAGES * options->channels * side * side) + 4);
    void *d_weights = upload(x, count), *d_bias = upload(bias, 64), *d_y = upload(x, results);
    void *d_room;
    api_must(api_gpu, conv_allocate(api_gpu, CONV_DEVICE, room, &d_room));
    input.data = d_x;
    input.memory = CONV_DEVICE;
    for (int i = 0; i < 2; i++) {
        api_must(api_gpu, conv_layer_run_with(late, &input, d_weights, has_bias ? d_bias : NULL,
                                              d_room, d_y, NULL));
        if (i == 0)
            api_must(api_gpu, conv_copy(api_gpu, d_weights, CONV_DEVICE, weights, CONV_HOST,
                                        count * sizeof *weights, NULL));
    }
    api_must(api_gpu,
             conv_copy(api_gpu, got, CONV_HOST, d_y, CONV_DEVICE, results * sizeof *got, NULL));
    assert_memory_equal(got, y, results * sizeof *got);
    void *const blocks[] = {d_x, d_weights, d_bias, d_y, d_room};
    for (int i = 0; i < 5; i++)
        conv_free(api_gpu, CONV_DEVICE, blocks[i]);
    conv_layer_destroy(late);
    conv_layer_destroy(on_cpu);
    return true;
}

UNIT_TEST(layers_read_weights_in_device_memory)
{
    static const struct {
        int maps, channels, groups, side, stride, dilation, size;
        const char *padding;
    } cases[] = {{12, 3, 1, 3, 1, 1, 16, "same"}, {20, 12, 1, 1, 1, 1, 9, NULL},
                 {8, 8, 8, 3, 2, 1, 15, "1"},     {10, 4, 2, 3, 1, 2, 14, "0:1x2:3"},
                 {40, 16, 1, 5, 1, 1, 12, NULL},  {1, 1, 1, 7, 2, 1, 20, "3"},
                 {24, 12, 1, 5, 1, 1, 30, NULL}};
    int count, done[40] = {0};
    const struct conv_layer_variant *const *variants = conv_layer_variants(&count);
    if (short_of_memory)
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        conv_layer_options options = CONV_LAYER_OPTIONS_INIT;
        options.maps = cases[i].maps;
        options.channels = cases[i].channels;
        options.groups = cases[i].groups;
        options.kernel_height = options.kernel_width = cases[i].side;
        options.stride = cases[i].stride;
        options.dilation = cases[i].dilation;
        options.padding = cases[i].padding;
        assert_true(check_late_weights(&options, NULL, cases[i].size, i % 2));
        for (int v = 0; v < count; v++)
            if (variants[v]->place == CONV_ON_CUDA && variants[v]->handles & CONV_LAYER_LATE)
                done[v] += check_late_weights(&options, variants[v]->name, cases[i].size, i % 2);
    }
    for (int v = 0; v < count; v++)
        if (variants[v]->place == CONV_ON_CUDA && variants[v]->handles & CONV_LAYER_LATE &&
            !done[v])
            fail_msg("%s does none of the layers", variants[v]->name);
}

static conv_context *open_context(const char *device, char *message)
{
    conv_context *context;
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    options.device = device;
    options.threads = 1; // more would decode small batches themselves
    return conv_context_create(&context, &options, message) ? NULL : context;
}

int main(void)
{
    char message[CONV_MESSAGE_SIZE];
    api_cpu = open_context("cpu", message);
    api_gpu = open_context("cuda", message);
    if (!api_cpu || !api_gpu) {
        conv_context_destroy(api_cpu);
        return device_missing("test_api_device", message);
    }
    counting = *api_gpu->device->ops;
    counting.decode = decode_and_count;
    counting.encode = encode_and_count;
    api_gpu->device->ops = &counting;
    short_of_memory = getenv("CONV_EMULATED") != NULL;
    int failed = UNIT_RUN(NULL, NULL);
    if (!short_of_memory)
        failed += api_device_filters();
    conv_context_destroy(api_cpu);
    conv_context_destroy(api_gpu);
    return failed;
}
