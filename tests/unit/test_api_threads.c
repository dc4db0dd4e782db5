// SPDX-License-Identifier: MIT
// Contexts in several threads at once, which share nothing; PNG files changed as an attacker would;
// and thousands of calls that leak nothing.
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>

#include "conv.h"
#include "support/api_image.h"
#include "support/oracle.h"
#include "support/png_mutate.h"
#include "support/random.h"
#include "support/reference.h"
#include "support/unit.h"

static conv_context *open_context(int threads)
{
    conv_context *context;
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    options.device = "cpu";
    options.threads = threads;
    options.max_pixels = 1 << 20;
    return conv_context_create(&context, &options, NULL) ? NULL : context;
}

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
    work->context = open_context(3);
    if (!work->context)
        return CONV_ERR_MEMORY;
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

// --- hostile files -------------------------------------------------------------------------------

// Returns image i's file with random changes, in a block of memory of exactly its size.
static conv_bytes make_changed_file(conv_context *context, int i, uint64_t *noise)
{
    enum { ROOM = 1 << 16 };
    struct api_image image;
    conv_bytes file;
    api_image_make(&image, API_INTERLEAVED, 1 + (int)random_below(noise, 40),
                   1 + (int)random_below(noise, 40), 1 + i % 4,
                   i % 3 ? CONV_SAMPLE_U8 : CONV_SAMPLE_U16, 0);
    api_image_fill(&image.view, noise);
    assert_int_equal(conv_encode_png(context, &image.view, 1, NULL, &file, NULL, NULL), CONV_OK);
    uint8_t *room = malloc(ROOM);
    memcpy(room, file.data, file.size);
    size_t size = png_mutate(room, file.size, ROOM, (uint32_t)random_bits(noise), NULL);
    uint8_t *data = malloc(size);
    memcpy(data, room, size);
    free(room);
    conv_free(context, CONV_HOST, (void *)(uintptr_t)file.data);
    api_image_free(&image);
    return (conv_bytes){data, size};
}

// Checks that the image is what libpng decodes; or that both refused the file, with a message.
static void check_decoded(const conv_bytes *file, const conv_image *image, const conv_item *item)
{
    struct reference_image expected = {0};
    enum reference_verdict verdict = reference_read(&expected, file->data, file->size, 1 << 20);
    if (item->status == CONV_OK) {
        assert_int_equal(verdict, REFERENCE_TAKES);
        for (int y = 0; y < expected.height; y++)
            for (int x = 0; x < expected.width * expected.channels; x++) {
                const uint8_t *row = expected.rows + (size_t)y * expected.row_size;
                uint32_t sample =
                    expected.depth == 16 ? (uint32_t)(row[2 * x] << 8 | row[2 * x + 1]) : row[x];
                assert_int_equal(
                    api_image_get(image, x % expected.channels, x / expected.channels, y), sample);
            }
    } else {
        assert_null(image->data);
        assert_true(item->message[0] != 0);
        // Stricter than libpng only with files that are listed in png.h.
        bool listed =
            file->size > ORACLE_SMALL ||
            (file->size >= 16 && memcmp((const uint8_t *)file->data + 12, "IHDR", 4) != 0);
        assert_true(verdict != REFERENCE_TAKES || listed);
    }
    free(expected.rows);
}

// Batches of changed files: those that libpng accepts are decoded to its pixels, in every layout;
// those that it refuses are refused. Sanitizers check the memory accesses.
UNIT_TEST(changed_files_are_decoded_or_refused)
{
    enum { COUNT = 16 };
    conv_context *context = open_context(3);
    uint64_t noise = 77;
    int rounds = CONV_SANITIZED ? 25 : 100, taken = 0, refused = 0;
    assert_non_null(context);
    for (int round = 0; round < rounds; round++) {
        conv_bytes files[COUNT];
        conv_image images[COUNT] = {0};
        conv_item items[COUNT];
        conv_decode_options options = CONV_DECODE_OPTIONS_INIT;
        options.planar = round & 1;
        for (int i = 0; i < COUNT; i++)
            files[i] = make_changed_file(context, i, &noise);
        (void)conv_decode_png(context, files, COUNT, &options, images, items, NULL);
        for (int i = 0; i < COUNT; i++) {
            conv_png_info info;
            (void)conv_probe_png(files[i].data, files[i].size, &info, NULL);
            check_decoded(&files[i], &images[i], &items[i]);
            items[i].status == CONV_OK ? taken++ : refused++;
            conv_free(context, CONV_HOST, images[i].data);
            free((void *)(uintptr_t)files[i].data);
        }
    }
    assert_true(taken > rounds && refused > rounds); // or the files show nothing
    conv_context_destroy(context);
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
    assert_int_equal(conv_encode_png(context, &image->view, 1, NULL, &file, NULL, NULL), CONV_OK);
    conv_encode_options into_room = CONV_ENCODE_OPTIONS_INIT;
    char room[4096];
    conv_bytes own;
    into_room.allocate = give_room;
    into_room.user = room;
    assert_int_equal(conv_encode_png(context, &image->view, 1, &into_room, &own, NULL, NULL),
                     CONV_OK);
    assert_ptr_equal(own.data, room);
    assert_int_equal(conv_decode_png(context, &file, 1, NULL, &decoded, NULL, NULL), CONV_OK);
    assert_int_equal(conv_decode_png(context, &bad, 1, NULL, &none, NULL, NULL), CONV_ERR_FORMAT);
    assert_int_equal(conv_filter_create(&filter, context, "blur,sharpen", NULL), CONV_OK);
    assert_int_equal(conv_filter_run(filter, &decoded, &image->view, 1, NULL), CONV_OK);
    conv_filter_destroy(filter);
    assert_int_equal(conv_filter_create(&filter, context, "blurs", NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_layer_create(&layer, context, weights, NULL, &options), CONV_OK);
    void *result;
    assert_int_equal(conv_allocate(context, CONV_HOST, sizeof y, &result), CONV_OK);
    conv_tensor input = {.data = y, .height = 4, .width = 4, .images = 2};
    memset(y, 0, sizeof y);
    assert_int_equal(conv_layer_run(layer, &input, result, NULL), CONV_OK);
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
    int calls = CONV_SANITIZED ? 300 : 1000; // of ten functions each
    api_image_make(&image, API_INTERLEAVED, 20, 20, 3, CONV_SAMPLE_U8, 0);
    api_image_fill(&image.view, &noise);
    conv_context *context = open_context(1);
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
    for (int i = 0; i < 100; i++) {
        if (i == 10)
            before = bytes_in_use();
        context = open_context(2);
        call_all(context, &image);
        conv_context_destroy(context);
    }
    if (!CONV_SANITIZED && bytes_in_use() > before + 1024)
        fail_msg("%zu bytes more after 90 contexts", bytes_in_use() - before);
    api_image_free(&image);
}

UNIT_MAIN(NULL, NULL)
