// SPDX-License-Identifier: MIT
// Rules that hold for the choice of a CUDA variant, whatever the scores. The choice runs on the
// host, but only a build with CUDA has it.
#include <limits.h>

#include "support/layers.h"
#include "support/unit.h"

#define MOST_WEIGHTS (64 * 64 * 7 * 7)
#define HOPPER 90
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static float weights[MOST_WEIGHTS]; // some variants look for those that are not finite
static const unsigned capabilities[] = {75, 80, 86, 89, HOPPER, 100, 120};

static const struct conv_layer_variant *choose(const struct conv_layer *layer, int64_t images,
                                               int side, unsigned capability)
{
    struct conv_layer_shape shape = {images, side, side};
    struct conv_layer_plan plan;
    assert_true(conv_layer_plan_best(&plan, layer, &shape, CONV_ON_CUDA, capability, NULL));
    return plan.variant;
}

// Every layer has a variant that the device can run and that is precise enough; planned again, and
// by its name, it has the same plan.
static void check_choice(const struct conv_layer *layer, int64_t images, int side,
                         unsigned capability)
{
    struct conv_layer_shape shape = {images, side, side};
    struct conv_layer_plan plan, again, named;
    const struct conv_layer_variant *chosen = choose(layer, images, side, capability);
    assert_int_equal(chosen->place, CONV_ON_CUDA);
    assert_true(conv_place_offers(CONV_ON_CUDA, capability, chosen->needs));
    assert_true(chosen->precision <= layer->precision);
    assert_true(conv_layer_plan_find(&plan, chosen, layer, &shape, capability));
    assert_true(conv_layer_plan_find(&again, chosen, layer, &shape, capability));
    assert_true(
        conv_layer_plan_best(&named, layer, &shape, CONV_ON_CUDA, capability, chosen->name));
    assert_ptr_equal(named.variant, chosen);
    assert_memory_equal(&plan.constants, &again.constants, sizeof plan.constants);
    assert_memory_equal(&plan.constants, &named.constants, sizeof plan.constants);
    assert_int_equal(plan.packed_bytes, named.packed_bytes);
    assert_int_equal(plan.scratch, named.scratch);
}

UNIT_TEST(test_every_layer_has_a_variant)
{
    static const int channels[] = {1, 3, 16, 64}, kernels[] = {1, 2, 3, 5, 7},
                     sides[] = {8, 33, 96};
    static const int64_t images[] = {0, 1, 100};
    for (size_t c = 0; c < COUNT(channels); c++)
        for (size_t k = 0; k < COUNT(kernels); k++)
            for (int form = 0; form < 5; form++) {
                struct conv_layer layer =
                    layer_of(channels[c], form == 4 ? 7 : 64, kernels[k], weights);
                layer.precision = (enum conv_precision)(form % 4);
                layer.stride_y = layer.stride_x = form == 2 ? 2 : 1;
                layer.input = form == 3 ? CONV_ELEMENT_U8 : CONV_ELEMENT_F32;
                if (form > 0)
                    layer.pad_top = layer.pad_left = kernels[k] / 2;
                for (size_t i = 0; i < COUNT(sides) * COUNT(images); i++)
                    check_choice(&layer, images[i % COUNT(images)], sides[i / COUNT(images)],
                                 capabilities[(c + k + i) % COUNT(capabilities)]);
            }
}

// In the exact order: networks' layers, padded or not, and depthwise layers.
UNIT_TEST(test_exact_layers)
{
    for (size_t i = 0; i < COUNT(capabilities); i++) {
        struct conv_layer layer = layer_of(64, 64, 3, weights);
        for (layer.pad_top = 0; layer.pad_top < 2; layer.pad_top++)
            assert_string_equal(choose(&layer, 32, 56, capabilities[i])->name, "cuda_layer_gemm");
        layer.groups = 64;
        assert_string_equal(choose(&layer, 32, 56, capabilities[i])->name, "cuda_layer_window");
    }
}

// Our kernels are exact: what a library may compute otherwise has the same plan here.
UNIT_TEST(test_less_precise_layers)
{
    for (int precision = CONV_PRECISION_FAST; precision <= CONV_PRECISION_BF16; precision++) {
        struct conv_layer layer = layer_of(16, 32, 5, weights);
        const struct conv_layer_variant *exact = choose(&layer, 1000, 28, HOPPER);
        layer.precision = (enum conv_precision)precision;
        assert_ptr_equal(choose(&layer, 1000, 28, HOPPER), exact);
    }
}

// Sizes whose products exceed 32 bits divided by 0 once, and others have no outputs or no room.
UNIT_TEST(test_extreme_shapes)
{
    static const struct {
        int channels, stride, height, width, padding;
        int64_t images;
        bool only_gemm;
    } extreme[] = {
        {1, 1, 1000000, 8, 0, 1, false},
        {1, 1, 12, 12, 0, (int64_t)1 << 40, false}, // 600 TB
        {1, 1, 5, 5, 0, 1, false},
        {1, 1, 2, 5, 0, 1, false},
        {1, CONV_LAYER_MAX_STRIDE, 12, 12, 0, 1, false},
        {1, 1, INT_MAX, 5, 0, 1, true},
        {1, 1, 100, INT_MAX, 0, 1, true},
        {1, 1, INT_MAX, INT_MAX, 0, 1, true},
        {1, 1, 100, 100, INT_MAX / 2, 1, true},
        {INT_MAX, 1, 100, 100, 0, 1, true},
        {2000, 1, 5, 5, 0, 1, true},
    };
    int count;
    const struct conv_layer_variant *const *variants = conv_layer_variants(&count);
    for (size_t i = 0; i < COUNT(extreme); i++)
        for (int v = 0; v < count; v++) {
            bool is_gemm = strcmp(variants[v]->name, "cuda_layer_gemm") == 0;
            struct conv_layer layer = layer_of(extreme[i].channels, 1, 5, weights);
            struct conv_layer_shape shape = {extreme[i].images, extreme[i].height,
                                             extreme[i].width};
            struct conv_layer_plan plan;
            layer.stride_y = layer.stride_x = extreme[i].stride;
            layer.pad_left = layer.pad_right = extreme[i].padding;
            layer.precision = variants[v]->precision;
            if (variants[v]->place != CONV_ON_CUDA || (extreme[i].only_gemm && !is_gemm))
                continue;
            bool found = conv_layer_plan_find(&plan, variants[v], &layer, &shape, HOPPER);
            assert_true(!found || variants[v]->score(&plan) >= CONV_LAYER_SCORE_LAST);
        }
}

int main(void)
{
    for (size_t i = 0; i < COUNT(weights); i++)
        weights[i] = 0.25f;
    return UNIT_RUN(NULL, NULL);
}
