// SPDX-License-Identifier: MIT
// PNG files through the C interface: into and out of every layout, with conversions, in batches of
// which some files are damaged.
#include "support/api_image.h"
#include "support/api_test.h"
#include "support/own_memory.h"
#include "support/png_make.h"
#include "support/random.h"
#include "support/reference.h"

#define FILL 0x5a

static uint64_t noise = 9;

static void make_file(struct png_file *file, int width, int height, int color_type, int depth,
                      bool interlaced, bool transparency)
{
    size_t count = (size_t)width * (size_t)height * (size_t)png_make_channels(color_type);
    uint16_t *samples = malloc(count * sizeof *samples);
    unsigned colors = color_type == 3 && depth < 8 ? 1u << depth : 200;
    for (size_t i = 0; i < count; i++)
        samples[i] = (uint16_t)(color_type == 3 ? random_below(&noise, colors)
                                                : random_bits(&noise) & ((1u << depth) - 1));
    struct png_spec spec = {.width = width,
                            .height = height,
                            .color_type = color_type,
                            .depth = depth,
                            .interlaced = interlaced,
                            .palette_size = color_type == 3 ? (int)colors : 0,
                            .transparency = transparency,
                            .samples = samples};
    *file = (struct png_file){0};
    png_make_image(file, &spec);
    free(samples);
}

// The reference's sample, converted as the options say.
static uint32_t expected_sample(const struct reference_image *image, int channels,
                                conv_sample sample, int c, int x, int y)
{
    bool alpha = image->channels % 2 == 0;
    int from = c;
    uint32_t value = image->depth == 16 ? 65535 : 255;
    if (channels != image->channels) {
        if (channels % 2 == 0 && c == channels - 1)
            from = alpha ? image->channels - 1 : -1;
        else if (image->channels < 3)
            from = 0;
    }
    if (from >= 0) {
        const uint8_t *row = image->rows + (size_t)y * image->row_size;
        size_t at = (size_t)x * (size_t)image->channels + (size_t)from;
        value = image->depth == 16 ? (uint32_t)(row[2 * at] << 8 | row[2 * at + 1]) : row[at];
    }
    if (sample == CONV_SAMPLE_U8 && image->depth == 16)
        return (value + 128) / 257;
    return sample == CONV_SAMPLE_U16 && image->depth == 8 ? value * 257 : value;
}

static void compare(const conv_image *view, const struct reference_image *image)
{
    for (int c = 0; c < view->channels; c++)
        for (int y = 0; y < view->height; y++)
            for (int x = 0; x < view->width; x++) {
                uint32_t expected = expected_sample(image, view->channels, view->sample, c, x, y);
                if (api_image_get(view, c, x, y) != expected)
                    fail_msg("%d channels of %d, channel %d, x %d, y %d: %u, not %u",
                             view->channels, image->channels, c, x, y, api_image_get(view, c, x, y),
                             expected);
            }
}

static void decode_one(conv_context *context, const struct png_file *file,
                       const conv_decode_options *options, enum api_layout layout)
{
    struct reference_image reference = {0};
    assert_int_equal(reference_read(&reference, file->data, file->size, 1 << 24), REFERENCE_TAKES);
    conv_bytes bytes = {file->data, file->size};
    int channels = options->channels ? options->channels : reference.channels;
    conv_sample sample = options->sample         ? options->sample
                         : reference.depth == 16 ? CONV_SAMPLE_U16
                                                 : CONV_SAMPLE_U8;
    conv_item item;
    conv_image own = {0};
    enum conv_status status = conv_decode_png(context, &bytes, 1, options, &own, &item, NULL);
    if (reference.channels >= 3 && channels < 3) {
        assert_int_equal(status, CONV_ERR_UNSUPPORTED);
        assert_null(own.data);
        free(reference.rows);
        return;
    }
    if (status)
        fail_msg("%s", item.message);
    assert_int_equal(own.channels, channels);
    assert_int_equal(own.sample, sample);
    assert_int_equal(own.has_alpha, channels % 2 == 0);
    assert_int_equal((uintptr_t)own.data % 256, 0);
    compare(&own, &reference);
    conv_free(context, CONV_HOST, own.data);

    struct api_image image;
    api_image_make(&image, layout, reference.width, reference.height, channels, sample, FILL);
    if (conv_decode_png(context, &bytes, 1, options, &image.view, &item, NULL))
        fail_msg("%s", item.message);
    compare(&image.view, &reference);
    assert_true(api_image_gaps_are(&image, FILL));
    api_image_free(&image);
    free(reference.rows);
}

