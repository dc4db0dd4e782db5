// SPDX-License-Identifier: MIT
// Wrong arguments to every function of conv.h: each is refused with a code and a sentence, nothing
// is written, and the context can be used afterwards. Sanitizers see what is read.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conv.h"
#include "support/api_image.h"
#include "support/png_make.h"

// Makes the address sanitizer's allocator return NULL if memory is not that large, as others do.
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static conv_context *open_context(void)
{
    conv_context *context;
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    options.device = "cpu";
    options.threads = 2;
    assert_int_equal(conv_context_create(&context, &options, NULL), CONV_OK);
    return context;
}

// The call fails with `code` and says why.
#define REFUSE(code, call)                                                                         \
    do {                                                                                           \
        assert_int_equal(call, code);                                                              \
        assert_true(conv_context_message(context)[0] != 0);                                        \
    } while (0)

static void contexts(void **state)
{
    (void)state;
    conv_context *context = (conv_context *)state;
    char message[CONV_MESSAGE_SIZE] = "";
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    assert_int_equal(conv_context_create(NULL, NULL, message), CONV_ERR_USAGE);
    static const char *const unknown[] = {
        "",      "gpu", "cpu:0",   "cuda:",   "cuda:x",        "cuda:1x",
        "cuda0", "CPU", "cuda:-1", "cuda: 1", "cuda:123456789"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        options.device = unknown[i];
        message[0] = 0;
        assert_int_equal(conv_context_create(&context, &options, message), CONV_ERR_USAGE);
        assert_null(context);
        assert_true(message[0] != 0);
        assert_int_equal(conv_context_create(&context, &options, NULL), CONV_ERR_USAGE);
    }
    options.device = "cpu";
    options.threads = -1;
    assert_int_equal(conv_context_create(&context, &options, message), CONV_ERR_USAGE);
    options.threads = 1 << 20;
    assert_int_equal(conv_context_create(&context, &options, message), CONV_ERR_USAGE);
    options.threads = 1;
    static const size_t sizes[] = {0, 8, sizeof options - 1, sizeof options + 8 + (1 << 20)};
    for (int i = 0; i < 4; i++) {
        options.size = sizes[i];
        assert_int_equal(conv_context_create(&context, &options, message), CONV_ERR_USAGE);
    }
    // Options of a newer version: a field that this version lacks has to be unset.
    struct {
        conv_context_options known;
        uint64_t added;
    } newer = {.known = CONV_CONTEXT_OPTIONS_INIT};
    newer.known.size = sizeof newer;
    newer.known.device = "cpu";
    assert_int_equal(conv_context_create(&context, &newer.known, message), CONV_OK);
    conv_context_destroy(context);
    newer.added = 1;
    assert_int_equal(conv_context_create(&context, &newer.known, message), CONV_ERR_UNSUPPORTED);
    conv_context_destroy(NULL);
    assert_string_equal(conv_context_message(NULL), "");
    assert_string_equal(conv_context_device(NULL), "");

    int count = -1;
    conv_device_description devices[2];
    assert_int_equal(conv_devices(NULL, 0, NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_devices(NULL, 1, &count), CONV_ERR_USAGE);
    assert_int_equal(conv_devices(devices, -1, &count), CONV_ERR_USAGE);
    assert_int_equal(conv_devices(NULL, 0, &count), CONV_OK);
    assert_true(count >= 1);
    assert_int_equal(conv_devices(devices, 1, &count), CONV_OK);
    assert_string_equal(devices[0].device, "cpu");
    assert_string_equal(conv_status_name(CONV_ERR_LIMIT), "limit");
    assert_string_equal(conv_status_name((conv_status)77), "unknown");
    assert_true(conv_version()[0] != 0);
}

static void memory(void **state)
{
    (void)state;
    conv_context *context = open_context();
    void *data = &data, *blocks[40];
    assert_int_equal(conv_allocate(NULL, CONV_HOST, 1, &data), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_allocate(context, CONV_HOST, 1, NULL));
    REFUSE(CONV_ERR_USAGE, conv_allocate(context, (conv_memory)2, 1, &data));
    assert_null(data);
    REFUSE(CONV_ERR_MEMORY, conv_allocate(context, CONV_HOST, SIZE_MAX, &data));
    REFUSE(CONV_ERR_MEMORY, conv_allocate(context, CONV_HOST, (size_t)1 << 62, &data));
    assert_null(data);
    for (size_t i = 0; i < 40; i++) { // sizes around those of blocks
        size_t bytes = i < 20 ? i * 61 : ((size_t)1 << (i - 12)) + i % 3 - 1;
        assert_int_equal(conv_allocate(context, i % 2 ? CONV_HOST : CONV_DEVICE, bytes, &blocks[i]),
                         CONV_OK);
        assert_int_equal((uintptr_t)blocks[i] % 256, 0);
        memset(blocks[i], (int)i, bytes);
    }
    for (size_t i = 0; i < 40; i++)
        conv_free(context, CONV_HOST, blocks[i]);
    void *again;
    assert_int_equal(conv_allocate(context, CONV_HOST, 61, &again), CONV_OK);
    bool reused = false;
    for (int i = 0; i < 40; i++)
        reused |= again == blocks[i];
    assert_true(reused);
    conv_free(context, CONV_HOST, again);
    conv_free(context, CONV_HOST, again); // a mistake, which must not give a block to two owners
    void *owners[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(conv_allocate(context, CONV_HOST, 61, &owners[i]), CONV_OK);
    assert_ptr_not_equal(owners[0], owners[1]);
    for (int i = 0; i < 2; i++)
        conv_free(context, CONV_HOST, owners[i]);
    conv_free(context, CONV_HOST, &again); // of another origin
    conv_free(context, CONV_HOST, NULL);
    conv_free(context, (conv_memory)9, again);
    conv_free(NULL, CONV_HOST, NULL);

    char from[] = "copied", to[sizeof from] = "";
    assert_int_equal(conv_copy(NULL, to, CONV_HOST, from, CONV_HOST, 1, NULL), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_copy(context, NULL, CONV_HOST, from, CONV_HOST, 1, NULL));
    REFUSE(CONV_ERR_USAGE, conv_copy(context, to, CONV_HOST, NULL, CONV_HOST, 1, NULL));
    REFUSE(CONV_ERR_USAGE, conv_copy(context, to, (conv_memory)5, from, CONV_HOST, 1, NULL));
    assert_int_equal(conv_copy(context, NULL, CONV_HOST, NULL, CONV_HOST, 0, NULL), CONV_OK);
    assert_int_equal(conv_copy(context, to, CONV_DEVICE, from, CONV_HOST, sizeof from, NULL),
                     CONV_OK);
    assert_string_equal(to, from);
    assert_int_equal(conv_stream_wait(NULL, NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_context_wait(NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_stream_order(NULL, NULL, NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_stream_wait(context, NULL), CONV_OK);
    assert_int_equal(conv_context_wait(context), CONV_OK);
    assert_int_equal(conv_stream_order(context, NULL, context), CONV_OK);
    conv_context_destroy(context);
}

static void filters(void **state)
{
    (void)state;
    conv_context *context = open_context();
    conv_filter *filter = (conv_filter *)&context;
    conv_filter_options options = CONV_FILTER_OPTIONS_INIT;
    const double one[] = {1, 2, 1}, bad[] = {1, (double)INFINITY, 0}, huge[] = {1, 1e300, 0};
    assert_int_equal(conv_filter_create(&filter, NULL, "blur", NULL), CONV_ERR_USAGE);
    assert_null(filter);
    REFUSE(CONV_ERR_USAGE, conv_filter_create(NULL, context, "blur", NULL));
    static const char *const wrong[] = {"",       "blurr",      "blur,",   ",",
                                        "custom", "blur,,blur", "./no.mat"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_true(conv_filter_create(&filter, context, wrong[i], NULL) != CONV_OK);
        assert_null(filter);
        assert_true(conv_context_message(context)[0] != 0);
    }
    REFUSE(CONV_ERR_USAGE, conv_filter_create(&filter, context, NULL, NULL));
    static const struct {
        const char *border, *alpha, *kernel, *divisor, *bias, *variant;
        int side;
    } settings[] = {{.border = "mirrored"},
                    {.border = "constant:256"},
                    {.alpha = "drop"},
                    {.kernel = "1 2 3"},
                    {.divisor = "0"},
                    {.divisor = "x"},
                    {.bias = "1e99"},
                    {.variant = "cpu_none"},
                    {.variant = "cuda_tma"},
                    {.side = 4},
                    {.side = -3}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        conv_filter_options own = CONV_FILTER_OPTIONS_INIT;
        own.border = settings[i].border;
        own.alpha = settings[i].alpha;
        own.kernel = settings[i].kernel;
        own.divisor = settings[i].divisor;
        own.bias = settings[i].bias;
        own.variant = settings[i].variant;
        own.side = settings[i].side;
        REFUSE(CONV_ERR_USAGE, conv_filter_create(&filter, context, "blur", &own));
        assert_null(filter);
    }
    // The text is in the words of the interface, not of the command line.
    options.kernel = "1 2 3";
    (void)conv_filter_create(&filter, context, "custom", &options);
    assert_memory_equal(conv_context_message(context), "kernel", 6);
    assert_null(strstr(conv_context_message(context), "--"));
    options.kernel = NULL;
    options.floats = 1;
    options.alpha = "premultiply";
    REFUSE(CONV_ERR_USAGE, conv_filter_create(&filter, context, "blur", &options));
    options = (conv_filter_options)CONV_FILTER_OPTIONS_INIT;
    REFUSE(CONV_ERR_USAGE, conv_filter_create_matrix(NULL, context, one, 3, 1, 4, 0, NULL));
    REFUSE(CONV_ERR_USAGE, conv_filter_create_matrix(&filter, context, NULL, 3, 1, 4, 0, NULL));
    static const int sides[][2] = {{0, 1},  {1, 0},  {-1, 3},           {2, 1},
                                   {33, 1}, {1, 33}, {1 << 30, 1 << 30}};
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++)
        REFUSE(CONV_ERR_USAGE, conv_filter_create_matrix(&filter, context, one, sides[i][0],
                                                         sides[i][1], 4, 0, NULL));
    REFUSE(CONV_ERR_USAGE, conv_filter_create_matrix(&filter, context, one, 3, 1, 0, 0, NULL));
    REFUSE(CONV_ERR_USAGE,
           conv_filter_create_matrix(&filter, context, one, 3, 1, (double)NAN, 0, NULL));
    REFUSE(CONV_ERR_USAGE,
           conv_filter_create_matrix(&filter, context, one, 3, 1, 1, (double)INFINITY, NULL));
    REFUSE(CONV_ERR_USAGE, conv_filter_create_matrix(&filter, context, bad, 3, 1, 4, 0, NULL));
    REFUSE(CONV_ERR_USAGE, conv_filter_create_matrix(&filter, context, huge, 3, 1, 4, 0, NULL));
    options.side = 3;
    REFUSE(CONV_ERR_USAGE, conv_filter_create_matrix(&filter, context, one, 3, 1, 4, 0, &options));
    conv_filter_destroy(NULL);
    assert_null(conv_filter_kernel(NULL, 0, CONV_SAMPLE_U8));
    assert_int_equal(conv_filter_create(&filter, context, "blur,edge", NULL), CONV_OK);
    assert_non_null(conv_filter_kernel(filter, 1, CONV_SAMPLE_U16));
    assert_null(conv_filter_kernel(filter, 2, CONV_SAMPLE_U8));
    assert_null(conv_filter_kernel(filter, -1, CONV_SAMPLE_U8));
    assert_non_null(conv_filter_kernel(filter, 0, CONV_SAMPLE_F32));
    assert_null(conv_filter_kernel(filter, 0, CONV_SAMPLE_F16));
    conv_filter_destroy(filter);
    assert_null(conv_filter_name(-1, NULL));
    assert_non_null(conv_filter_name(0, NULL));
    assert_null(conv_filter_name(10000, NULL));
    conv_context_destroy(context);
}

// One member of a good view after the other is spoiled.
static int spoil(conv_image *view, int how)
{
    switch (how) {
    case 0:
        view->data = NULL;
        break;
    case 1:
        view->width = 0;
        break;
    case 2:
        view->width = -5;
        break;
    case 3:
        view->height = INT32_MIN;
        break;
    case 4:
        view->channels = 0;
        break;
    case 5:
        view->channels = 5;
        break;
    case 6:
        view->channels = -1;
        break;
    case 7:
        view->sample = (conv_sample)0;
        break;
    case 8:
        view->sample = CONV_SAMPLE_F16;
        break;
    case 9:
        view->sample = (conv_sample)99;
        break;
    case 10:
        view->memory = (conv_memory)7;
        break;
    case 11:
        view->has_alpha = 1;
        break; // of three channels
    case 12:
        view->row_stride = -view->row_stride;
        break;
    case 13:
        view->column_stride = INT64_MIN;
        break;
    case 14:
        view->channel_stride = -1;
        break;
    case 15:
        view->row_stride = INT64_MAX - 1;
        break;
    case 16:
        view->row_stride = view->column_stride = INT64_MAX / 2;
        break;
    case 17:
        view->channel_stride = INT64_MAX - 1;
        break;
    case 18:
        view->row_stride++;
        break; // 16 bits
    case 19:
        view->data = (uint8_t *)view->data + 1;
        break;
    default:
        return 0;
    }
    return 1;
}

// Mistakes that are allowed except in views that are written to.
static int overlap(conv_image *view, int how)
{
    switch (how) {
    case 0:
        view->row_stride -= 2;
        break;
    case 1:
        view->row_stride = 0;
        break;
    case 2:
        view->column_stride = 2;
        break;
    case 3:
        view->channel_stride = 0;
        break;
    case 4:
        view->channel_stride = view->row_stride - 2;
        break;
    default:
        return 0;
    }
    return 1;
}

static void views(void **state)
{
    (void)state;
    conv_context *context = open_context();
    struct api_image source, result;
    conv_filter *filter;
    conv_bytes file;
    conv_item item;
    api_image_make(&source, API_INTERLEAVED, 9, 7, 3, CONV_SAMPLE_U16, 1);
    api_image_make(&result, API_INTERLEAVED, 9, 7, 3, CONV_SAMPLE_U16, 2);
    assert_int_equal(conv_filter_create(&filter, context, "blur", NULL), CONV_OK);
    for (int how = 0;; how++) {
        conv_image spoiled = source.view;
        if (!spoil(&spoiled, how))
            break;
        REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &spoiled, &result.view, 1, NULL));
        REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &source.view, &spoiled, 1, NULL));
        file = (conv_bytes){&file, 1};
        REFUSE(CONV_ERR_USAGE, conv_encode_png(context, &spoiled, 1, NULL, &file, &item, NULL));
        assert_null(file.data);
        assert_int_equal(item.status, CONV_ERR_USAGE);
    }
    for (int how = 0;; how++) {
        conv_image overlapping = result.view;
        if (!overlap(&overlapping, how))
            break;
        REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &source.view, &overlapping, 1, NULL));
    }
    // Views that are only read may overlap themselves: rows that are all the same row.
    conv_image one_row = source.view;
    one_row.row_stride = 0;
    assert_int_equal(conv_filter_run(filter, &one_row, &result.view, 1, NULL), CONV_OK);

    conv_image other = result.view;
    other.width--;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &source.view, &other, 1, NULL));
    other = result.view;
    other.channels = 1;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &source.view, &other, 1, NULL));
    other = result.view;
    other.sample = CONV_SAMPLE_U8;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &source.view, &other, 1, NULL));
    other = result.view;
    other.memory = CONV_DEVICE;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &source.view, &other, 1, NULL));
    // Half of the result's memory is the source's, row by row or pixel by pixel.
    other = source.view;
    other.data = (uint8_t *)source.view.data + 2 * source.view.row_stride;
    other.height = source.view.height - 2;
    conv_image top = source.view;
    top.height -= 2;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &top, &other, 1, NULL));
    // Left and right half are apart, although their rows interleave.
    conv_image left = source.view, right = source.view;
    left.width = right.width = 4;
    right.data = (uint8_t *)source.view.data + 4 * source.view.column_stride;
    assert_int_equal(conv_filter_run(filter, &left, &right, 1, NULL), CONV_OK);
    right.data = (uint8_t *)source.view.data + 3 * source.view.column_stride;
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &left, &right, 1, NULL));

    assert_int_equal(conv_filter_run(NULL, &source.view, &result.view, 1, NULL), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, NULL, &result.view, 1, NULL));
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &source.view, NULL, 1, NULL));
    REFUSE(CONV_ERR_USAGE, conv_filter_run(filter, &source.view, &result.view, -1, NULL));
    assert_int_equal(conv_filter_run(filter, NULL, NULL, 0, NULL), CONV_OK);
    assert_int_equal(conv_filter_run(filter, &source.view, &result.view, 1, NULL), CONV_OK);
    conv_filter_destroy(filter);
    api_image_free(&source);
    api_image_free(&result);
    conv_context_destroy(context);
}

