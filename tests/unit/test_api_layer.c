// SPDX-License-Identifier: MIT
// Layers of the C interface against the reference kernel: types, padding, borders, strides of the
// input, and batches that pass through in several parts.
#include "filter/bank.h"
#include "kernels/layer/layer.h"
#include "support/api_test.h"
#include "support/random.h"

static uint64_t noise = 4;

static void fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((int)(random_bits(&noise) & 0xffff) - 0x8000) / 4096;
}

struct layer_case {
    int maps, channels, kernel_height, kernel_width, stride, height, width, images;
    bool bytes, halves;
    const char *padding, *border, *activation;
    int groups, stride_width, dilation, dilation_width; // 0 as in options
    int gap; // elements after each row, twice as many after each channel, and so on
};

// The result by the definition, with its own reading of the options.
static void *expect(const struct layer_case *c, const float *weights, const float *bias,
                    const void *x, const conv_tensor *input, size_t *bytes)
{
    struct conv_layer layer = {
        .maps = c->maps,
        .channels = c->channels,
        .kernel_height = c->kernel_height,
        .kernel_width = c->kernel_width,
        .groups = c->groups ? c->groups : 1,
        .stride_y = c->stride,
        .stride_x = c->stride_width ? c->stride_width : c->stride,
        .dilation_y = c->dilation ? c->dilation : 1,
        .dilation_x = c->dilation_width ? c->dilation_width
                      : c->dilation     ? c->dilation
                                        : 1,
        .border = CONV_BORDER_CONSTANT,
        .input = c->bytes ? CONV_ELEMENT_U8 : CONV_ELEMENT_F32,
        .input_divisor = c->bytes ? 255 : 1,
        .output = c->halves ? CONV_ELEMENT_F16 : CONV_ELEMENT_F32,
        .activation = c->activation ? CONV_ACTIVATION_RELU : CONV_ACTIVATION_NONE,
        .weights = weights,
        .bias = bias,
    };
    if (c->padding && strcmp(c->padding, "same") == 0) {
        layer.pad_top = (c->kernel_height - 1) / 2;
        layer.pad_bottom = c->kernel_height / 2;
        layer.pad_left = (c->kernel_width - 1) / 2;
        layer.pad_right = c->kernel_width / 2;
    } else if (c->padding && strcmp(c->padding, "1:0x2:3") == 0) {
        layer.pad_top = 1;
        layer.pad_left = 2;
        layer.pad_right = 3;
    } else if (c->padding) {
        layer.pad_top = layer.pad_bottom = layer.pad_left = layer.pad_right = atoi(c->padding);
    }
    if (c->border && strcmp(c->border, "reflect101") == 0)
        layer.border = CONV_BORDER_REFLECT101;
    else if (c->border)
        layer.border_value = (float)atof(c->border + 9);
    struct conv_layer_shape shape = {c->images, c->height, c->width};
    struct conv_layer_plan plan;
    conv_layer_plan_find(&plan, &conv_cpu_layer_reference, &layer, &shape, 0);
    int rows = conv_layer_out_height(&layer, c->height);
    *bytes = conv_element_size(layer.output) * (size_t)c->images * (size_t)c->maps * (size_t)rows *
             (size_t)conv_layer_out_width(&layer, c->width);
    void *result = aligned_alloc(64, (*bytes + 63) / 64 * 64);
    struct conv_layer_batch batch = {
        .images = c->images,
        .src = x,
        .src_row = input->row_stride,
        .src_plane = input->channel_stride,
        .src_image = input->image_stride,
        .dst = result,
        .rows = rows,
    };
    assert_ok(plan.variant->run(&plan, &batch));
    return result;
}

