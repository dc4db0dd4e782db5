// SPDX-License-Identifier: MIT
// Wrong views of images and wrong PNG files: refused as test_api_arguments.c says.
#include "support/api_image.h"
#include "support/api_test.h"
#include "support/png_make.h"

#define MOST_SPOILED 20
#define ONLY_16_BITS 2 // the last ones of spoil(): samples that are not aligned

// Copies of a good view of three channels, each with one member spoiled. Returns their number.
static int spoil(conv_image spoiled[MOST_SPOILED], const conv_image *good)
{
    int count = 0;
#define SPOIL(assignment) (spoiled[count] = *good, spoiled[count++].assignment)
    SPOIL(data = NULL); // must be first: for some results NULL is allowed
    SPOIL(width = 0);
    SPOIL(width = -5);
    SPOIL(height = INT32_MIN);
    SPOIL(channels = 0);
    SPOIL(channels = 5);
    SPOIL(channels = -1);
    SPOIL(sample = (conv_sample)0);
    SPOIL(sample = CONV_SAMPLE_F16);
    SPOIL(sample = (conv_sample)99);
    SPOIL(memory = (conv_memory)7);
    SPOIL(has_alpha = 1); // of three channels
    SPOIL(row_stride = -good->row_stride);
    SPOIL(column_stride = INT64_MIN);
    SPOIL(channel_stride = -1);
    SPOIL(row_stride = INT64_MAX - 1);
    SPOIL(row_stride = INT64_MAX / 2), spoiled[count - 1].column_stride = INT64_MAX / 2;
    SPOIL(channel_stride = INT64_MAX - 1);
    SPOIL(row_stride = good->row_stride + 1);
    SPOIL(data = (uint8_t *)good->data + 1);
    return count;
}

// The same for mistakes that matter only in views that are written to.
static int overlap(conv_image spoiled[MOST_SPOILED], const conv_image *good)
{
    int count = 0;
    SPOIL(row_stride = good->row_stride - 2);
    SPOIL(row_stride = 0);
    SPOIL(column_stride = 2);
    SPOIL(channel_stride = 0);
    SPOIL(channel_stride = good->row_stride - 2);
    return count;
}

// Opens a source and a result of 16 bits, and a filter for them.
static conv_filter *open_views(struct api_image images[2], conv_context *context)
{
    conv_filter *filter;
    for (int i = 0; i < 2; i++)
        api_image_make(&images[i], API_INTERLEAVED, 9, 7, 3, CONV_SAMPLE_U16, 1 + i);
    assert_ok(conv_filter_create(&filter, context, "blur", NULL));
    return filter;
}

static void close_views(struct api_image images[2], conv_filter *filter)
{
    conv_filter_destroy(filter);
    for (int i = 0; i < 2; i++)
        api_image_free(&images[i]);
}

API_TEST(wrong_views_are_refused, 2)
{
    struct api_image images[2];
    conv_filter *filter = open_views(images, context);
    conv_image *source = &images[0].view, *result = &images[1].view;
    conv_image spoiled[MOST_SPOILED];
    conv_bytes file;
    conv_item item;
    int count = spoil(spoiled, source);
    for (int i = 0; i < count; i++) {
        REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &spoiled[i], result, 1, NULL));
        REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, source, &spoiled[i], 1, NULL));
        file = (conv_bytes){&file, 1};
        REFUSE(CONV_ERR_USAGE, conv_encode_png(context, &spoiled[i], 1, NULL, &file, &item, NULL));
        assert_null(file.data);
        assert_int_equal(item.status, CONV_ERR_USAGE);
    }
    count = overlap(spoiled, result);
    for (int i = 0; i < count; i++)
        REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, source, &spoiled[i], 1, NULL));
    // Views that are only read may overlap themselves: rows that are all the same row.
    conv_image one_row = *source;
    one_row.row_stride = 0;
    assert_ok(conv_filter_run(filter, &one_row, result, 1, NULL));

    assert_int_equal(conv_filter_run(NULL, source, result, 1, NULL), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, NULL, result, 1, NULL));
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, source, NULL, 1, NULL));
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, source, result, -1, NULL));
    assert_ok(conv_filter_run(filter, NULL, NULL, 0, NULL));
    assert_ok(conv_filter_run(filter, source, result, 1, NULL));
    close_views(images, filter);
}

