// SPDX-License-Identifier: MIT
// Wrong arguments to the functions of conv.h: each is refused with a code and a sentence, nothing
// is written, and the context can be used afterwards. Sanitizers see what is read.
#include <math.h>

#include "support/api_test.h"

// Makes the address sanitizer's allocator return NULL if memory is not that large, as others do.
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

UNIT_TEST(contexts)
{
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
    assert_ok(conv_context_create(&context, &newer.known, message));
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
    assert_ok(conv_devices(NULL, 0, &count));
    assert_true(count >= 1);
    assert_ok(conv_devices(devices, 1, &count));
    assert_string_equal(devices[0].device, "cpu");
    assert_string_equal(conv_status_name(CONV_ERR_LIMIT), "limit");
    assert_string_equal(conv_status_name((conv_status)77), "unknown");
    assert_true(conv_version()[0] != 0);
}

API_TEST(memory, 2)
{
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
        assert_ok(conv_allocate(context, i % 2 ? CONV_HOST : CONV_DEVICE, bytes, &blocks[i]));
        assert_int_equal((uintptr_t)blocks[i] % 256, 0);
        memset(blocks[i], (int)i, bytes);
    }
    for (size_t i = 0; i < 40; i++)
        conv_free(context, CONV_HOST, blocks[i]);
    void *again;
    assert_ok(conv_allocate(context, CONV_HOST, 61, &again));
    bool reused = false;
    for (int i = 0; i < 40; i++)
        reused |= again == blocks[i];
    assert_true(reused);
    conv_free(context, CONV_HOST, again);
    conv_free(context, CONV_HOST, again); // a mistake, which must not give a block to two owners
    void *owners[2];
    for (int i = 0; i < 2; i++)
        assert_ok(conv_allocate(context, CONV_HOST, 61, &owners[i]));
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
    assert_ok(conv_copy(context, NULL, CONV_HOST, NULL, CONV_HOST, 0, NULL));
    assert_ok(conv_copy(context, to, CONV_DEVICE, from, CONV_HOST, sizeof from, NULL));
    assert_string_equal(to, from);
    assert_int_equal(conv_stream_wait(NULL, NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_context_wait(NULL), CONV_ERR_USAGE);
    assert_int_equal(conv_stream_order(NULL, NULL, NULL), CONV_ERR_USAGE);
    assert_ok(conv_stream_wait(context, NULL));
    assert_ok(conv_context_wait(context));
    assert_ok(conv_stream_order(context, NULL, context));
}

API_TEST(filters, 2)
{
    conv_filter *filter = (conv_filter *)&context;
    conv_filter_options options = CONV_FILTER_OPTIONS_INIT;
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
                    {.border = "constant:x"},
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
}

API_TEST(matrices, 2)
{
    conv_filter *filter;
    conv_filter_options options = CONV_FILTER_OPTIONS_INIT;
    const double one[] = {1, 2, 1}, bad[] = {1, (double)INFINITY, 0}, huge[] = {1, 1e300, 0};
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
}

API_TEST(names_of_filters_and_kernels, 2)
{
    conv_filter *filter;
    conv_filter_destroy(NULL);
    assert_null(conv_filter_kernel(NULL, 0, CONV_SAMPLE_U8));
    assert_ok(conv_filter_create(&filter, context, "blur,edge", NULL));
    assert_non_null(conv_filter_kernel(filter, 1, CONV_SAMPLE_U16));
    assert_null(conv_filter_kernel(filter, 2, CONV_SAMPLE_U8));
    assert_null(conv_filter_kernel(filter, -1, CONV_SAMPLE_U8));
    assert_non_null(conv_filter_kernel(filter, 0, CONV_SAMPLE_F32));
    assert_null(conv_filter_kernel(filter, 0, CONV_SAMPLE_F16));
    conv_filter_destroy(filter);
    assert_null(conv_filter_name(-1, NULL));
    assert_non_null(conv_filter_name(0, NULL));
    assert_null(conv_filter_name(10000, NULL));
    const char *example = NULL, *summary = NULL;
    for (int banks = 0; banks < 2; banks++) {
        assert_string_equal(conv_family_name(banks, 0, &example, &summary),
                            banks ? "gabor:SCALESxANGLES" : "gaussian:SIGMA");
        assert_string_equal(example, banks ? "gabor:4x8" : "gaussian:2.5");
        assert_null(conv_family_name(banks, -1, &example, &summary));
        assert_null(conv_family_name(banks, 100, &example, &summary));
    }
}

UNIT_MAIN(NULL, NULL)