static void png(void **state)
{
    (void)state;
    conv_context *context = open_context();
    struct api_image image;
    api_image_make(&image, API_INTERLEAVED, 9, 7, 3, CONV_SAMPLE_U8, 1);
    conv_bytes file;
    conv_item item;
    conv_encode_options encode = CONV_ENCODE_OPTIONS_INIT;
    assert_int_equal(conv_encode_png(NULL, &image.view, 1, NULL, &file, &item, NULL),
                     CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_encode_png(context, NULL, 1, NULL, &file, &item, NULL));
    REFUSE(CONV_ERR_USAGE, conv_encode_png(context, &image.view, 1, NULL, NULL, &item, NULL));
    REFUSE(CONV_ERR_USAGE, conv_encode_png(context, &image.view, -2, NULL, &file, &item, NULL));
    assert_int_equal(conv_encode_png(context, NULL, 0, NULL, NULL, NULL, NULL), CONV_OK);
    for (int level = -2; level < 14; level += 15) {
        encode.level = level;
        REFUSE(CONV_ERR_USAGE,
               conv_encode_png(context, &image.view, 1, &encode, &file, NULL, NULL));
    }
    encode.level = 1;
    encode.size--;
    REFUSE(CONV_ERR_USAGE, conv_encode_png(context, &image.view, 1, &encode, &file, NULL, NULL));
    assert_int_equal(conv_encode_png(context, &image.view, 1, NULL, &file, &item, NULL), CONV_OK);

    conv_decode_options decode = CONV_DECODE_OPTIONS_INIT;
    conv_image into = {0};
    assert_int_equal(conv_decode_png(NULL, &file, 1, NULL, &into, &item, NULL), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_decode_png(context, NULL, 1, NULL, &into, &item, NULL));
    REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, 1, NULL, NULL, &item, NULL));
    REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, -1, NULL, &into, &item, NULL));
    assert_int_equal(conv_decode_png(context, NULL, 0, NULL, NULL, NULL, NULL), CONV_OK);
    static const struct {
        int channels, sample, memory;
    } wrong[] = {{5, 0, 0}, {-1, 0, 0}, {0, CONV_SAMPLE_F32, 0}, {0, 77, 0}, {0, 0, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        decode.channels = wrong[i].channels;
        decode.sample = (conv_sample)wrong[i].sample;
        decode.memory = (conv_memory)wrong[i].memory;
        REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, 1, &decode, &into, NULL, NULL));
    }
    for (int how = 0; how < 18; how++) { // the others are of 16 bits
        into = image.view;
        if (how == 0 || !spoil(&into, how))
            continue; // NULL is allowed here
        REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, 1, NULL, &into, &item, NULL));
    }
    for (int how = 0;; how++) {
        into = image.view;
        if (!overlap(&into, how))
            break;
        REFUSE(CONV_ERR_USAGE, conv_decode_png(context, &file, 1, NULL, &into, &item, NULL));
    }
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
    // A file cut off at every byte, in memory that ends there, too.
    for (size_t size = 0; size < file.size; size++) {
        uint8_t *cut = malloc(size ? size : 1);
        memcpy(cut, file.data, size);
        conv_bytes bytes = {cut, size};
        conv_png_info info;
        into = (conv_image){0};
        REFUSE(CONV_ERR_FORMAT, conv_decode_png(context, &bytes, 1, NULL, &into, &item, NULL));
        assert_null(into.data);
        (void)conv_probe_png(cut, size, &info, NULL);
        free(cut);
    }
    conv_png_info info;
    assert_int_equal(conv_probe_png(NULL, 0, &info, NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_probe_png(file.data, file.size, NULL, NULL), CONV_ERR_USAGE);
    conv_free(context, CONV_HOST, (void *)(uintptr_t)file.data);
    api_image_free(&image);
    conv_context_destroy(context);
}

