// SPDX-License-Identifier: MIT
// Layers by cuDNN on the emulated device, with a library in its place (fake_cudnn.c): what is
// passed to it, what is done before and after it, and what happens without it. CONV_CUDNN names it;
// if that file is missing, only the last test has something to do.
#include <math.h>
#include <stdio.h>

#include <cuda_runtime_api.h>

#include "engine/engine.h"
#include "engine/layer_context.h"
#include "engine/operation.h"
#include "support/layers.h"
#include "support/random.h"
#include "support/unit.h"
#include "tensor/element.h"

#define MOST 20000
#define NAME "cuda_layer_cudnn"

static uint64_t seed = 1;
static float weights[MOST], bias[64], padded[MOST];
static _Alignas(64) uint8_t input[4 * MOST], result[4 * MOST];

static bool is_missing(void)
{
    FILE *file = fopen(getenv("CONV_CUDNN"), "rb");
    if (file)
        fclose(file);
    return !file;
}

static int number(int least, int most)
{
    return least + (int)random_below(&seed, (unsigned)(most - least + 1));
}

static float value(void)
{
    return (float)((int)(random_bits(&seed) & 0xffff) - 0x8000) / 32768;
}

static enum conv_element pick(bool bytes)
{
    static const enum conv_element elements[] = {CONV_ELEMENT_F32, CONV_ELEMENT_F16,
                                                 CONV_ELEMENT_BF16, CONV_ELEMENT_U8};
    return elements[number(0, bytes ? 3 : 2)];
}

static struct conv_layer make_layer(void)
{
    int groups = number(1, 3);
    struct conv_layer layer = {
        .channels = groups * number(1, 3),
        .maps = groups * number(1, 3),
        .groups = groups,
        .kernel_height = number(1, 4),
        .kernel_width = number(1, 4),
        .stride_y = number(1, 2),
        .stride_x = number(1, 2),
        .dilation_y = number(1, 2),
        .dilation_x = number(1, 2),
        .pad_top = number(0, 1),
        .pad_bottom = number(0, 1),
        .pad_left = number(0, 1),
        .pad_right = number(0, 2),
        .border = number(0, 3) ? CONV_BORDER_CONSTANT : CONV_BORDER_REPLICATE,
        .border_value = number(0, 4) ? 0 : 0.5f,
        .input = pick(true),
        .input_divisor = 1,
        .output = pick(false),
        .activation = (enum conv_activation)number(0, 3),
        .precision = (enum conv_precision)number(CONV_PRECISION_FAST, CONV_PRECISION_BF16),
        .weights = weights,
        .bias = number(0, 1) ? bias : NULL,
    };
    layer.input_divisor = layer.input == CONV_ELEMENT_U8 ? 255 : 1;
    if (number(0, 2) == 0 && layer.precision >= CONV_PRECISION_FP16)
        layer.input = layer.output =
            layer.precision == CONV_PRECISION_FP16 ? CONV_ELEMENT_F16 : CONV_ELEMENT_BF16;
    return layer;
}

static void fill_input(const struct conv_layer *layer, const struct conv_layer_shape *shape)
{
    size_t count = (size_t)shape->images * (size_t)layer->channels * (size_t)shape->height *
                   (size_t)shape->width;
    assert_true(count <= MOST);
    for (size_t i = 0; i < count; i++) {
        float x = value();
        if (layer->input == CONV_ELEMENT_U8)
            input[i] = (uint8_t)random_bits(&seed);
        else if (layer->input == CONV_ELEMENT_F32)
            memcpy(input + 4 * i, &x, 4);
        else
            memcpy(input + 2 * i, &(uint16_t){conv_tensor_from_float(layer->input, x)}, 2);
    }
}

// In units of 2^-24 of the sum of |w x| and |bias|, without the rounding of the result.
static double bound_of(const struct conv_layer *layer)
{
    static const double bounds[] = {[CONV_PRECISION_FAST] = 0,
                                    [CONV_PRECISION_TF32] = 1 << 15,
                                    [CONV_PRECISION_FP16] = 1 << 15,
                                    [CONV_PRECISION_BF16] = 3 << 16};
    return bounds[layer->precision] + 2 * (double)conv_layer_taps(layer) + 32;
}

