// SPDX-License-Identifier: MIT
// Activations, float16 and sizes; the table of layer variants and the choice among them. What
// variants and the reference compute is tested by check_layers.
#include "base/features.h"
#include "engine/layer_context.h"
#include "support/layers.h"
#include "support/unit.h"
#include "tensor/element.h"

static void run_reference(const struct conv_layer *layer, int height, int width, const void *src,
                          void *dst)
{
    struct conv_layer_shape shape = {.images = 1, .height = height, .width = width};
    struct conv_layer_plan plan;
    conv_layer_plan_find(&plan, &conv_cpu_layer_reference, layer, &shape, 0);
    struct conv_layer_batch batch = conv_layer_batch_of(layer, &shape, 1, src, dst);
    assert_ok(plan.variant->run(&plan, &batch));
}

UNIT_TEST(padding_takes_part)
{
    const float src = 1, weights[] = {INFINITY, 1};
    struct conv_layer layer = layer_of(1, 1, 1, weights);
    layer.kernel_width = 2;
    layer.pad_left = 1;
    float dst;
    run_reference(&layer, 1, 1, &src, &dst);
    assert_true(isnan(dst));
}

UNIT_TEST(tanh_is_close)
{
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

UNIT_TEST(relu_and_abs_on_special_values)
{
    assert_true(isnan(conv_layer_activate(CONV_ACTIVATION_RELU, NAN)));
    assert_float_equal(conv_layer_activate(CONV_ACTIVATION_RELU, -2), 0, 0);
    assert_float_equal(conv_layer_activate(CONV_ACTIVATION_RELU, 2), 2, 0);
    assert_float_equal(conv_layer_activate(CONV_ACTIVATION_ABS, -2), 2, 0);
    assert_float_equal(conv_layer_activate(CONV_ACTIVATION_NONE, -2), -2, 0);
}

UNIT_TEST(half_round_trips_and_rounds)
{
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

// --- the table and the choice --------------------------------------------------------------------

#define ALL_FEATURES 0xffffffffu

static const float one_weight[] = {1};

UNIT_TEST(output_sizes)
{
    struct conv_layer layer = layer_of(1, 1, 1, one_weight);
    layer.kernel_height = 5;
    layer.kernel_width = 3;
    assert_int_equal(conv_layer_out_height(&layer, 5), 1);
    assert_int_equal(conv_layer_out_height(&layer, 4), 0);
    assert_int_equal(conv_layer_out_width(&layer, 4), 2);
    layer.stride_y = layer.stride_x = 3;
    assert_int_equal(conv_layer_out_height(&layer, 10), 2);
    assert_int_equal(conv_layer_out_height(&layer, 11), 3);
    layer.pad_top = 1;
    layer.pad_left = layer.pad_right = 40;
    assert_int_equal(conv_layer_out_height(&layer, 10), 3);
    assert_int_equal(conv_layer_out_width(&layer, 1), 27);
    layer.pad_top = INT32_MAX;
    assert_int_equal(conv_layer_out_height(&layer, INT32_MAX), 1431655764);
    layer.stride_y = layer.dilation_x = 2;
    assert_int_equal(conv_layer_out_height(&layer, INT32_MAX), 2147483645);
    layer.stride_y = 1;
    assert_int_equal(conv_layer_out_height(&layer, INT32_MAX), 0); // no int
    assert_int_equal(conv_layer_out_width(&layer, 1), 26);
    layer.pad_left = layer.pad_right = 0;
    assert_int_equal(conv_layer_out_width(&layer, 5), 1);
    assert_int_equal(conv_layer_out_width(&layer, 4), 0);
}

UNIT_TEST(variants_refuse_what_they_do_not_handle)
{
    struct conv_layer layers[4];
    for (int i = 0; i < 4; i++)
        layers[i] = layer_of(1, 1, 1, one_weight);
    layers[0].groups = layers[0].channels = layers[0].maps = 2;
    layers[1].kernel_width = layers[1].dilation_x = 2;
    layers[2].stride_y = 2;
    layers[3].dilation_x = layers[3].dilation_y = 9; // of a single tap
    static const unsigned needed[] = {CONV_LAYER_GROUPS, CONV_LAYER_DILATION, CONV_LAYER_STRIDES,
                                      0};
    struct conv_layer_shape shape = {1, 8, 8};
    struct conv_layer_plan plan;
    for (int i = 0; i < 4; i++) {
        struct conv_layer_variant variant = {.handles = needed[i]};
        assert_true(conv_layer_plan_find(&plan, &variant, &layers[i], &shape, 0));
        variant.handles = CONV_LAYER_ANY & ~needed[i];
        assert_int_equal(conv_layer_plan_find(&plan, &variant, &layers[i], &shape, 0), i == 3);
    }
    assert_int_equal(plan.layer.dilation_x * plan.layer.dilation_y, 1);
}

UNIT_TEST(table_is_consistent)
{
    int count;
    const struct conv_layer_variant *const *variants = conv_layer_variants(&count);
    const struct conv_layer_variant *last_on_cpu = NULL;
    struct conv_layer layer = layer_of(1, 1, 1, one_weight);
    struct conv_layer_shape shape = {1, 8, 8};
    for (int i = 0; i < count; i++) {
        const struct conv_layer_variant *variant = variants[i];
        bool on_cpu = variant->place == CONV_ON_CPU;
        const char *prefix = on_cpu ? "cpu_layer_" : "cuda_layer_";
        assert_memory_equal(variant->name, prefix, strlen(prefix));
        assert_true(variant->summary[0] != 0);
        assert_true((variant->precision == CONV_PRECISION_EXACT) == (variant->bound == 0));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(variant->name, variants[j]->name);
        struct conv_layer_plan plan;
        unsigned have = on_cpu ? ALL_FEATURES : 90;
        if (conv_layer_plan_find(&plan, variant, &layer, &shape, have))
            assert_true(variant->score(&plan) >= CONV_LAYER_SCORE_LAST);
        last_on_cpu = on_cpu ? variant : last_on_cpu;
    }
    assert_ptr_equal(last_on_cpu, &conv_cpu_layer_reference);
}

// The chosen variant, or NULL.
static const struct conv_layer_variant *pick(const struct conv_layer *layer, enum conv_place place,
                                             unsigned have, const char *name)
{
    struct conv_layer_shape shape = {1, 8, 8};
    struct conv_layer_plan plan;
    return conv_layer_plan_best(&plan, layer, &shape, place, have, name) ? plan.variant : NULL;
}

UNIT_TEST(choice_follows_features_and_names)
{
    struct conv_layer layer = layer_of(1, 1, 1, one_weight);
    const struct conv_layer_variant *reference = &conv_cpu_layer_reference;
    assert_string_equal(pick(&layer, CONV_ON_CPU, 0, NULL)->name, "cpu_layer_portable");
    const struct conv_layer_variant *best = pick(&layer, CONV_ON_CPU, ALL_FEATURES, NULL);
#if defined __x86_64__
    assert_string_equal(best->name, "cpu_layer_avx512");
    best = pick(&layer, CONV_ON_CPU, CONV_CPU_AVX2, NULL);
    assert_string_equal(best->name, "cpu_layer_avx2");
    assert_null(pick(&layer, CONV_ON_CPU, CONV_CPU_AVX2, "cpu_layer_avx512"));
#endif
    // A variant that is more precise than requested is accepted.
    layer.precision = CONV_PRECISION_FP16;
    assert_ptr_equal(pick(&layer, CONV_ON_CPU, CONV_CPU_AVX2, best->name), best);
    // A variant that is requested by name is used even with the lowest score.
    assert_ptr_equal(pick(&layer, CONV_ON_CPU, 0, "cpu_layer_reference"), reference);
    assert_null(pick(&layer, CONV_ON_CPU, ALL_FEATURES, "cpu_layer_none"));
#if !CONV_HAVE_CUDA
    assert_null(pick(&layer, CONV_ON_CUDA, ALL_FEATURES, NULL));
#endif
    // Too many channels for 32-bit offsets.
    layer.channels = INT32_MAX;
    assert_ptr_equal(pick(&layer, CONV_ON_CPU, ALL_FEATURES, NULL), reference);
}

static bool plan_unpadded_10x12(struct conv_layer_plan *plan)
{
    const struct conv_layer *layer = &plan->layer;
    return layer->pad_top + layer->pad_bottom + layer->pad_left + layer->pad_right == 0 &&
           layer->input == CONV_ELEMENT_F32 && plan->shape.height == 10 && plan->shape.width == 12;
}

UNIT_TEST(padding_is_left_to_the_caller)
{
    const struct conv_layer_variant pads = {.handles = CONV_LAYER_PADS,
                                            .plan = plan_unpadded_10x12};
    const struct conv_layer_variant leaves = {.plan = plan_unpadded_10x12};
    struct conv_layer layer = layer_of(1, 1, 1, one_weight);
    struct conv_layer_shape shape = {7, 10, 12};
    struct conv_layer_plan plan;
    assert_true(conv_layer_plan_find(&plan, &leaves, &layer, &shape, 0));
    assert_false(plan.pads);

    layer.pad_bottom = 2;
    layer.pad_left = 1;
    layer.pad_right = 3;
    shape.height -= 2;
    shape.width -= 4;
    assert_false(conv_layer_plan_find(&plan, &pads, &layer, &shape, 0));
    assert_false(plan.pads);
    assert_true(conv_layer_plan_find(&plan, &leaves, &layer, &shape, 0));
    assert_true(plan.pads);
    assert_int_equal(plan.shape.images, 7);
    assert_int_equal(conv_layer_out_height(&plan.layer, 10), conv_layer_out_height(&layer, 8));

    layer.pad_bottom = layer.pad_left = layer.pad_right = 0;
    layer.input = CONV_ELEMENT_U8;
    assert_false(conv_layer_plan_find(&plan, &leaves, &layer, &shape, 0)); // another size
    assert_true(plan.pads);
    const struct conv_layer_variant needy = {.needs = CONV_CPU_AVX2};
    assert_false(conv_layer_plan_find(&plan, &needy, &layer, &shape, 0));
    assert_true(conv_layer_plan_find(&plan, &needy, &layer, &shape, CONV_CPU_AVX2));
    assert_true(conv_place_offers(CONV_ON_CUDA, 100, 90));
    assert_false(conv_place_offers(CONV_ON_CUDA, 89, 90));
    assert_true(conv_place_offers(CONV_ON_CUDA, 90, CONV_CUDA_ONLY + 90));
    assert_false(conv_place_offers(CONV_ON_CUDA, 100, CONV_CUDA_ONLY + 90));
    assert_false(conv_place_offers(CONV_ON_CUDA, 90, CONV_CUDA_ONLY)); // no device
}

// Scratch is for a block of rows and columns, whatever the size of the planes.
UNIT_TEST(scratch_is_bounded)
{
    static const struct {
        int channels, side, stride, height, width;
        size_t most;
    } cases[] = {
        {3, 3, 1, 1 << 20, 1 << 20, 1 << 20}, {1, 63, 1, 5000, 5000, 1 << 20},
        {3, 63, 2, 63, 1 << 26, 1 << 20},     {256, 3, 1, 14, 14, 1 << 20},
        {512, 5, 1, 3000, 3000, 4 << 20},     {1, 1, 7, INT32_MAX, 1, 1 << 20},
    };
    int count;
    const struct conv_layer_variant *const *variants = conv_layer_variants(&count);
    size_t distinct = sizeof cases / sizeof cases[0];
    for (size_t n = 0; n < 2 * distinct; n++) {
        size_t i = n % distinct;
        struct conv_layer layer = layer_of(1, 1, 1, one_weight);
        layer.channels = cases[i].channels;
        layer.kernel_height = layer.kernel_width = cases[i].side;
        layer.stride_y = layer.stride_x = cases[i].stride;
        if (n >= distinct) // the padded input is in scratch, too
            layer.pad_left = layer.pad_right = layer.kernel_width / 2;
        struct conv_layer_shape shape = {1, cases[i].height, cases[i].width};
        float *weights = calloc((size_t)(layer.channels * cases[i].side * cases[i].side), 4);
        layer.weights = weights;
        int found = 0;
        for (int v = 0; v < count; v++) {
            struct conv_layer_plan plan;
            if (variants[v]->place != CONV_ON_CPU ||
                !conv_layer_plan_find(&plan, variants[v], &layer, &shape, conv_cpu_features()))
                continue;
            assert_in_range(plan.scratch, 0, cases[i].most);
            found++;
        }
        assert_in_range(found, 2, count); // the definition and another one
        free(weights);
    }
}

UNIT_MAIN(NULL, NULL)