API_TEST(every_kind_is_decoded_into_every_layout, 1)
{
    static const struct {
        int color_type, depth;
    } kinds[] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                 {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int form = 0; form < 4; form++) {
            struct png_file file;
            if (form & 2 && kinds[k].color_type & 4)
                continue; // tRNS and alpha exclude each other
            make_file(&file, 1 + (int)random_below(&noise, 70), 1 + (int)random_below(&noise, 40),
                      kinds[k].color_type, kinds[k].depth, form & 1, form & 2);
            for (int layout = 0; layout < API_LAYOUTS; layout++)
                for (int channels = 0; channels <= 4; channels++) {
                    conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
                    options.channels = channels;
                    options.planar = layout & 1;
                    options.sample = (conv_sample)random_below(&noise, 3);
                    decode_one(context, &file, &options, (enum api_layout)layout);
                }
            png_make_free(&file);
        }
}

API_TEST(encoded_images_come_back, 2)
{
    for (int i = 0; i < 300; i++) {
        struct api_image image, back;
        int channels = 1 + i % 4, width = 1 + (int)random_below(&noise, 150);
        int height = 1 + (int)random_below(&noise, 100);
        conv_sample sample = i % 3 ? CONV_SAMPLE_U8 : CONV_SAMPLE_U16;
        conv_encode_options options = CONV_ENCODE_OPTIONS_INIT;
        options.level = i % 14 - 1;
        api_image_make(&image, (enum api_layout)(i % API_LAYOUTS), width, height, channels, sample,
                       FILL);
        api_image_fill(&image.view, &noise);
        conv_bytes file;
        conv_item item;
        if (conv_encode_png(context, &image.view, 1, &options, &file, &item, NULL))
            fail_msg("%s", item.message);
        assert_true(api_image_gaps_are(&image, FILL));
        struct reference_image reference = {0};
        assert_int_equal(reference_read(&reference, file.data, file.size, 1 << 24),
                         REFERENCE_TAKES);
        compare(&image.view, &reference);
        api_image_make(&back, API_CROPPED, width, height, channels, sample, 0);
        assert_ok(conv_decode_png(context, &file, 1, NULL, &back.view, NULL, NULL));
        assert_true(api_image_equal(&back.view, &image.view));
        conv_free(context, CONV_HOST, (void *)(uintptr_t)file.data);
        free(reference.rows);
        api_image_free(&image);
        api_image_free(&back);
    }
}

// The same files in the caller's memory. There is none for one of them, and one image is not valid.
// With `reserve`, some files get memory before they are encoded, by one thread only.
static void check_own_memory(int threads, bool reserve)
{
    enum { COUNT = 40, WRONG = 7, REFUSED = 18 };
    conv_context *context = api_open(threads);
    conv_bytes files[COUNT], expected[COUNT];
    struct own_memory own = {
        .caller = pthread_self(), .most = COUNT, .refused = REFUSED, .files = files};
    conv_encode_options options = CONV_ENCODE_OPTIONS_INIT;
    struct api_image images[COUNT];
    conv_image views[COUNT];
    conv_item items[COUNT];
    for (int i = 0; i < COUNT; i++) {
        api_image_make(&images[i], (enum api_layout)(i % API_LAYOUTS), 5 + 3 * i, 40, 1 + i % 4,
                       CONV_SAMPLE_U8, FILL);
        api_image_fill(&images[i].view, &noise);
        views[i] = images[i].view;
    }
    views[WRONG].channels = 5;
    assert_int_equal(conv_encode_png(context, views, COUNT, NULL, expected, NULL, NULL),
                     CONV_ERR_USAGE);
    options.allocate = own_memory_allocate;
    options.reserve = reserve ? own_memory_reserve : NULL;
    options.user = &own;
    assert_int_equal(conv_encode_png(context, views, COUNT, &options, files, items, NULL),
                     CONV_ERR_USAGE);
    assert_int_equal(own.reserved, reserve && threads == 1 ? COUNT - (COUNT + 2) / 3 - 1 : 0);
    for (int i = 0; i < COUNT; i++) {
        enum conv_status wanted = i == WRONG     ? CONV_ERR_USAGE
                                  : i == REFUSED ? CONV_ERR_MEMORY
                                                 : CONV_OK;
        assert_int_equal(items[i].status, wanted);
        if (wanted) {
            assert_null(files[i].data);
            assert_int_equal(files[i].size, 0);
        } else {
            assert_true(own_memory_holds(&own, files, i));
            assert_int_equal(files[i].size, expected[i].size);
            assert_memory_equal(files[i].data, expected[i].data, files[i].size);
        }
        conv_free(context, CONV_HOST, (void *)(uintptr_t)expected[i].data);
        api_image_free(&images[i]);
    }
    assert_ok(conv_encode_png(context, views, 0, &options, NULL, NULL, NULL));
    own_memory_free(&own);
    conv_context_destroy(context);
}

