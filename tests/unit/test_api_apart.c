// SPDX-License-Identifier: MIT
// Arguments of one call that share memory: refused if a byte is written twice, and right otherwise.
// In 1.0.0 a result was compared with its own source only, so that results = {y, x} of sources =
// {x, y} were wrong without an error.

#include "support/api_test.h"
#include "support/random.h"

enum { BYTES = 2048, ITEMS = 4 };

static int rounds(int usual)
{
    const char *text = getenv("CONV_ROUNDS");
    return text ? atoi(text) : usual;
}

// A part of the buffer, as crops, channels and every other row of images are.
static conv_image random_view(uint8_t *buffer, uint64_t *random, const conv_image *shape)
{
    static const int64_t rows[] = {48, 96, 52}, columns[] = {1, 2, 3, 6};
    conv_image view = *shape;
    view.data = buffer + random_below(random, BYTES / 2);
    view.row_stride = rows[random_below(random, 3)];
    view.column_stride = columns[random_below(random, 4)];
    view.channel_stride = random_below(random, 2) ? 1 : view.row_stride * 8;
    if (view.channel_stride == 1 && view.column_stride < view.channels)
        view.column_stride = view.channels;
    return view;
}

// Adds `bit` to each byte of the view; true if one had a bit of `taken`.
static bool mark(uint8_t *marks, const uint8_t *buffer, const conv_image *view, uint8_t bit,
                 uint8_t taken)
{
    bool met = false;
    size_t start = (size_t)((const uint8_t *)view->data - buffer);
    for (int y = 0; y < view->height; y++)
        for (int x = 0; x < view->width; x++)
            for (int c = 0; c < view->channels; c++) {
                uint8_t *at =
                    &marks[start + (size_t)(y * view->row_stride + x * view->column_stride +
                                            c * view->channel_stride)];
                met |= (*at & taken) != 0;
                *at |= bit;
            }
    return met;
}

// Whether a byte belongs to two results.
static bool expect_clash(const uint8_t *buffer, const conv_image *results, int count)
{
    uint8_t marks[2 * BYTES] = {0};
    for (int i = 0; i < count; i++)
        if (mark(marks, buffer, &results[i], 1, 1))
            return true;
    return false;
}

API_TEST(filters, 2)
{
    conv_filter *filter;
    assert_ok(conv_filter_create(&filter, context, "emboss", NULL));
    int refused = 0, done = 0;
    for (int round = 0; round < rounds(4000); round++) {
        uint64_t random = (uint64_t)round;
        uint8_t buffer[2 * BYTES], before[2 * BYTES], wanted[ITEMS][7 * 7 * 3];
        conv_image sources[ITEMS], results[ITEMS];
        int count = 1 + (int)random_below(&random, ITEMS);
        for (size_t i = 0; i < sizeof buffer; i++)
            buffer[i] = (uint8_t)random_bits(&random);
        for (int i = 0; i < count; i++) {
            conv_image shape =
                conv_image_interleaved(wanted[i], 1 + (int32_t)random_below(&random, 7),
                                       1 + (int32_t)random_below(&random, 7),
                                       random_below(&random, 2) ? 1 : 3, CONV_SAMPLE_U8, CONV_HOST);
            sources[i] = random_view(buffer, &random, &shape);
            results[i] = random_below(&random, 4) ? random_view(buffer, &random, &shape)
                                                  : sources[i]; // in place
            assert_ok(conv_filter_run(filter, &sources[i], &shape, 1, NULL));
        }
        memcpy(before, buffer, sizeof buffer);
        bool clash = expect_clash(buffer, results, count);
        conv_status status = conv_filter_run(filter, sources, results, count, NULL);
        if ((status != CONV_OK) != clash)
            fail_msg("round %d: %s, '%s'", round, clash ? "not refused" : "refused",
                     conv_context_message(context));
        refused += clash;
        done += !clash;
        if (clash)
            assert_memory_equal(buffer, before, sizeof buffer);
        for (int i = 0; i < count && !clash; i++) {
            const uint8_t *right = wanted[i];
            for (int y = 0; y < results[i].height; y++)
                for (int x = 0; x < results[i].width; x++)
                    for (int c = 0; c < results[i].channels; c++)
                        assert_int_equal(*((uint8_t *)results[i].data + y * results[i].row_stride +
                                           x * results[i].column_stride +
                                           c * results[i].channel_stride),
                                         *right++);
        }
    }
    if (rounds(4000) >= 1000)
        assert_true(refused > 100 && done > 100);
    conv_filter_destroy(filter);
}

// Images that are decoded over each other, or over a file of the call.
API_TEST(decodings, 2)
{
    uint8_t samples[2][6 * 9], *room = malloc(4096);
    for (int i = 0; i < 54; i++)
        samples[0][i] = (uint8_t)(5 * i);
    conv_image image = conv_image_interleaved(samples[0], 9, 6, 1, CONV_SAMPLE_U8, CONV_HOST);
    conv_bytes files[2];
    conv_item items[2];
    assert_ok(conv_encode_png(context, &image, 1, NULL, files, items, NULL));
    files[1] = files[0];
    conv_image images[2] = {image, image};
    REFUSE(CONV_ERR_USAGE, conv_decode_png(context, files, 2, NULL, images, items, NULL));
    assert_int_equal(items[1].status, CONV_ERR_USAGE);
    images[0] = images[1] = image;
    images[1].data = samples[0] + 9;
    REFUSE(CONV_ERR_USAGE, conv_decode_png(context, files, 2, NULL, images, items, NULL));
    assert_int_equal(samples[0][53], (uint8_t)(5 * 53));
    memcpy(room, files[0].data, files[0].size);
    for (size_t at = 0; at < files[0].size + 54; at++) {
        images[0] = image;
        images[0].data = room + at;
        images[1] = image;
        files[1] = (conv_bytes){room + 54, files[0].size};
        memmove(room + 54, files[0].data, files[0].size);
        conv_status wanted = at + 54 > 54 && at < 54 + files[0].size ? CONV_ERR_USAGE : CONV_OK;
        assert_int_equal(conv_decode_png(context, files, 2, NULL, images, items, NULL), wanted);
    }
    conv_free(context, CONV_HOST, (void *)(uintptr_t)files[0].data);
    free(room);
}

API_TEST(layers, 1)
{
    _Alignas(16) float values[64] = {0}, weight = 1;
    conv_layer *layer;
    conv_layer_options options = CONV_LAYER_OPTIONS_INIT;
    options.maps = options.channels = options.kernel_height = options.kernel_width = 1;
    assert_ok(conv_layer_create(&layer, context, &weight, NULL, &options));
    conv_tensor input = {
        .data = values + 16, .memory = CONV_HOST, .images = 1, .height = 4, .width = 4};
    for (int at = 0; at <= 48; at += 4) {
        bool apart = at == 0 || at >= 32;
        assert_int_equal(conv_layer_run(layer, &input, values + at, NULL),
                         apart ? CONV_OK : CONV_ERR_USAGE);
    }
    conv_layer_destroy(layer);
}

UNIT_MAIN(NULL, NULL)
