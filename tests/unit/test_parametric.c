// SPDX-License-Identifier: MIT
// The arithmetic that the CPU's kernels choose for parametric filters. tests/cli/test_parametric.py
// has their coefficients and pixels.
#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/products.h"
#include "support/unit.h"

static void plan(struct conv_cpu_plan *plan, const char *text, int depth)
{
    static struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    struct conv_stencil stencil;
    struct conv_err err = {0};
    int count;
    if (conv_filter_parse_chain(filters, &count, text, &(struct conv_filter_settings){.size = 0},
                                &err))
        fail_msg("%s", err.text);
    conv_stencil_init(&stencil, &filters[count - 1], depth, CONV_BORDER_REPLICATE, 0);
    conv_cpu_plan_init(plan, &stencil, CONV_CPU_QUADS_FAST, true);
}

UNIT_TEST(blurs_are_two_passes_of_bytes)
{
    static const char *const filters[] = {"gaussian:1", "gaussian:2.5",    "gaussian:4",
                                          "gaussian:5", "gaussian-fast:5", "blur:7.3"};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct conv_cpu_plan chosen;
        plan(&chosen, filters[i], 8);
        assert_true(chosen.separable);
        assert_int_equal(chosen.sums, CONV_CPU_QUADS);
    }
}

UNIT_TEST(passes_are_separable_at_16_bits)
{
    struct conv_cpu_plan chosen;
    plan(&chosen, "gaussian:12", 16);
    assert_true(chosen.separable);
    assert_int_equal(chosen.sums, CONV_CPU_WORDS);
}

UNIT_TEST(matrices_have_sums_that_float32_holds)
{
    static const char *const filters[] = {"unsharp:1,0.8", "unsharp:2,0.8", "log:1.5", "dog:1,1.6",
                                          "motion:31,30"};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct conv_cpu_plan chosen;
        plan(&chosen, filters[i], 8);
        assert_true(chosen.sums <= CONV_CPU_FLOATS);
    }
}

UNIT_TEST(sums_of_doubles_are_two_passes_at_16_bits)
{
    static const char *const filters[] = {"unsharp:2,0.8", "unsharp:2,0.8,5", "gaussian:5"};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct conv_cpu_plan chosen;
        plan(&chosen, filters[i], 16);
        assert_int_equal(chosen.sums, CONV_CPU_DOUBLES);
        assert_true(chosen.products);
    }
}

// They are computed with bytes, not with doubles, which take several times as long.
UNIT_TEST(large_matrices_are_sums_of_bytes)
{
    static const char *const filters[] = {"log:3.75", "dog:3.1,5"};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct conv_cpu_plan chosen;
        plan(&chosen, filters[i], 8);
        assert_int_equal(chosen.sums, CONV_CPU_QUADS);
    }
}

UNIT_TEST(a_matrix_of_rank_2_is_two_products)
{
    static struct conv_filter filter = {.width = 31, .height = 31, .scale = 9};
    static struct conv_stencil stencil;
    struct conv_stencil_products products;
    for (int j = 0; j < 31; j++)
        for (int i = 0; i < 31; i++)
            filter.coef[j * 31 + i] = (j * j - 7) * (300 - i) + (5 * j + 1) * (i * i % 100 - 40);
    for (int more = 0; more < 2; more++) {
        filter.coef[100] += more; // of rank 3
        conv_stencil_init(&stencil, &filter, 16, CONV_BORDER_REPLICATE, 0);
        assert_int_equal(conv_stencil_find_products(&stencil, &products), !more);
    }
    filter.coef[100] -= 1;
    conv_stencil_init(&stencil, &filter, 16, CONV_BORDER_REPLICATE, 0);
    assert_true(conv_stencil_find_products(&stencil, &products));
    assert_int_equal(products.count, 2);
    for (int k = 0; k < 31 * 31; k++)
        assert_int_equal((int64_t)products.column[0][k / 31] * products.row[0][k % 31] +
                             (int64_t)products.column[1][k / 31] * products.row[1][k % 31],
                         stencil.icoef[k]);
}

// The doubles of masks with two passes are 20 times slower there.
UNIT_TEST(small_masks_have_words_at_16_bits)
{
    static const char *const filters[] = {"unsharp:0.8,0.5", "unsharp:1,0.8", "unsharp:1.2,0.8"};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct conv_cpu_plan chosen;
        plan(&chosen, filters[i], 16);
        assert_int_equal(chosen.sums, CONV_CPU_WORDS);
    }
}

UNIT_MAIN(NULL, NULL)
