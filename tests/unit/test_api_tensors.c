// SPDX-License-Identifier: MIT
// Wrong options of layers and wrong tensors: refused as test_api_arguments.c says.
#include "support/api_test.h"

#define MOST_SPOILED 30

// Copies of good options, each with one member spoiled. Returns their number.
static int spoil_options(conv_layer_options spoiled[MOST_SPOILED], const conv_layer_options *good)
{
    int count = 0;
#define SPOIL(assignment) (spoiled[count] = *good, spoiled[count++].assignment)
    SPOIL(maps = 0);
    SPOIL(maps = -1);
    SPOIL(channels = 0);
    SPOIL(groups = -1);
    SPOIL(groups = 2);
    SPOIL(stride_width = 1025);
    SPOIL(dilation = -1);
    SPOIL(dilation_width = 1025);
    SPOIL(padding = "same_middle");
    SPOIL(kernel_height = 64);
    SPOIL(kernel_width = 0);
    SPOIL(stride = -1);
    SPOIL(stride = INT32_MAX); // sums with it overflowed
    SPOIL(input = CONV_SAMPLE_U16);
    SPOIL(output = CONV_SAMPLE_U8);
    SPOIL(input_divisor = 255); // not allowed with float32 input
    SPOIL(padding = "full");
    SPOIL(padding = "-1");
    SPOIL(border = "constant:x");
    SPOIL(activation = "gelu");
    SPOIL(precision = "double");
    SPOIL(variant = "cpu_layer_none");
    SPOIL(size = 12);
    SPOIL(padding = "99999999999999999999");
    return count;
}

// The same for a tensor, with a kernel of 3x3 taps.
static int spoil_tensor(conv_tensor spoiled[MOST_SPOILED], const conv_tensor *good)
{
    int count = 0;
    SPOIL(data = NULL);
    SPOIL(height = 0);
    SPOIL(width = 2); // smaller than the kernel
    SPOIL(images = -1);
    SPOIL(memory = (conv_memory)3);
    SPOIL(row_stride = 28);
    SPOIL(row_stride = 33);
    SPOIL(channel_stride = -4);
    SPOIL(image_stride = 2);
    SPOIL(image_stride = INT64_MAX - 3);
    SPOIL(images = INT64_MAX);
    SPOIL(data = (uint8_t *)good->data + 2);
    return count;
}

API_TEST(wrong_layers_are_refused, 2)
{
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
    REFUSE(CONV_ERR_USAGE, conv_layer_create(&layer, context, weights, NULL, NULL));
    conv_layer_options spoiled[MOST_SPOILED];
    int count = spoil_options(spoiled, &good);
    for (int i = 0; i < count; i++) {
        REFUSE(CONV_ERR_USAGE, conv_layer_create(&layer, context, weights, NULL, &spoiled[i]));
        assert_null(layer);
    }
    assert_ok(conv_layer_create(&layer, context, weights, NULL, &good));
    int rows, columns;
    assert_int_equal(conv_layer_result_size(NULL, 8, 8, &rows, &columns), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_layer_result_size(layer, 8, 8, NULL, &columns));
    REFUSE(CONV_ERR_USAGE, conv_layer_result_size(layer, 8, 8, &rows, NULL));
    REFUSE(CONV_ERR_USAGE, conv_layer_result_size(layer, 2, 8, &rows, &columns));
    REFUSE(CONV_ERR_USAGE, conv_layer_result_size(layer, -8, 8, &rows, &columns));
    assert_ok(conv_layer_result_size(layer, 8, 9, &rows, &columns));
    assert_int_equal(rows, 6);
    assert_int_equal(columns, 7);
    const conv_tensor input = {.data = x, .height = 8, .width = 8, .images = 4};
    conv_tensor wrong[MOST_SPOILED];
    count = spoil_tensor(wrong, &input);
    for (int i = 0; i < count; i++)
        REFUSE(CONV_ERR_USAGE, conv_layer_run(layer, &wrong[i], y, NULL));
    assert_int_equal(conv_layer_run(NULL, &input, y, NULL), CONV_ERR_USAGE);
    REFUSE(CONV_ERR_USAGE, conv_layer_run(layer, NULL, y, NULL));
    REFUSE(CONV_ERR_USAGE, conv_layer_run(layer, &input, NULL, NULL));
    REFUSE(CONV_ERR_USAGE, conv_layer_run(layer, &input, y + 1, NULL)); // not aligned
    size_t room;
    REFUSE(CONV_ERR_USAGE, conv_layer_workspace(layer, 1, 8, 8, &room));
    REFUSE(CONV_ERR_USAGE, conv_layer_run_with(layer, &input, weights, NULL, NULL, y, NULL));
    conv_layer *late;
    assert_ok(conv_layer_create(&late, context, NULL, NULL, &good));
    REFUSE(CONV_ERR_USAGE, conv_layer_run(late, &input, y, NULL));
    REFUSE(CONV_ERR_USAGE, conv_layer_run_with(late, &input, NULL, NULL, NULL, y, NULL));
    REFUSE(CONV_ERR_USAGE, conv_layer_workspace(late, 1, 8, 8, NULL));
    REFUSE(CONV_ERR_USAGE, conv_layer_workspace(late, 1, 1, 8, &room)); // smaller than the kernel
    conv_layer_destroy(late);
    conv_tensor none = {0};
    assert_ok(conv_layer_run(layer, &none, NULL, NULL));
    assert_ok(conv_layer_run(layer, &input, y, NULL));
    conv_layer_destroy(layer);
    conv_layer_destroy(NULL);
}

UNIT_MAIN(NULL, NULL)