// Compares the results of `images` images with float64.
static void check(const struct conv_layer *asked, const struct conv_layer_shape *shape,
                  int64_t images, const char *mode)
{
    const struct conv_layer sized = conv_layer_sized(asked, shape->height, shape->width);
    const struct conv_layer *layer = &sized;
    struct conv_layer_batch batch = conv_layer_batch_of(layer, shape, images, input, NULL);
    int rows = conv_layer_out_height(layer, shape->height);
    int columns = conv_layer_out_width(layer, shape->width);
    int64_t width = shape->width + layer->pad_left + layer->pad_right;
    int64_t plane = (shape->height + layer->pad_top + layer->pad_bottom) * width;
    int channels = layer->channels / layer->groups, maps = layer->maps / layer->groups;
    assert_true(images * layer->channels * plane <= MOST);
    conv_layer_pad(layer, shape, &batch, padded);
    for (int64_t at = 0; at < images * layer->maps * rows * columns; at++) {
        int64_t b = at / columns / rows / layer->maps, m = at / columns / rows % layer->maps;
        int64_t i = at / columns % rows, j = at % columns;
        double sum = layer->bias ? layer->bias[m] : 0, scale = fabs(sum);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t u = 0; u < layer->kernel_height; u++)
                for (int64_t v = 0; v < layer->kernel_width; v++) {
                    double w = weights[((m * channels + c) * layer->kernel_height + u) *
                                           layer->kernel_width +
                                       v];
                    double x = padded[(b * layer->channels + m / maps * channels + c) * plane +
                                      (i * layer->stride_y + u * layer->dilation_y) * width +
                                      j * layer->stride_x + v * layer->dilation_x];
                    sum += w * x;
                    scale += fabs(w * x);
                }
        double exact = conv_layer_activate(layer->activation, (float)sum), got;
        if (layer->output == CONV_ELEMENT_F32)
            got = ((float *)(void *)result)[at];
        else if (layer->output == CONV_ELEMENT_F16)
            got = conv_half_to_float(((uint16_t *)(void *)result)[at]);
        else
            got = conv_bfloat_to_float(((uint16_t *)(void *)result)[at]);
        double rounding = layer->output == CONV_ELEMENT_F32   ? 0x1p-23
                          : layer->output == CONV_ELEMENT_F16 ? 0x1p-11
                                                              : 0x1p-8;
        if (!(fabs(got - exact) <=
              bound_of(layer) * 0x1p-24 * scale + rounding * fabs(exact) + 0x1p-24))
            fail_msg("mode '%s', seed %llu, output %lld: %g, not %g (%d to %d, %s, %d %d)", mode,
                     (unsigned long long)seed, (long long)at, got, exact, layer->channels,
                     layer->maps, conv_layer_precisions[layer->precision], (int)layer->input,
                     (int)layer->output);
    }
}

static struct conv_layer_context *open_context(const struct conv_layer *layer, const char *variant)
{
    struct conv_layer_config config = {.layer = layer, .place = CONV_ON_CUDA, .variant = variant};
    struct conv_layer_context *context = NULL;
    struct conv_err err = {0};
    if (conv_layer_context_open(&context, &config, &err))
        fail_msg("%s", err.text);
    return context;
}

