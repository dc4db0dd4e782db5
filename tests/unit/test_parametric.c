// SPDX-License-Identifier: MIT
// The arithmetic that the CPU's kernels choose for parametric filters. tests/cli/test_parametric.py
// has their coefficients and pixels.
#include "kernels/stencil/cpu/cpu_internal.h"
#include "kernels/stencil/stencil.h"
#include "support/unit.h"

UNIT_TEST(sums_are_chosen)
{
    static const struct {
        const char *filter;
        int depth;
        enum conv_cpu_sums sums;
        bool separable, products;
    } wanted[] = {
        {"gaussian:1", 8, CONV_CPU_QUADS, true, false},
        {"gaussian:2.5", 8, CONV_CPU_QUADS, true, false},
        {"gaussian:5", 8, CONV_CPU_QUADS, true, false},
        {"gaussian-fast:5", 8, CONV_CPU_QUADS, true, false},
        {"blur:7.3", 8, CONV_CPU_QUADS, true, false},
        // Bytes, not doubles, which take several times as long.
        {"log:3.75", 8, CONV_CPU_QUADS, false, false},
        {"dog:3.1,5", 8, CONV_CPU_QUADS, false, false},
        {"unsharp:2,0.8", 16, CONV_CPU_DOUBLES, false, true},
        {"unsharp:2,0.8,5", 16, CONV_CPU_DOUBLES, false, true},
        {"gaussian:5", 16, CONV_CPU_DOUBLES, false, true},
        // Here the doubles of masks with two passes are 20 times slower.
        {"unsharp:0.8,0.5", 16, CONV_CPU_WORDS, false, false},
        {"unsharp:1,0.8", 16, CONV_CPU_WORDS, false, false},
        {"unsharp:1.2,0.8", 16, CONV_CPU_WORDS, false, false},
    };
    static struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        struct conv_filter_settings settings = {.size = 0};
        struct conv_stencil stencil;
        struct conv_cpu_plan plan;
        struct conv_err err = {0};
        int count;
        if (conv_filter_parse_chain(filters, &count, wanted[i].filter, &settings, &err))
            fail_msg("%s", err.text);
        conv_stencil_init(&stencil, &filters[count - 1], wanted[i].depth, CONV_BORDER_REPLICATE, 0);
        conv_cpu_plan_init(&plan, &stencil, CONV_CPU_QUADS_FAST, true);
        if (plan.sums != wanted[i].sums || (wanted[i].separable && !plan.separable) ||
            (wanted[i].products && !plan.products))
            fail_msg("%s at %d bits: sums %d", wanted[i].filter, wanted[i].depth, (int)plan.sums);
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

UNIT_MAIN(NULL, NULL)
