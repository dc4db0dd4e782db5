// SPDX-License-Identifier: MIT
// Which CUDA variant a layer gets, where a GPU showed that a variant for few images, for 1x1
// kernels, or for rows of some lengths, is or is not the fastest. The choice runs on the host, but
// only a build with CUDA has it.
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/layer/layer.h"

#define MOST_WEIGHTS (100 * 64 * 5 * 5) // 256 * 512 with 1x1 kernels is less
#define HOPPER 90
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static float weights[MOST_WEIGHTS]; // some variants look for those that are not finite

static struct conv_layer make_layer(int channels, int maps, int kernel)
{
    return (struct conv_layer){
        .channels = channels,
        .maps = maps,
        .kernel_height = kernel,
        .kernel_width = kernel,
        .stride = 1,
        .border = CONV_BORDER_CONSTANT,
        .input = CONV_ELEMENT_F32,
        .input_divisor = 1,
        .output = CONV_ELEMENT_F32,
        .weights = weights,
    };
}

static const char *choose(const struct conv_layer *layer, int64_t images, int side,
                          unsigned capability)
{
    struct conv_layer_shape shape = {images, side, side};
    struct conv_layer_plan plan;
    assert_true(conv_layer_plan_best(&plan, layer, &shape, CONV_ON_CUDA, capability, NULL));
    return plan.variant->name;
}

// The fastest of the variants on an H100, 2026-11-26, as far as `slices` and `aligned` are
// concerned.
static void test_layers_get_the_fastest(void **state)
{
    (void)state;
    static const struct {
        int64_t images;
        int channels, side, maps, kernel;
        const char *fastest;
    } measured[] = {
        {1, 32, 16, 32, 3, "cuda_layer_slices"},     // 0.0075 ms, rows 0.0498
        {1, 1, 64, 12, 5, "cuda_layer_slices"},      // 0.0049, few 0.0067
        {100, 16, 28, 32, 5, "cuda_layer_slices"},   // 0.0388, rows 0.0477
        {100, 6, 12, 16, 5, "cuda_layer_slices"},    // 0.0072, uniform 0.0077
        {500, 20, 12, 50, 5, "cuda_layer_slices"},   // 0.0410, rows 0.0581
        {1000, 10, 12, 20, 5, "cuda_layer_slices"},  // 0.0220, uniform 0.0306
        {100, 1, 28, 50, 5, "cuda_layer_few"},       // 0.0090, slices 0.0125
        {100, 1, 28, 6, 5, "cuda_layer_few"},        // 0.0060, slices 0.0066
        {100, 3, 32, 16, 3, "cuda_layer_few"},       // 0.0083, slices 0.0111
        {20, 3, 224, 64, 3, "cuda_layer_few"},       // 0.1124, slices 0.2212
        {100, 8, 33, 32, 3, "cuda_layer_uniform"},   // 0.0261, slices 0.0309
        {1000, 6, 12, 16, 5, "cuda_layer_uniform"},  // 0.0149, slices 0.0154
        {10000, 6, 12, 16, 5, "cuda_layer_uniform"}, // 0.0761, slices 0.1025
        {100, 12, 33, 24, 5, "cuda_layer_bulk"},     // 0.0408, slices 0.0519
        {300, 12, 33, 24, 5, "cuda_layer_aligned"},  // 0.1035, bulk 0.1048
        {1000, 12, 33, 24, 5, "cuda_layer_aligned"}, // 0.2672, bulk 0.2900, slices 0.3992
        {10000, 12, 33, 24, 5, "cuda_layer_bulk"},   // 2.4732, aligned 2.4851
        {1000, 12, 32, 24, 5, "cuda_layer_uniform"}, // 0.2589, aligned 0.2671
        {1000, 6, 33, 24, 5, "cuda_layer_aligned"},  // 0.1421, bulk 0.1601
        {1000, 10, 33, 20, 5, "cuda_layer_aligned"}, // 0.2196, bulk 0.2518
        {1000, 3, 33, 12, 5, "cuda_layer_aligned"},  // 0.0532, bulk 0.0584
        {1000, 8, 31, 16, 5, "cuda_layer_aligned"},  // 0.1384, uniform 0.1463
        {1000, 16, 32, 32, 5, "cuda_layer_aligned"}, // 0.4530, rows 0.5141
        {1000, 12, 30, 48, 5, "cuda_layer_aligned"}, // 0.4443, bulk 0.5040
    };
    for (size_t i = 0; i < COUNT(measured); i++) {
        struct conv_layer layer =
            make_layer(measured[i].channels, measured[i].maps, measured[i].kernel);
        assert_string_equal(choose(&layer, measured[i].images, measured[i].side, HOPPER),
                            measured[i].fastest);
    }
}