API_TEST(results_of_another_shape_or_place_are_refused, 2)
{
    struct api_image images[2];
    conv_filter *filter = open_views(images, context);
    conv_image *source = &images[0].view, *result = &images[1].view;
    // Of the constants of a border, images of 16 bits take those of 8-bit units.
    static const char *const constants[] = {"constant:0.5", "constant:-1", "constant:256"};
    for (int i = 0; i < 3; i++) {
        conv_filter_options options = CONV_FILTER_OPTIONS_INIT;
        conv_filter *of_floats;
        options.border = constants[i];
        assert_ok(conv_filter_create(&of_floats, context, "blur", &options));
        REFUSE(CONV_ERR_USAGE, conv_filter_run(of_floats, source, result, 1, NULL));
        assert_non_null(strstr(conv_context_message(context), "whole number"));
        conv_filter_destroy(of_floats);
    }
    conv_image other = *result;
    other.width--;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, source, &other, 1, NULL));
    other = *result;
    other.channels = 1;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, source, &other, 1, NULL));
    other = *result;
    other.sample = CONV_SAMPLE_U8;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, source, &other, 1, NULL));
    other = *result;
    other.memory = CONV_DEVICE;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, source, &other, 1, NULL));
    // Half of the result's memory is the source's, row by row or pixel by pixel: it is copied.
    other = *source;
    other.data = (uint8_t *)source->data + 2 * source->row_stride;
    other.height = source->height - 2;
    conv_image top = *source;
    top.height -= 2;
    assert_ok(conv_filter_run(filter, &top, &other, 1, NULL));
    // Left and right half are apart, although their rows interleave.
    conv_image left = *source, right = *source;
    left.width = right.width = 4;
    right.data = (uint8_t *)source->data + 4 * source->column_stride;
    assert_ok(conv_filter_run(filter, &left, &right, 1, NULL));
    right.data = (uint8_t *)source->data + 3 * source->column_stride;
    assert_ok(conv_filter_run(filter, &left, &right, 1, NULL));
    // Two results of the same memory.
    const conv_image both[2] = {*source, *source}, results[2] = {left, right};
    conv_image narrow[2] = {both[0], both[1]};
    narrow[0].width = narrow[1].width = 4;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, narrow, results, 2, NULL));

    close_views(images, filter);
}

// Makes an image of 8 bits, and returns its PNG file.
static conv_bytes open_file(struct api_image *image, conv_context *context)
{
    conv_bytes file;
    api_image_make(image, API_INTERLEAVED, 9, 7, 3, CONV_SAMPLE_U8, 1);
    assert_ok(conv_encode_png(context, &image->view, 1, NULL, &file, NULL, NULL));
    return file;
}

static void close_file(struct api_image *image, const conv_bytes *file, conv_context *context)
{
    conv_free(context, CONV_HOST, (void *)(uintptr_t)file->data);
    api_image_free(image);
}

API_TEST(wrong_encodings_are_refused, 2)
{
    struct api_image image;
    conv_bytes file = open_file(&image, context);
    conv_bytes other;
    conv_item item;
    conv_encode_options encode = CONV_ENCODE_OPTIONS_INIT;
    assert_int_equal(conv_encode_png(NULL, &image.view, 1, NULL, &other, &item, NULL),
                     CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_encode_png(context, NULL, 1, NULL, &other, &item, NULL));
    REFUSE(CONV_ERR_USAGE, conv_encode_png(context, &image.view, 1, NULL, NULL, &item, NULL));
    REFUSE(CONV_ERR_USAGE, conv_encode_png(context, &image.view, -2, NULL, &other, &item, NULL));
    assert_ok(conv_encode_png(context, NULL, 0, NULL, NULL, NULL, NULL));
    for (int level = -2; level < 14; level += 15) {
        encode.level = level;
        REFUSE(CONV_ERR_USAGE,
               conv_encode_png(context, &image.view, 1, &encode, &other, NULL, NULL));
    }
    encode.level = 1;
    encode.size--;
    REFUSE(CONV_ERR_USAGE, conv_encode_png(context, &image.view, 1, &encode, &other, NULL, NULL));
    close_file(&image, &file, context);
}

