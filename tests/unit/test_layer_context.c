// SPDX-License-Identifier: MIT
// The façade of layers on the CPU: the reference's bits for any number of threads, images and bytes
// at a time; order and errors of flows; the threads that share their work.
#include <sched.h>

#include "engine/memory.h"
#include "engine/operation.h"
#include "support/random.h"
#include "support/unit.h"

#define MAPS 3
#define CHANNELS 2
#define IMAGES 11
#define HEIGHT 13
#define WIDTH 17
#define MOST (IMAGES * MAPS * 32 * 32)

static uint64_t seed = 1;
static float weights[MAPS * CHANNELS * 3 * 4], bias[MAPS];
static _Alignas(64) float floats[IMAGES * CHANNELS * HEIGHT * WIDTH];
static _Alignas(64) uint8_t bytes[IMAGES * CHANNELS * HEIGHT * WIDTH];

static void fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((int)(random_bits(&seed) & 0xffff) - 0x8000) / 4096;
}

static int setup(void **)
{
    fill(weights, sizeof weights / sizeof weights[0]);
    fill(bias, MAPS);
    fill(floats, sizeof floats / sizeof floats[0]);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)random_bits(&seed);
    return 0;
}

// number: bits choose input, output, padding and stride.
static struct conv_layer make_layer(int number)
{
    return (struct conv_layer){
        .channels = CHANNELS,
        .maps = MAPS,
        .kernel_height = 3,
        .kernel_width = 4,
        CONV_LAYER_STRIDE(number & 1 ? 2 : 1),
        .pad_top = number & 2 ? 1 : 0,
        .pad_right = number & 2 ? 3 : 0,
        .border = CONV_BORDER_REFLECT,
        .input = number & 4 ? CONV_ELEMENT_U8 : CONV_ELEMENT_F32,
        .input_divisor = number & 4 ? 255 : 1,
        .output = number & 8 ? CONV_ELEMENT_F16 : CONV_ELEMENT_F32,
        .activation = CONV_ACTIVATION_RELU,
        .weights = weights,
        .bias = bias,
    };
}

static const void *input_of(const struct conv_layer *layer)
{
    return layer->input == CONV_ELEMENT_U8 ? (const void *)bytes : floats;
}

static size_t run_reference(const struct conv_layer *layer, void *dst)
{
    struct conv_layer_shape shape = {IMAGES, HEIGHT, WIDTH};
    struct conv_layer_plan plan;
    conv_layer_plan_find(&plan, &conv_cpu_layer_reference, layer, &shape, 0);
    struct conv_layer_batch batch =
        conv_layer_batch_of(layer, &shape, IMAGES, input_of(layer), dst);
    assert_ok(plan.variant->run(&plan, &batch));
    return conv_element_size(layer->output) * IMAGES * MAPS *
           (size_t)conv_layer_out_height(layer, HEIGHT) *
           (size_t)conv_layer_out_width(layer, WIDTH);
}

static struct conv_layer_context *open_context(const struct conv_layer *layer, const char *variant)
{
    struct conv_layer_config config = {.layer = layer, .place = CONV_ON_CPU, .variant = variant};
    struct conv_layer_context *context = NULL;
    struct conv_err err = {0};
    if (conv_layer_context_open(&context, &config, &err))
        fail_msg("%s", err.text);
    return context;
}

struct memory {
    const uint8_t *src;
    uint8_t *dst;
    size_t in, out; // bytes of an image
};

static enum conv_status copy_in(void *user, int64_t first, int64_t count, void *dst,
                                struct conv_err *err)
{
    const struct memory *memory = user;
    (void)err;
    memcpy(dst, memory->src + (size_t)first * memory->in, (size_t)count * memory->in);
    return CONV_OK;
}

static enum conv_status copy_out(void *user, int64_t first, int64_t count, const void *src,
                                 struct conv_err *err)
{
    const struct memory *memory = user;
    (void)err;
    memcpy(memory->dst + (size_t)first * memory->out, src, (size_t)count * memory->out);
    return CONV_OK;
}