static void check(conv_context *context, const struct layer_case *c)
{
    size_t element = c->bytes ? 1 : 4, taps = (size_t)c->kernel_height * (size_t)c->kernel_width;
    size_t groups = c->groups ? (size_t)c->groups : 1, bytes;
    size_t weight_count = taps * (size_t)c->maps * (size_t)c->channels / groups;
    float *weights = malloc(weight_count * sizeof *weights);
    float *bias = malloc((size_t)c->maps * sizeof *bias);
    conv_tensor input = {.height = c->height, .width = c->width, .images = c->images};
    input.row_stride = (int64_t)element * (c->width + c->gap);
    input.channel_stride = input.row_stride * c->height + (int64_t)element * 2 * c->gap;
    input.image_stride = input.channel_stride * c->channels + (int64_t)element * 3 * c->gap;
    size_t size = (size_t)(input.image_stride * c->images);
    uint8_t *x = malloc(size);
    fill(weights, weight_count);
    fill(bias, (size_t)c->maps);
    if (c->bytes)
        for (size_t i = 0; i < size; i++)
            x[i] = (uint8_t)random_bits(&noise);
    else
        fill((float *)(void *)x, size / sizeof(float));
    void *expected = expect(c, weights, bias, x, &input, &bytes);
    input.data = x;
    if (!c->gap && c->images % 2) // as 0 says
        input.row_stride = input.channel_stride = input.image_stride = 0;
    conv_layer_options options = CONV_LAYER_OPTIONS_INIT;
    options.maps = c->maps;
    options.channels = c->channels;
    options.kernel_height = c->kernel_height;
    options.kernel_width = c->kernel_width;
    options.stride = c->stride;
    options.stride_width = c->stride_width;
    options.dilation = c->dilation;
    options.dilation_width = c->dilation_width;
    options.groups = c->groups;
    options.input = c->bytes ? CONV_SAMPLE_U8 : CONV_SAMPLE_DEFAULT;
    options.input_divisor = c->bytes ? 255 : 0;
    options.output = c->halves ? CONV_SAMPLE_F16 : CONV_SAMPLE_DEFAULT;
    options.padding = c->padding;
    options.border = c->border;
    options.activation = c->activation;
    conv_layer *layer;
    if (conv_layer_create(&layer, context, weights, bias, &options))
        fail_msg("%s", conv_context_message(context));
    int rows, columns;
    assert_ok(conv_layer_result_size(layer, c->height, c->width, &rows, &columns));
    assert_int_equal((size_t)rows * (size_t)columns * (size_t)c->maps * (size_t)c->images *
                         (c->halves ? 2u : 4u),
                     bytes);
    uint8_t *result = aligned_alloc(16, (bytes + 16 + 15) / 16 * 16);
    conv_layer *late; // weights that change, and the same ones in another place
    float *moved = malloc(weight_count * sizeof *moved);
    size_t room = 1;
    assert_ok(conv_layer_create(&late, context, NULL, NULL, &options));
    assert_ok(conv_layer_workspace(late, c->images, c->height, c->width, &room));
    assert_int_equal(room, 0);
    memset(moved, 0, weight_count * sizeof *moved);
    for (int i = 0; i < 3; i++) {
        assert_ok(conv_layer_run_with(late, &input, i == 1 ? weights : moved, i > 0 ? bias : NULL,
                                      NULL, result, NULL));
        memcpy(moved, weights, weight_count * sizeof *moved);
        assert_true(i == 0 || memcmp(result, expected, bytes) == 0);
    }
    conv_layer_destroy(late);
    free(moved);
    memset(weights, 0, weight_count * sizeof *weights); // the layer has a copy
    memset(result, 0xa5, bytes + 16);
    if (conv_layer_run(layer, &input, result, NULL))
        fail_msg("%s", conv_context_message(context));
    assert_memory_equal(result, expected, bytes);
    for (int i = 0; i < 16; i++)
        assert_int_equal(result[bytes + (size_t)i], 0xa5);
    conv_layer_destroy(layer);
    free(result);
    free(expected);
    free(x);
    free(bias);
    free(weights);
}

