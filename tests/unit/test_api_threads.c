// SPDX-License-Identifier: MIT
// Contexts in several threads at once, which share nothing, and thousands of calls that leak
// nothing.
#include <malloc.h>
#include <pthread.h>

#include "support/api_image.h"
#include "support/api_test.h"
#include "support/random.h"

// --- several contexts ----------------------------------------------------------------------------

enum { BATCH = 6 };

struct work {
    conv_context *context;
    conv_filter *filter;
    conv_layer *layer;
    uint64_t random, digest;
};

static conv_status open_work(struct work *work)
{
    float weights[2 * 3 * 9];
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        weights[i] = (float)i / 10 - 3;
    conv_layer_options options = CONV_LAYER_OPTIONS_INIT;
    options.maps = 2;
    options.channels = 3;
    options.kernel_height = options.kernel_width = 3;
    options.input = CONV_SAMPLE_U8;
    options.padding = "same";
    work->context = api_open(3);
    conv_status status = conv_filter_create(&work->filter, work->context, "gaussian5,emboss", NULL);
    return status ? status
                  : conv_layer_create(&work->layer, work->context, weights, NULL, &options);
}

static void add_to_digest(struct work *work, const void *data, size_t size)
{
    for (size_t k = 0; k < size; k++)
        work->digest = (work->digest ^ ((const uint8_t *)data)[k]) * 1099511628211u;
}

// Runs a layer on an image, and adds the maps to the digest.
static conv_status run_layer(struct work *work, const conv_image *image)
{
    void *maps;
    size_t size = (size_t)image->width * (size_t)image->height * 2 * sizeof(float);
    conv_tensor input = {
        .data = image->data, .height = image->height, .width = image->width, .images = 1};
    conv_status status = conv_allocate(work->context, CONV_HOST, size, &maps);
    if (!status)
        status = conv_layer_run(work->layer, &input, maps, NULL);
    if (!status)
        add_to_digest(work, maps, size);
    conv_free(work->context, CONV_HOST, maps);
    return status;
}

static conv_status run_round(struct work *work)
{
    struct api_image images[BATCH];
    conv_image views[BATCH], decoded[BATCH] = {0};
    conv_bytes files[BATCH];
    for (int i = 0; i < BATCH; i++) {
        api_image_make(&images[i], (enum api_layout)(i % API_LAYOUTS),
                       100 + (int)random_below(&work->random, 90),
                       200 + (int)random_below(&work->random, 90), 3, CONV_SAMPLE_U8, 0);
        api_image_fill(&images[i].view, &work->random);
        views[i] = images[i].view;
    }
    conv_decode_options planar = CONV_DECODE_OPTIONS_INIT;
    planar.planar = 1;
    conv_status status = conv_encode_png(work->context, views, BATCH, NULL, files, NULL, NULL);
    if (!status)
        status = conv_decode_png(work->context, files, BATCH, &planar, decoded, NULL, NULL);
    if (!status)
        status = conv_filter_run(work->filter, decoded, views, BATCH, NULL);
    for (int i = 0; i < BATCH; i++) {
        add_to_digest(work, images[i].memory, images[i].size);
        if (!status)
            status = run_layer(work, &decoded[i]);
        conv_free(work->context, CONV_HOST, decoded[i].data);
        conv_free(work->context, CONV_HOST, (void *)(uintptr_t)files[i].data);
        api_image_free(&images[i]);
    }
    return status;
}

// Decodes, filters, encodes and runs a layer, in a context that is opened here. Returns a digest of
// all results; 0 if a call failed.
static uint64_t work(uint64_t seed, int rounds)
{
    struct work work = {.random = seed, .digest = 1469598103934665603u};
    conv_status status = open_work(&work);
    for (int round = 0; round < rounds && !status; round++)
        status = run_round(&work);
    conv_layer_destroy(work.layer);
    conv_filter_destroy(work.filter);
    conv_context_destroy(work.context);
    return status ? 0 : work.digest;
}

struct worker {
    pthread_t thread;
    uint64_t seed, digest;
};

static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    worker->digest = work(worker->seed, CONV_SANITIZED ? 2 : 6);
    return NULL;
}

