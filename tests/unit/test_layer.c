// SPDX-License-Identifier: MIT
// What a layer's definition says, on cases small enough to compute by hand, the activations, and
// float16. What variants compute is tested by check_layers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/layer/activation.h"
#include "kernels/layer/layer.h"
#include "tensor/half.h"

static void run_reference(const struct conv_layer *layer, int height, int width, const void *src,
                          void *dst)
{
    struct conv_layer_shape shape = {.images = 1, .height = height, .width = width};
    struct conv_layer_plan plan;
    conv_layer_plan_init(&plan, &conv_cpu_layer_reference, layer, &shape, NULL);
    int64_t row = width * (int64_t)conv_element_size(layer->input);
    struct conv_layer_batch batch = {
        .images = 1,
        .src = src,
        .src_row = row,
        .src_plane = row * height,
        .src_image = row * height * layer->channels,
        .dst = dst,
        .rows = conv_layer_out_height(layer, height),
    };
    assert_int_equal(plan.variant->run(&plan, &batch), CONV_OK);
}

static void sums_channels_and_bias(void **state)
{
    (void)state;
    // Two channels of 2x3, two maps of 2x2 kernels: correlation, the kernel is not turned.
    const float src[] = {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60};
    const float weights[] = {1, 0, 0, 2, 0, 0, 1, 0, -1, 0, 0, 0, 0, 0.5f, 0, 0};
    const float bias[] = {100, 0};
    struct conv_layer layer = {.channels = 2,
                               .maps = 2,
                               .kernel_height = 2,
                               .kernel_width = 2,
                               .stride = 1,
                               .input = CONV_ELEMENT_F32,
                               .output = CONV_ELEMENT_F32,
                               .weights = weights,
                               .bias = bias};
    float dst[4];
    run_reference(&layer, 2, 3, src, dst);
    // 1*1 + 2*5 + 40 + 100, 1*2 + 2*6 + 50 + 100; -1 + 0.5 * 20, -2 + 0.5 * 30
    const float expected[] = {151, 164, 9, 13};
    assert_memory_equal(dst, expected, sizeof dst);
}

static void pads_by_border_and_stride(void **state)
{
    (void)state;
    const uint8_t src[] = {51, 102, 255};
    const float weights[] = {1, 1, 1};
    struct conv_layer layer = {.channels = 1,
                               .maps = 1,
                               .kernel_height = 1,
                               .kernel_width = 3,
                               .stride = 2,
                               .pad_left = 1,
                               .pad_right = 1,
                               .border = CONV_BORDER_REPLICATE,
                               .input = CONV_ELEMENT_U8,
                               .input_divisor = 51,
                               .output = CONV_ELEMENT_F16,
                               .weights = weights};
    uint16_t dst[2];
    run_reference(&layer, 1, 3, src, dst);
    assert_float_equal(conv_half_to_float(dst[0]), 4, 0);  // 1 1 2
    assert_float_equal(conv_half_to_float(dst[1]), 12, 0); // 2 5 5
    layer.border = CONV_BORDER_CONSTANT;
    layer.border_value = -3;
    run_reference(&layer, 1, 3, src, dst);
    assert_float_equal(conv_half_to_float(dst[0]), 0, 0); // -3 1 2
    assert_float_equal(conv_half_to_float(dst[1]), 4, 0); // 2 5 -3
}

static void padding_takes_part(void **state)
{
    (void)state;
    const float src = 1, weights[] = {INFINITY, 1};
    struct conv_layer layer = {.channels = 1,
                               .maps = 1,
                               .kernel_height = 1,
                               .kernel_width = 2,
                               .stride = 1,
                               .pad_left = 1,
                               .border = CONV_BORDER_CONSTANT,
                               .input = CONV_ELEMENT_F32,
                               .output = CONV_ELEMENT_F32,
                               .weights = weights};
    float dst;
    run_reference(&layer, 1, 1, &src, &dst);
    assert_true(isnan(dst));
}

static void tanh_is_close(void **state)
{
    (void)state;
    double worst = 0;
    for (uint32_t bits = 0x30000000; bits < 0x41300000; bits += 97) { // 2^-31 to 11
        float x;
        memcpy(&x, &bits, sizeof x);
        double exact = tanh((double)x);
        float unit = nextafterf((float)exact, 2) - (float)exact;
        double error = fabs((double)conv_layer_tanh(x) - exact) / (double)unit;
        worst = error > worst ? error : worst;
        assert_true(conv_layer_tanh(-x) == -conv_layer_tanh(x));
        assert_true(conv_layer_tanh(x) <= 1);
    }
    print_message("tanh: at most %.2f units in the last place\n", worst);
    assert_true(worst < 2);
    assert_true(isnan(conv_layer_tanh(NAN)));
    assert_float_equal(conv_layer_tanh(-INFINITY), -1, 0);
}

static void relu_and_abs_on_special_values(void **state)
{
    (void)state;
    assert_true(isnan(conv_layer_activate(CONV_ACTIVATION_RELU, NAN)));
    assert_float_equal(conv_layer_activate(CONV_ACTIVATION_RELU, -2), 0, 0);
    assert_float_equal(conv_layer_activate(CONV_ACTIVATION_RELU, 2), 2, 0);
    assert_float_equal(conv_layer_activate(CONV_ACTIVATION_ABS, -2), 2, 0);
    assert_float_equal(conv_layer_activate(CONV_ACTIVATION_NONE, -2), -2, 0);
}

static void half_round_trips_and_rounds(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        float value = conv_half_to_float((uint16_t)half);
        if (isnan(value))
            assert_true((half & 0x7fff) > 0x7c00);
        else
            assert_int_equal(conv_half_from_float(value), half);
    }
    // The values halfway between neighbours go to the even one, those beside them to the nearer.
    for (uint32_t half = 0; half < 0x7bff; half++) {
        float low = conv_half_to_float((uint16_t)half),
              high = conv_half_to_float((uint16_t)(half + 1));
        float middle = (low + high) / 2;
        assert_int_equal(conv_half_from_float(middle), half + (half & 1));
        assert_int_equal(conv_half_from_float(nextafterf(middle, 0)), half);
        assert_int_equal(conv_half_from_float(nextafterf(middle, 1e9f)), half + 1);
    }
    assert_int_equal(conv_half_from_float(65519.996f), 0x7bff);
    assert_int_equal(conv_half_from_float(65520), 0x7c00);
    assert_int_equal(conv_half_from_float(-INFINITY), 0xfc00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_channels_and_bias),
        cmocka_unit_test(pads_by_border_and_stride),
        cmocka_unit_test(padding_takes_part),
        cmocka_unit_test(tanh_is_close),
        cmocka_unit_test(relu_and_abs_on_special_values),
        cmocka_unit_test(half_round_trips_and_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