static uint8_t *device_copy(const void *data, size_t bytes)
{
    void *d_data = NULL;
    assert_int_equal(cudaMalloc(&d_data, bytes + 256), cudaSuccess);
    if (data)
        assert_int_equal(cudaMemcpy(d_data, data, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return d_data;
}

// Queues a batch in device memory, of a layer without weights if `late`, with `gap` bytes after
// each row of the input.
static void run_on_device(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                          bool late, size_t gap)
{
    struct conv_layer own = *layer;
    struct conv_layer_way way;
    struct conv_err err = {0};
    size_t in, out, images = (size_t)shape->images;
    if (late)
        own.weights = own.bias = NULL;
    struct conv_layer_context *context = open_context(&own, NAME);
    assert_true(conv_layer_context_bytes(layer, shape->height, shape->width, &in, &out));
    if (conv_layer_context_way(context, shape, gap > 0, &way, &err))
        fail_msg("%s", err.text);
    assert_string_equal(way.variant->name, NAME);
    struct conv_layer_batch batch = conv_layer_batch_of(layer, shape, shape->images, NULL, NULL);
    size_t rows = images * (size_t)layer->channels * (size_t)shape->height;
    size_t row = (size_t)batch.src_row;
    uint8_t *d_src = device_copy(NULL, rows * (row + gap));
    for (size_t i = 0; i < rows; i++)
        assert_int_equal(
            cudaMemcpy(d_src + i * (row + gap), input + i * row, row, cudaMemcpyHostToDevice),
            cudaSuccess);
    batch.src_row += (int64_t)gap;
    batch.src_plane = batch.src_row * shape->height;
    batch.src_image = batch.src_plane * layer->channels;
    uint8_t *d_dst = device_copy(NULL, images * out), *d_scratch = device_copy(NULL, way.scratch);
    uint8_t *d_weights = device_copy(weights, conv_layer_taps(layer) * (size_t)layer->maps * 4);
    uint8_t *d_bias = device_copy(bias, sizeof bias), *d_packed = device_copy(NULL, way.packed);
    batch.src = d_src;
    batch.dst = d_dst;
    batch.scratch = d_scratch;
    batch.weights = (const float *)(void *)d_weights;
    batch.bias = layer->bias ? (const float *)(void *)d_bias : NULL;
    batch.packed = d_packed;
    if (conv_layer_context_enqueue(context, shape, &batch, &err))
        fail_msg("%s", err.text);
    memset(result, 0xa5, sizeof result);
    assert_int_equal(cudaMemcpy(result, d_dst, images * out, cudaMemcpyDeviceToHost), cudaSuccess);
    conv_layer_context_close(context);
    uint8_t *const d_memory[] = {d_src, d_dst, d_scratch, d_weights, d_bias, d_packed};
    for (size_t i = 0; i < sizeof d_memory / sizeof d_memory[0]; i++)
        assert_int_equal(cudaFree(d_memory[i]), cudaSuccess);
}

UNIT_TEST(random_layers_are_within_their_bounds)
{
    static const char *const modes[] = {"", "uneven", "halves", "uneven halves"};
    if (is_missing())
        return;
    for (int round = 0; round < 100; round++) {
        struct conv_layer layer = make_layer();
        struct conv_layer_shape shape = {number(1, 3), number(7, 12), number(7, 12)};
        const char *mode = modes[round % 4];
        setenv("FAKE_CUDNN", mode, 1);
        if (strstr(mode, "halves") && layer.input == layer.output &&
            layer.precision >= CONV_PRECISION_FP16)
            layer.input = CONV_ELEMENT_F32;
        fill_input(&layer, &shape);
        run_on_device(&layer, &shape, round % 3 == 1, round % 4 == 3 && round % 3 != 1 ? 16 : 0);
        check(&layer, &shape, shape.images, mode);
    }
    setenv("FAKE_CUDNN", "", 1);
}

// The last images of a tensor are fewer than those of the plan.
UNIT_TEST(batches_in_host_memory_may_be_short)
{
    if (is_missing())
        return;
    for (int round = 0; round < 10; round++) {
        struct conv_layer layer = make_layer();
        struct conv_layer_shape shape = {4, 9, 10};
        struct conv_operation operation = {.layer = open_context(&layer, NAME)};
        struct conv_tensor_stream *stream;
        struct conv_err err = {0};
        fill_input(&layer, &shape);
        memset(result, 0xa5, sizeof result);
        assert_ok(conv_operation_stream_open(&operation, NULL, 1, &stream, &err));
        if (conv_operation_run(&operation, stream, &shape, 3, input, result, &err))
            fail_msg("%s", err.text);
        conv_operation_stream_close(&operation, stream);
        check(&layer, &shape, 3, "short");
        conv_operation_close(&operation);
    }
}

// The way of a 3x3 layer with this precision, which has the exact order's bits with another kernel.
static struct conv_layer_way way_of(enum conv_precision precision, const char *variant,
                                    struct conv_err *err)
{
    struct conv_layer layer = layer_of(2, 3, 3, weights);
    layer.precision = precision;
    struct conv_layer_way way = {0};
    struct conv_layer_context *context = open_context(&layer, variant);
    (void)conv_layer_context_way(context, &(struct conv_layer_shape){2, 8, 8}, false, &way, err);
    conv_layer_context_close(context);
    return way;
}

UNIT_TEST(what_cudnn_refuses_is_computed_by_our_kernels)
{
    if (is_missing())
        return;
    struct conv_err err = {0};
    setenv("FAKE_CUDNN", "run", 1);
    struct conv_layer_way way = way_of(CONV_PRECISION_TF32, NULL, &err);
    assert_string_not_equal(way.variant->name, NAME);
    assert_non_null(strstr(way.note, "cuDNN"));
    (void)way_of(CONV_PRECISION_TF32, NAME, &err);
    assert_int_equal(err.status, CONV_ERR_USAGE);
    assert_non_null(strstr(err.text, "cuDNN"));
    setenv("FAKE_CUDNN", "", 1);
    err = (struct conv_err){0};
    way = way_of(CONV_PRECISION_EXACT, NULL, &err);
    assert_string_not_equal(way.variant->name, NAME);
    assert_string_equal(way.note, "");
    (void)way_of(CONV_PRECISION_EXACT, NAME, &err); // it cannot do that
    assert_int_equal(err.status, CONV_ERR_USAGE);
}

UNIT_TEST(without_the_library_the_note_says_so)
{
    if (!is_missing())
        return;
    struct conv_err err = {0};
    struct conv_layer_way way = way_of(CONV_PRECISION_FP16, NULL, &err);
    assert_ok(err.status);
    assert_string_not_equal(way.variant->name, NAME);
    assert_non_null(strstr(way.note, "cuDNN 9 was not found"));
    (void)way_of(CONV_PRECISION_FP16, NAME, &err);
    assert_int_equal(err.status, CONV_ERR_USAGE);
    assert_non_null(strstr(err.text, "not found"));
}

int main(void)
{
    for (size_t i = 0; i < MOST; i++)
        weights[i] = value();
    for (size_t i = 0; i < sizeof bias / sizeof bias[0]; i++)
        bias[i] = value();
    return UNIT_RUN(NULL, NULL);
}