UNIT_TEST(files_are_made_in_the_callers_memory)
{
    check_own_memory(3, false);
    check_own_memory(1, false);
    check_own_memory(3, true);
    check_own_memory(1, true);
}

// Damaged files among good ones: each gets its own status.
API_TEST(batches_survive_damaged_files, 4)
{
    enum { COUNT = 60 };
    struct png_file files[COUNT];
    conv_bytes bytes[COUNT];
    conv_image images[COUNT] = {0};
    conv_item items[COUNT];
    for (int i = 0; i < COUNT; i++) {
        make_file(&files[i], 20 + i, 30, i % 2 ? 2 : 6, 8, false, false);
        if (i % 5 == 3)
            files[i].data[files[i].size / 2] ^= 0x10;
        bytes[i] = (conv_bytes){files[i].data, i % 7 == 5 ? files[i].size / 2 : files[i].size};
    }
    bytes[11] = (conv_bytes){NULL, 0};
    assert_int_equal(conv_decode_png(context, bytes, COUNT, NULL, images, items, NULL),
                     CONV_ERR_FORMAT);
    assert_memory_equal(conv_context_message(context), "item 3: ", 8);
    for (int i = 0; i < COUNT; i++) {
        struct reference_image reference = {0};
        if (i % 5 == 3 || i % 7 == 5 || i == 11) {
            assert_int_equal(items[i].status, i == 11 ? CONV_ERR_USAGE : CONV_ERR_FORMAT);
            assert_true(items[i].message[0] != 0);
            assert_null(images[i].data);
        } else {
            assert_ok(items[i].status);
            assert_string_equal(items[i].message, "");
            assert_int_equal(reference_read(&reference, files[i].data, files[i].size, 1 << 24),
                             REFERENCE_TAKES);
            compare(&images[i], &reference);
            conv_free(context, CONV_HOST, images[i].data);
            free(reference.rows);
        }
        png_make_free(&files[i]);
    }
}

UNIT_TEST(probing_says_what_decoding_gives)
{
    struct png_file file;
    conv_png_info info;
    char message[CONV_MESSAGE_SIZE] = "";
    make_file(&file, 33, 7, 3, 4, true, true);
    assert_ok(conv_probe_png(file.data, file.size, &info, message));
    assert_int_equal(info.width, 33);
    assert_int_equal(info.height, 7);
    assert_int_equal(info.channels, 4);
    assert_int_equal(info.sample, CONV_SAMPLE_U8);
    assert_int_equal(info.has_alpha, 1);
    assert_int_equal(info.bit_depth, 4);
    assert_int_equal(info.color_type, 3);
    assert_int_equal(info.interlaced, 1);
    assert_int_equal(info.animated, 0);
    assert_string_equal(message, "");
    file.data[0] = 'p';
    assert_int_equal(conv_probe_png(file.data, file.size, &info, message), CONV_ERR_FORMAT);
    assert_true(message[0] != 0);
    png_make_free(&file);
}

UNIT_MAIN(NULL, NULL)
