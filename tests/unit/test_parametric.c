// SPDX-License-Identifier: MIT
// The arithmetic that the CPU's kernels choose for parametric filters. tests/cli/test_parametric.py
// has their coefficients and pixels.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/stencil/cpu/cpu_internal.h"

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

static void blurs_are_two_passes_of_bytes(void **state)
{
    (void)state;
    static const char *const filters[] = {"gaussian:1", "gaussian:2.5",    "gaussian:4",
                                          "gaussian:5", "gaussian-fast:5", "blur:7.3"};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct conv_cpu_plan chosen;
        plan(&chosen, filters[i], 8);
        assert_true(chosen.separable);
        assert_int_equal(chosen.sums, CONV_CPU_QUADS);
    }
}

static void passes_are_separable_at_16_bits(void **state)
{
    (void)state;
    struct conv_cpu_plan chosen;
    plan(&chosen, "gaussian:12", 16);
    assert_true(chosen.separable);
    assert_int_equal(chosen.sums, CONV_CPU_WORDS);
}

static void matrices_have_sums_that_float32_holds(void **state)
{
    (void)state;
    static const char *const filters[] = {"unsharp:1,0.8", "unsharp:2,0.8", "log:1.5", "dog:1,1.6",
                                          "motion:31,30"};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct conv_cpu_plan chosen;
        plan(&chosen, filters[i], 8);
        assert_true(chosen.sums <= CONV_CPU_FLOATS);
    }
}

// The doubles of masks with two passes are 20 times slower there.
static void small_masks_have_words_at_16_bits(void **state)
{
    (void)state;
    static const char *const filters[] = {"unsharp:0.8,0.5", "unsharp:1,0.8", "unsharp:1.2,0.8"};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        struct conv_cpu_plan chosen;
        plan(&chosen, filters[i], 16);
        assert_int_equal(chosen.sums, CONV_CPU_WORDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blurs_are_two_passes_of_bytes),
        cmocka_unit_test(passes_are_separable_at_16_bits),
        cmocka_unit_test(matrices_have_sums_that_float32_holds),
        cmocka_unit_test(small_masks_have_words_at_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