static enum conv_status run_flow(struct conv_layer_context *context, int64_t images, int height,
                                 int jobs, size_t mem_limit, void *dst, struct conv_err *err)
{
    const struct conv_layer *layer = &context->layer;
    struct memory memory = {.src = input_of(layer), .dst = dst};
    struct conv_operation_flow flow = {
        .operation = {.layer = context},
        .images = images,
        .height = height,
        .width = WIDTH,
        .jobs = jobs,
        .mem_limit = mem_limit,
        .read = copy_in,
        .write = copy_out,
        .user = &memory,
    };
    (void)conv_layer_context_bytes(layer, height, WIDTH, &memory.in, &memory.out);
    return conv_operation_flow_run(&flow, err);
}

// What each variant computes is tested by check_layers.
UNIT_TEST(flows_give_the_bits_of_the_reference)
{
    static _Alignas(64) uint8_t expected[4 * MOST], result[4 * MOST];
    for (int number = 0; number < 16; number++) {
        struct conv_layer layer = make_layer(number);
        size_t size = run_reference(&layer, expected);
        assert_true(size <= sizeof expected);
        struct conv_layer_context *context = open_context(&layer, NULL);
        for (int jobs = 1; jobs < 16; jobs += 4) {
            struct conv_err err = {0};
            memset(result, 0xa5, sizeof result);
            if (run_flow(context, IMAGES, HEIGHT, jobs, jobs == 5 ? 20000 : 0, result, &err))
                fail_msg("%s", err.text);
            if (memcmp(result, expected, size) != 0)
                fail_msg("layer %d with %d jobs", number, jobs);
            for (size_t k = size; k < sizeof result; k++)
                assert_int_equal(result[k], 0xa5);
        }
        conv_layer_context_close(context);
    }
}

UNIT_TEST(many_shapes_need_many_plans)
{
    static _Alignas(64) float first[MOST], second[MOST];
    struct conv_layer layer = make_layer(0);
    struct conv_operation operation = {.layer = open_context(&layer, NULL)};
    struct conv_tensor_stream *stream;
    struct conv_err err = {0};
    assert_ok(conv_operation_stream_open(&operation, NULL, 1, &stream, &err));
    for (int round = 0; round < 2; round++)
        for (int height = 3; height <= HEIGHT; height++)
            for (int width = 4; width <= WIDTH; width++) {
                struct conv_layer_shape shape = {1, height, width};
                size_t size = sizeof(float) * MAPS * (size_t)(height - 2) * (size_t)(width - 3);
                for (int i = 0; i < 2; i++)
                    assert_ok(conv_operation_run(&operation, stream, &shape, 1, floats,
                                                 i ? second : first, &err));
                assert_memory_equal(first, second, size);
            }
    conv_operation_stream_close(&operation, stream);
    conv_operation_close(&operation);
}

// --- flows ---------------------------------------------------------------------------------------

struct order {
    int64_t next_read, next_write, fail_read, fail_write, progress;
};

static enum conv_status read_next(void *user, int64_t first, int64_t count, void *dst,
                                  struct conv_err *err)
{
    struct order *order = user;
    if (first != order->next_read)
        return conv_err_set(err, CONV_ERR_IO, "read out of turn");
    order->next_read += count;
    memset(dst, 0, (size_t)count * sizeof floats / IMAGES);
    return first <= order->fail_read && order->fail_read < first + count
               ? conv_err_format(err, "damaged")
               : CONV_OK;
}

static enum conv_status write_next(void *user, int64_t first, int64_t count, const void *src,
                                   struct conv_err *err)
{
    struct order *order = user;
    (void)src;
    if (first != order->next_write)
        return conv_err_set(err, CONV_ERR_IO, "written out of turn");
    order->next_write += count;
    return first <= order->fail_write && order->fail_write < first + count
               ? conv_err_limit(err, "full")
               : CONV_OK;
}

static void count_images(void *user, int64_t images)
{
    ((struct order *)user)->progress += images;
}