// maps, channels, kernel, stride, height, width, images; and the rest
static const struct layer_case cases[] = {
    {4, 3, 3, 3, 1, 20, 33, 5, .gap = 0},
    {3, 2, 4, 3, 2, 17, 21, 4, .bytes = true, .padding = "same", .activation = "relu"},
    {5, 1, 5, 5, 1, 9, 50, 3, .gap = 3, .padding = "2", .border = "reflect101"},
    {1, 3, 1, 7, 1, 8, 19, 7, true, true, "same", "constant:0.5", .gap = 5},
    {2, 4, 3, 3, 1, 31, 31, 1, .gap = 1, .halves = true},
    {6, 4, 3, 2, 2, 12, 19, 2, .gap = 1, .groups = 2, .padding = "1:0x2:3", .dilation = 2},
    {3, 3, 2, 3, 1, 9, 11, 3, .groups = 3, .stride_width = 2, .dilation = 1, .dilation_width = 3},
};

UNIT_TEST(layers_give_what_the_reference_gives)
{
    static const int threads[] = {1, 4, 40}; // the last are more than some results have rows
    for (int t = 0; t < 3; t++) {
        conv_context *context = api_open(threads[t]);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            check(context, &cases[i]);
        conv_context_destroy(context);
    }
}

// More than passes through at a time; results of odd sizes do not stay aligned from part to part.
API_TEST(large_batches_pass_in_parts, 3)
{
    static const struct layer_case large[] = {
        {1, 1, 2, 2, 9, 1000, 1003, 21, .gap = 0},
        {1, 1, 2, 2, 9, 1000, 1003, 33, .bytes = true, .gap = 1},
    };
    for (int i = 0; i < 2; i++)
        check(context, &large[i]);
}

// The weights that `conv layer` uses, in one layer: of lm, whose filters have several sizes, too.
UNIT_TEST(banks_are_weights)
{
    static const char *const names[] = {"gabor:2x4", "lm", "sobel", "laws:9"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t filters, height, width;
        struct conv_bank bank;
        struct conv_err err;
        char message[CONV_MESSAGE_SIZE];
        assert_ok(conv_bank_parse(&bank, names[i], &err));
        assert_ok(conv_bank_weights(names[i], &filters, &height, &width, NULL, 0, NULL));
        assert_int_equal(filters, bank.filter_count);
        size_t count = (size_t)filters * (size_t)height * (size_t)width;
        float *weights = malloc(count * sizeof *weights);
        assert_int_equal(
            conv_bank_weights(names[i], &filters, &height, &width, weights, count - 1, message),
            CONV_ERR_USAGE);
        assert_ok(conv_bank_weights(names[i], &filters, &height, &width, weights, count, NULL));
        for (int f = 0; f < filters; f++) {
            const struct conv_bank_filter *filter = &bank.filters[f];
            for (int y = 0; y < height; y++)
                for (int x = 0; x < width; x++) {
                    int j = y - (height - filter->height) / 2, k = x - (width - filter->width) / 2;
                    bool inside = j >= 0 && k >= 0 && j < filter->height && k < filter->width;
                    float expected = inside ? (float)filter->coef[j * filter->width + k] : 0;
                    assert_true(weights[(f * height + y) * width + x] == expected);
                }
        }
        free(weights);
        conv_bank_free(&bank);
    }
    int32_t number;
    char message[CONV_MESSAGE_SIZE] = "";
    assert_int_equal(conv_bank_weights("gabr:2", &number, &number, &number, NULL, 0, message),
                     CONV_ERR_USAGE);
    assert_true(message[0] != 0);
    assert_int_equal(conv_bank_weights(NULL, &number, &number, &number, NULL, 0, NULL),
                     CONV_ERR_USAGE);
    assert_int_equal(conv_bank_weights("lm", NULL, &number, &number, NULL, 0, NULL),
                     CONV_ERR_USAGE);
}

UNIT_MAIN(NULL, NULL)