API_TEST(wrong_decodings_are_refused, 2)
{
    struct api_image image;
    conv_bytes file = open_file(&image, context);
    conv_image spoiled[MOST_SPOILED];
    conv_item item;
    conv_decode_options decode = CONV_DECODE_OPTIONS_INIT;
    conv_image into = {0};
    conv_image_info probed; // was given what no image can be decoded to
    assert_int_equal(conv_decode_png(NULL, &file, 1, NULL, &into, &item, NULL), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_decode_png(context, NULL, 1, NULL, &into, &item, NULL));
    REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, 1, NULL, NULL, &item, NULL));
    REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, -1, NULL, &into, &item, NULL));
    assert_ok(conv_decode_png(context, NULL, 0, NULL, NULL, NULL, NULL));
    static const struct {
        int channels, sample, memory;
    } wrong[] = {{5, 0, 0}, {-1, 0, 0}, {0, CONV_SAMPLE_F32, 0}, {0, 77, 0}, {0, 0, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        decode.channels = wrong[i].channels;
        decode.sample = (conv_sample)wrong[i].sample;
        decode.memory = (conv_memory)wrong[i].memory;
        REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, 1, &decode, &into, NULL, NULL));
        assert_int_equal(conv_probe_image(file.data, file.size, &decode, &probed, NULL),
                         CONV_ERR_USAGE);
    }
    int count = spoil(spoiled, &image.view) - ONLY_16_BITS;
    for (int i = 1; i < count; i++) // NULL is allowed here
        REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, 1, NULL, &spoiled[i], &item, NULL));
    count = overlap(spoiled, &image.view);
    for (int i = 0; i < count; i++)
        REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, 1, NULL, &spoiled[i], &item, NULL));
    for (int i = 0; i < 4; i++) {
        into = image.view;
        into.width -= i == 0;
        into.height -= i == 1;
        into.channels -= i == 2;
        into.sample = i == 3 ? CONV_SAMPLE_U16 : CONV_SAMPLE_U8;
        if (i == 3)
            into = conv_image_planar(image.view.data, 1, 1, 3, CONV_SAMPLE_U16, CONV_HOST);
        REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, 1, NULL, &into, &item, NULL));
        assert_int_equal(item.status, CONV_ERR_USAGE);
    }
    conv_png_info info;
    assert_int_equal(conv_probe_png(NULL, 0, &info, NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_probe_png(file.data, file.size, NULL, NULL), CONV_ERR_USAGE);
    close_file(&image, &file, context);
}

// A header may declare any size: memory is taken only for images that the file can hold.
UNIT_TEST(large_images_are_refused)
{
    conv_context *context;
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    options.device = "cpu";
    options.max_pixels = 1000;
    assert_ok(conv_context_create(&context, &options, NULL));
    static const int sides[][2] = {
        {100, 11}, {INT32_MAX, INT32_MAX}, {1 << 20, 1 << 20}, {1001, 1}};
    for (int i = 0; i < 4; i++) {
        struct png_file file = {0};
        conv_image image = {0};
        conv_item item;
        png_make_head(&file, sides[i][0], sides[i][1], 16, 6);
        struct png_file data = png_make_zlib("", 1);
        png_make_chunk(&file, "IDAT", data.data, data.size);
        png_make_chunk(&file, "IEND", NULL, 0);
        conv_bytes bytes = {file.data, file.size};
        enum conv_status status = conv_decode_png(context, &bytes, 1, NULL, &image, &item, NULL);
        assert_true(status == CONV_ERR_LIMIT || status == CONV_ERR_FORMAT);
        assert_null(image.data);
        png_make_free(&file);
        png_make_free(&data);
    }
    conv_context_destroy(context);
}

// A call that fails as a whole reports it for every item; members that must be unset are refused.
API_TEST(refused_calls_say_so_for_each_item, 2)
{
    conv_bytes file = {"", 0}, files[2] = {{&file, 7}, {&file, 7}};
    uint8_t samples[4] = {0};
    conv_image images[2] = {conv_image_planar(samples, 2, 2, 1, CONV_SAMPLE_U8, CONV_HOST)};
    images[1] = images[0];
    conv_item items[2];
    memset(items, 0xff, sizeof items);
    conv_decode_options decode = CONV_DECODE_OPTIONS_INIT;
    decode.reserved[2] = 1;
    assert_int_equal(conv_decode_png(context, files, 2, &decode, images, items, NULL),
                     CONV_ERR_UNSUPPORTED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(items[i].status, CONV_ERR_UNSUPPORTED);
        assert_string_equal(items[i].message, conv_context_message(context));
    }
    memset(items, 0xff, sizeof items);
    conv_encode_options encode = CONV_ENCODE_OPTIONS_INIT;
    encode.level = 99;
    assert_int_equal(conv_encode_png(context, images, 2, &encode, files, items, NULL),
                     CONV_ERR_USAGE);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(items[i].status, CONV_ERR_USAGE);
        assert_true(!files[i].data && !files[i].size);
    }
    encode.level = -1;
    images[1].reserved[1] = 1;
    assert_int_equal(conv_encode_png(context, images, 2, &encode, files, items, NULL),
                     CONV_ERR_UNSUPPORTED);
    assert_ok(items[0].status);
    assert_int_equal(items[1].status, CONV_ERR_UNSUPPORTED);
    conv_free(context, CONV_HOST, (void *)(uintptr_t)files[0].data);

    char path[3000];
    memset(path, 'x', sizeof path);
    memcpy(path, "./", 2);
    path[sizeof path - 1] = 0;
    conv_filter *filter;
    assert_true(conv_filter_create(&filter, context, path, NULL) != CONV_OK);
    assert_true(strlen(conv_context_message(context)) < CONV_MESSAGE_SIZE);
}

UNIT_MAIN(NULL, NULL)