// With one small image the exact variant is faster than tensor cores too.
static void test_less_precise_layers(void **state)
{
    (void)state;
    struct conv_layer layer = make_layer(6, 16, 5);
    layer.precision = CONV_PRECISION_FAST;
    assert_string_equal(choose(&layer, 1, 12, HOPPER), "cuda_layer_slices");    // 0.0054, 0.0079
    assert_string_equal(choose(&layer, 1000, 12, HOPPER), "cuda_layer_strips"); // 0.0154, 0.0122
    layer = make_layer(16, 32, 5);
    layer.precision = CONV_PRECISION_FAST;
    assert_string_equal(choose(&layer, 100, 28, HOPPER), "cuda_layer_wgmma"); // 0.0388, 0.0205
}

// Layers with 1x1 kernels, on an H100, 2026-11-26: ms of `points`, `points_bulk`, `points_wgmma`.
// `fast` and `tf32` also allow exact variants.
static void test_1x1_layers(void **state)
{
    (void)state;
    static const struct {
        int64_t images;
        int channels, side, maps;
        const char *exact, *fast, *tf32; // after "cuda_layer_"
    } measured[] = {
        {1000, 1, 64, 32, "points", "points", "points"},                   // 0.197, 0.210, 0.209
        {100, 3, 224, 64, "points", "points", "points"},                   // 0.493, 0.521, 0.504
        {10, 8, 64, 16, "points", "points", "points"},                     // 0.0069, 0.0083, 0.0082
        {1000, 8, 64, 16, "points", "points_wgmma", "points_tf32"},        // 0.156, 0.209, 0.149
        {10, 16, 64, 32, "points", "points", "points"},                    // 0.0089, 0.0107, 0.0096
        {1000, 16, 64, 32, "points", "points_wgmma", "points_tf32"},       // 0.310, 0.319, 0.296
        {1, 32, 32, 128, "points_bulk", "points_bulk", "points_tf32"},     // 0.0106, 0.0074, 0.0090
        {1000, 32, 32, 128, "points", "points_wgmma", "points_tf32"},      // 0.252, 0.275, 0.245
        {1000, 48, 28, 128, "points_bulk", "points_wgmma", "points_tf32"}, // 0.393, 0.278, 0.215
        {100, 48, 56, 192, "points_bulk", "points_wgmma", "points_tf32"},  // 0.182, 0.163, 0.119
        {1000, 64, 28, 32, "points", "points_wgmma", "points_tf32"},       // 0.158, 0.166, 0.128
        {1000, 64, 28, 64, "points_bulk", "points_wgmma", "points_tf32"},  // 0.232, 0.185, 0.155
        {1000, 64, 28, 96, "points", "points_wgmma", "points_tf32"},       // 0.316, 0.331, 0.208
        {1000, 64, 28, 160, "points_bulk", "points_wgmma", "points_tf32"}, // 0.578, 0.487, 0.330
        {100, 64, 56, 128, "points_bulk", "points_wgmma", "points_tf32"},  // 0.158, 0.140, 0.095
        {1000, 96, 28, 40, "points_bulk", "points_wgmma", "points_tf32"},  // 0.260, 0.232, 0.173
        {1000, 100, 14, 24, "points_bulk", "points_wgmma", "points_tf32"}, // 0.080, 0.072, 0.055
        {1000, 128, 28, 16, "points_bulk", "points_wgmma", "points_tf32"}, // 0.381, 0.291, 0.172
        {1, 128, 28, 128, "points_bulk", "points_bulk", "points_tf32"},    // 0.0168, 0.0107, 0.0145
        {4, 128, 28, 128, "points_bulk", "points_bulk", "points_tf32"},    // 0.0168, 0.0109, 0.0147
        {16, 128, 28, 128, "points_bulk", "points_wgmma", "points_tf32"},  // 0.0272, 0.0195, 0.0157
        {1000, 192, 28, 96, "points_bulk", "points_wgmma", "points_tf32"}, // 3.01, 0.819, 0.389
        {1000, 256, 14, 64, "points_bulk", "points_wgmma", "points_tf32"}, // 0.879, 0.160, 0.113
        {10, 256, 14, 512, "points_bulk", "points_wgmma", "points_tf32"},  // 0.107, 0.0214, 0.0173
        {1000, 256, 14, 512, "points_bulk", "points_wgmma", "points_tf32"}, // 5.66, 1.09, 0.541
        {1, 512, 7, 128, "points_bulk", "points_wgmma", "points_tf32"},     // 0.223, 0.0284, 0.0253
    };
    for (size_t i = 0; i < COUNT(measured); i++) {
        struct conv_layer layer = make_layer(measured[i].channels, measured[i].maps, 1);
        const char *names[] = {measured[i].exact, measured[i].fast, measured[i].tf32};
        for (int k = 0; k < 3; k++) {
            layer.precision = (enum conv_precision)(CONV_PRECISION_EXACT + k);
            const char *name = choose(&layer, measured[i].images, measured[i].side, HOPPER);
            assert_string_equal(name + strlen("cuda_layer_"), names[k]);
        }
        layer.precision = CONV_PRECISION_EXACT; // other devices lack bulk copies
        assert_string_equal(choose(&layer, measured[i].images, measured[i].side, 80),
                            "cuda_layer_points");
    }
}