static enum conv_status run_in_order(struct order *order, const atomic_int *stop, int jobs,
                                     struct conv_err *err)
{
    struct conv_layer layer = make_layer(0);
    struct conv_layer_context *context = open_context(&layer, NULL);
    struct conv_operation_flow flow = {
        .operation = {.layer = context},
        .images = 500,
        .height = HEIGHT,
        .width = WIDTH,
        .jobs = jobs,
        .mem_limit = 100000,
        .read = read_next,
        .write = write_next,
        .ordered_read = true,
        .ordered_write = true,
        .user = order,
        .progress = count_images,
        .stop = stop,
    };
    enum conv_status status = conv_operation_flow_run(&flow, err);
    conv_layer_context_close(context);
    return status;
}

UNIT_TEST(flows_keep_the_order)
{
    for (int jobs = 1; jobs < 9; jobs++) {
        struct order order = {.fail_read = -1, .fail_write = -1};
        struct conv_err err = {0};
        if (run_in_order(&order, NULL, jobs, &err))
            fail_msg("%s", err.text);
        assert_int_equal(order.next_read, 500);
        assert_int_equal(order.next_write, 500);
        assert_int_equal(order.progress, 500);
    }
}

UNIT_TEST(flows_end_at_the_first_failure)
{
    for (int jobs = 1; jobs < 9; jobs++) {
        struct order order = {.fail_read = 123, .fail_write = -1};
        struct conv_err err = {0};
        assert_int_equal(run_in_order(&order, NULL, jobs, &err), CONV_ERR_FORMAT);
        assert_string_equal(err.text, "damaged");
        assert_true(order.next_write <= 123);
        order = (struct order){.fail_read = -1, .fail_write = 77};
        assert_int_equal(run_in_order(&order, NULL, jobs, &err), CONV_ERR_LIMIT);
        assert_string_equal(err.text, "full");
        assert_true(order.progress <= 77);
        order = (struct order){.fail_read = -1, .fail_write = -1};
        atomic_int stop = 15;
        assert_int_equal(run_in_order(&order, &stop, jobs, &err), CONV_ERR_CANCELLED);
        assert_int_equal(order.next_write, 0);
    }
}

#define THREADS 40

static void meet(void *met, int, int)
{
    for (atomic_fetch_add((atomic_int *)met, 1); atomic_load((atomic_int *)met) < THREADS;)
        sched_yield();
}

// It does not end if one of them is not woken.
UNIT_TEST(all_threads_take_part)
{
    struct conv_workers *workers;
    assert_ok(conv_workers_open(&workers, THREADS, NULL));
    for (int round = 0; round < 50; round++) {
        atomic_int met = 0;
        conv_workers_run(workers, THREADS, meet, &met, THREADS);
    }
    conv_workers_close(workers);
}

UNIT_TEST(what_cannot_be_is_refused)
{
    struct conv_layer layer = make_layer(0);
    struct conv_layer_config config = {.layer = &layer, .variant = "cpu_layer_referense"};
    struct conv_layer_context *context = NULL;
    struct conv_err err = {0};
    assert_int_equal(conv_layer_context_open(&context, &config, &err), CONV_ERR_USAGE);
    assert_int_equal(err.hint, CONV_HINT_VARIANT);
    assert_non_null(strstr(err.text, "did you mean 'cpu_layer_reference'"));
    assert_null(context);
    context = open_context(&layer, NULL);
    static _Alignas(64) float result[MOST];
    assert_int_equal(run_flow(context, 1, 2, 1, 0, result, &err), CONV_ERR_USAGE);
    err = (struct conv_err){0};
    assert_int_equal(run_flow(context, 1, HEIGHT, 1, 1000, result, &err), CONV_ERR_LIMIT);
    assert_int_equal(err.hint, CONV_HINT_MEM_LIMIT);
    // The limit that the message suggests is enough.
    assert_ok(run_flow(context, 1, HEIGHT, 1, (size_t)err.value, result, &err));
    size_t in, out;
    assert_false(conv_layer_context_bytes(&layer, INT32_MAX, INT32_MAX, &in, &out));
    assert_false(conv_layer_context_bytes(&layer, 2, WIDTH, &in, &out));
    conv_layer_context_close(context);
}

UNIT_MAIN(setup, NULL)