// A header may declare any size: memory is taken only for images that the file can hold.
static void large_images_are_refused(void **state)
{
    (void)state;
    conv_context *context;
    conv_context_options options = CONV_CONTEXT_OPTIONS_INIT;
    options.device = "cpu";
    options.max_pixels = 1000;
    assert_int_equal(conv_context_create(&context, &options, NULL), CONV_OK);
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
static void refused_calls(void **state)
{
    (void)state;
    conv_context *context;
    conv_context_options cpu = CONV_CONTEXT_OPTIONS_INIT;
    cpu.device = "cpu";
    assert_int_equal(conv_context_create(&context, &cpu, NULL), CONV_OK);
    conv_bytes file = {"", 0}, files[2] = {{&file, 7}, {&file, 7}};
    uint8_t samples[4] = {0};
    conv_image images[2] = {conv_image_planar(samples, 2, 2, 1, CONV_SAMPLE_U8, CONV_HOST)};
    images[1] = images[0];
    conv_item items[2];
    memset(items, 0xff, sizeof items);
    conv_decode_options decode = CONV_DECODE_OPTIONS_INIT;
    decode.reserved[3] = 1;
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
    assert_int_equal(items[0].status, CONV_OK);
    assert_int_equal(items[1].status, CONV_ERR_UNSUPPORTED);
    conv_free(context, CONV_HOST, (void *)(uintptr_t)files[0].data);

    char path[3000];
    memset(path, 'x', sizeof path);
    memcpy(path, "./", 2);
    path[sizeof path - 1] = 0;
    conv_filter *filter;
    assert_true(conv_filter_create(&filter, context, path, NULL) != CONV_OK);
    assert_true(strlen(conv_context_message(context)) < CONV_MESSAGE_SIZE);
    conv_context_destroy(context);
}

static void layers(void **state)
{
    (void)state;
    conv_context *context = open_context();
    conv_layer *layer = (conv_layer *)&context;
    float weights[2 * 3 * 9] = {0}, x[4 * 3 * 64] = {0};
    _Alignas(16) float y[4 * 2 * 64 + 4];
    conv_layer_options good = CONV_LAYER_OPTIONS_INIT;
    good.maps = 2;
    good.channels = 3;
    good.kernel_height = good.kernel_width = 3;
    assert_int_equal(conv_layer_create(&layer, NULL, weights, NULL, &good), CONV_ERR_USAGE);
    assert_null(layer);
    REFUSE(CONV_ERR_USAGE, conv_layer_create(NULL, context, weights, NULL, &good));
    REFUSE(CONV_ERR_USAGE, conv_layer_create(&layer, context, NULL, NULL, &good));
    REFUSE(CONV_ERR_USAGE, conv_layer_create(&layer, context, weights, NULL, NULL));
    for (int how = 0; how < 17; how++) {
        conv_layer_options wrong = good;
        switch (how) {
        case 0:
            wrong.maps = 0;
            break;
        case 1:
            wrong.maps = -1;
            break;
        case 2:
            wrong.channels = 0;
            break;
        case 3:
            wrong.kernel_height = 64;
            break;
        case 4:
            wrong.kernel_width = 0;
            break;
        case 5:
            wrong.stride = -1;
            break;
        case 6:
            wrong.input = CONV_SAMPLE_U16;
            break;
        case 7:
            wrong.output = CONV_SAMPLE_U8;
            break;
        case 8:
            wrong.input_divisor = 255;
            break; // of float32
        case 9:
            wrong.padding = "full";
            break;
        case 10:
            wrong.padding = "-1";
            break;
        case 11:
            wrong.border = "constant:x";
            break;
        case 12:
            wrong.activation = "gelu";
            break;
        case 13:
            wrong.precision = "double";
            break;
        case 14:
            wrong.variant = "cpu_layer_none";
            break;
        case 15:
            wrong.size = 12;
            break;
        case 16:
            wrong.reserved[0] = 0;
            wrong.padding = "99999999999999999999";
            break;
        }
        REFUSE(CONV_ERR_USAGE, conv_layer_create(&layer, context, weights, NULL, &wrong));
        assert_null(layer);
    }
    assert_int_equal(conv_layer_create(&layer, context, weights, NULL, &good), CONV_OK);
    int rows, columns;
    assert_int_equal(conv_layer_result_size(NULL, 8, 8, &rows, &columns), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_layer_result_size(layer, 8, 8, NULL, &columns));
    REFUSE(CONV_ERR_USAGE, conv_layer_result_size(layer, 8, 8, &rows, NULL));
    REFUSE(CONV_ERR_USAGE, conv_layer_result_size(layer, 2, 8, &rows, &columns));
    REFUSE(CONV_ERR_USAGE, conv_layer_result_size(layer, -8, 8, &rows, &columns));
    assert_int_equal(conv_layer_result_size(layer, 8, 9, &rows, &columns), CONV_OK);
    assert_int_equal(rows, 6);
    assert_int_equal(columns, 7);
    const conv_tensor input = {.data = x, .height = 8, .width = 8, .images = 4};
    for (int how = 0; how < 12; how++) {
        conv_tensor wrong = input;
        switch (how) {
        case 0:
            wrong.data = NULL;
            break;
        case 1:
            wrong.height = 0;
            break;
        case 2:
            wrong.width = 2;
            break; // less than the kernel
        case 3:
            wrong.images = -1;
            break;
        case 4:
            wrong.memory = (conv_memory)3;
            break;
        case 5:
            wrong.row_stride = 28;
            break;
        case 6:
            wrong.row_stride = 33;
            break;
        case 7:
            wrong.channel_stride = -4;
            break;
        case 8:
            wrong.image_stride = 2;
            break;
        case 9:
            wrong.image_stride = INT64_MAX - 3;
            break;
        case 10:
            wrong.images = INT64_MAX;
            break;
        case 11:
            wrong.data = (uint8_t *)x + 2;
            break;
        }
        REFUSE(CONV_ERR_USAGE, conv_layer_run(layer, &wrong, y, NULL));
    }
    assert_int_equal(conv_layer_run(NULL, &input, y, NULL), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_layer_run(layer, NULL, y, NULL));
    REFUSE(CONV_ERR_USAGE, conv_layer_run(layer, &input, NULL, NULL));
    REFUSE(CONV_ERR_USAGE, conv_layer_run(layer, &input, y + 1, NULL)); // not aligned
    conv_tensor none = {0};
    assert_int_equal(conv_layer_run(layer, &none, NULL, NULL), CONV_OK);
    assert_int_equal(conv_layer_run(layer, &input, y, NULL), CONV_OK);
    conv_layer_destroy(layer);
    conv_layer_destroy(NULL);
    conv_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts),      cmocka_unit_test(memory),
        cmocka_unit_test(filters),       cmocka_unit_test(views),
        cmocka_unit_test(png),           cmocka_unit_test(large_images_are_refused),
        cmocka_unit_test(refused_calls), cmocka_unit_test(layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