static bool can_slices(const struct conv_layer *layer, int64_t images, int height, int width,
                       unsigned capability)
{
    struct conv_layer_shape shape = {images, height, width};
    struct conv_layer_plan plan;
    return conv_layer_plan_best(&plan, layer, &shape, CONV_ON_CUDA, capability,
                                "cuda_layer_slices");
}

// Other devices have less shared memory.
static void test_only_on_hopper(void **state)
{
    (void)state;
    struct conv_layer layer = make_layer(16, 32, 5);
    static const unsigned others[] = {75, 80, 86, 89, 100, 120};
    assert_true(can_slices(&layer, 100, 28, 28, HOPPER));
    for (size_t i = 0; i < COUNT(others); i++) {
        assert_false(can_slices(&layer, 100, 28, 28, others[i]));
        assert_string_not_equal(choose(&layer, 100, 28, others[i]), "cuda_layer_slices");
    }
    assert_string_not_equal(choose(&layer, 0, 28, HOPPER), "cuda_layer_slices"); // unknown number
}

// Sizes whose products exceed 32 bits divided by 0 once.
static void test_extreme_shapes(void **state)
{
    (void)state;
    struct conv_layer layer = make_layer(1, 1, 3);
    assert_true(can_slices(&layer, 1, 1000000, 8, HOPPER));
    assert_true(can_slices(&layer, INT64_MAX, 12, 12, HOPPER));
    assert_true(can_slices(&layer, 1, 3, 3, HOPPER));
    assert_false(can_slices(&layer, 1, 2, 3, HOPPER)); // no outputs
    assert_false(can_slices(&layer, 1, INT_MAX, 3, HOPPER));
    assert_false(can_slices(&layer, 1, 100, INT_MAX, HOPPER));
    assert_false(can_slices(&layer, 1, INT_MAX, INT_MAX, HOPPER));
    layer.pad_left = layer.pad_right = INT_MAX / 2;
    assert_false(can_slices(&layer, 1, 100, 100, HOPPER));
    layer = make_layer(INT_MAX, 1, 3);
    assert_false(can_slices(&layer, 1, 100, 100, HOPPER));
    layer = make_layer(2000, 1, 5); // whose samples fit, but not with their weights
    assert_false(can_slices(&layer, 1, 5, 5, HOPPER));
    layer.channels = 1;
    layer.stride = 2;
    assert_false(can_slices(&layer, 1, 12, 12, HOPPER));
}

int main(void)
{
    for (size_t i = 0; i < COUNT(weights); i++)
        weights[i] = 0.25f;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_get_the_fastest),
        cmocka_unit_test(test_less_precise_layers),
        cmocka_unit_test(test_1x1_layers),
        cmocka_unit_test(test_only_on_hopper),
        cmocka_unit_test(test_extreme_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