UNIT_TEST(contexts_in_threads_are_independent)
{
    enum { WORKERS = 4 };
    struct worker workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.seed = (uint64_t)i / 2}; // two do the same
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    assert_true(workers[0].digest != 0);
    assert_true(workers[0].digest == workers[1].digest);
    assert_true(workers[2].digest == workers[3].digest);
    assert_true(workers[0].digest != workers[2].digest);
    struct worker alone = {.seed = 1};
    run_worker(&alone);
    assert_true(alone.digest == workers[2].digest);
}

// --- leaks ---------------------------------------------------------------------------------------

static size_t bytes_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

// Memory of the caller for one small file.
static void give_room(void *user, int count, const int32_t *indices, const size_t *sizes,
                      void **memory)
{
    (void)indices;
    assert_int_equal(count, 1);
    memory[0] = sizes[0] <= 4096 ? user : NULL;
}

// Every function that takes memory, good and bad calls alike.
static void call_all(conv_context *context, struct api_image *image)
{
    conv_filter *filter;
    conv_layer *layer;
    conv_bytes file, bad = {"no PNG", 6};
    conv_image decoded = {0}, none = {0};
    const float weights[9] = {1};
    float y[64];
    conv_layer_options options = CONV_LAYER_OPTIONS_INIT;
    options.maps = options.channels = 1;
    options.kernel_height = options.kernel_width = 3;
    assert_ok(conv_encode_png(context, &image->view, 1, NULL, &file, NULL, NULL));
    conv_encode_options into_room = CONV_ENCODE_OPTIONS_INIT;
    char room[4096];
    conv_bytes own;
    into_room.allocate = give_room;
    into_room.user = room;
    assert_ok(conv_encode_png(context, &image->view, 1, &into_room, &own, NULL, NULL));
    assert_ptr_equal(own.data, room);
    assert_ok(conv_decode_png(context, &file, 1, NULL, &decoded, NULL, NULL));
    assert_int_equal(conv_decode_png(context, &bad, 1, NULL, &none, NULL, NULL), CONV_ERR_FORMAT);
    assert_ok(conv_filter_create(&filter, context, "blur,sharpen", NULL));
    assert_ok(conv_filter_run(filter, &decoded, &image->view, 1, NULL));
    conv_filter_destroy(filter);
    assert_int_equal(conv_filter_create(&filter, context, "blurs", NULL), CONV_ERR_USAGE);
    assert_ok(conv_layer_create(&layer, context, weights, NULL, &options));
    void *result;
    assert_ok(conv_allocate(context, CONV_HOST, sizeof y, &result));
    conv_tensor input = {.data = y, .height = 4, .width = 4, .images = 2};
    memset(y, 0, sizeof y);
    assert_ok(conv_layer_run(layer, &input, result, NULL));
    conv_layer_destroy(layer);
    conv_free(context, CONV_HOST, result);
    conv_free(context, CONV_HOST, decoded.data);
    conv_free(context, CONV_HOST, (void *)(uintptr_t)file.data);
}

UNIT_TEST(calls_leave_nothing_behind)
{
    size_t before = 0;
    struct api_image image;
    uint64_t noise = 5;
    // Of ten functions each. A sanitizer sees what a single one leaves.
    int calls = CONV_SANITIZED ? 20 : 1000, contexts = CONV_SANITIZED ? 5 : 100;
    api_image_make(&image, API_INTERLEAVED, 20, 20, 3, CONV_SAMPLE_U8, 0);
    api_image_fill(&image.view, &noise);
    conv_context *context = api_open(1);
    for (int i = 0; i < calls; i++) {
        if (i == 50)
            before = bytes_in_use();
        call_all(context, &image);
    }
    size_t after = bytes_in_use();
    conv_context_destroy(context);
    if (!CONV_SANITIZED && after > before + 1024)
        fail_msg("%zu bytes more after %d rounds", after - before, calls - 50);
    // Contexts themselves must not leak either.
    for (int i = 0; i < contexts; i++) {
        if (i == 10)
            before = bytes_in_use();
        context = api_open(2);
        call_all(context, &image);
        conv_context_destroy(context);
    }
    if (!CONV_SANITIZED && bytes_in_use() > before + 1024)
        fail_msg("%zu bytes more after 90 contexts", bytes_in_use() - before);
    api_image_free(&image);
}

UNIT_MAIN(NULL, NULL)
