// SPDX-License-Identifier: MIT
// Variants with one mistake each, which check_kernels must catch.
#include <stdio.h>

#include "check_kernels.h"

#define SELFTEST_ROUNDS 400
#define SELFTEST_SEED 1

static enum conv_status run_reference(const struct conv_stencil *stencil,
                                      const struct conv_stencil_batch *batch)
{
    static struct conv_stencil_plan plan;
    conv_stencil_plan_init(&plan, &conv_cpu_reference, stencil);
    return conv_cpu_reference.run(&plan, batch);
}

// (2N + 1) / 2d instead of N / d: differs only at ties, if d is even.
static enum conv_status run_half_up(const struct conv_stencil_plan *plan,
                                    const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    struct conv_stencil wrong = *stencil;
    if (stencil->fits_int32 && stencil->divisor % 2 == 0) {
        wrong.divisor *= 2;
        wrong.bias = 2 * wrong.bias + 1;
        for (int i = 0; i < wrong.width * wrong.height; i++)
            wrong.icoef[i] *= 2;
    }
    return run_reference(&wrong, batch);
}

static enum conv_status run_wrong_last_column(const struct conv_stencil_plan *plan,
                                              const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    run_reference(stencil, batch);
    const struct conv_stencil_plane *plane = &batch->planes[0];
    int bytes = plane->width * (stencil->depth / 8);
    for (int y = 0; y < plane->height; y++)
        plane->dst[y * plane->dst_stride + bytes - 1] ^= 1;
    return CONV_OK;
}

static enum conv_status run_write_after(const struct conv_stencil_plan *plan,
                                        const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    run_reference(stencil, batch);
    const struct conv_stencil_plane *plane = &batch->planes[batch->count - 1];
    plane->dst[plane->height * plane->dst_stride] = 0;
    return CONV_OK;
}

// Right in the interior, wrong at the border.
static enum conv_status run_wrong_border(const struct conv_stencil_plan *plan,
                                         const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    struct conv_stencil wrong = *stencil;
    if (wrong.border == CONV_BORDER_REFLECT)
        wrong.border = CONV_BORDER_REFLECT101;
    return run_reference(&wrong, batch);
}

static const struct conv_variant wrong_variants[] = {
    {.name = "rounds half up", .run = run_half_up},
    {.name = "wrong last column", .run = run_wrong_last_column},
    {.name = "writes after the image", .run = run_write_after},
    {.name = "reflect for reflect101", .run = run_wrong_border},
};

bool check_selftest(void)
{
    bool all = true;
    for (size_t w = 0; w < sizeof wrong_variants / sizeof wrong_variants[0]; w++) {
        bool caught = false;
        for (int round = 0; round < SELFTEST_ROUNDS && !caught; round++) {
            struct check_case c;
            check_case_init(&c, SELFTEST_SEED + (uint64_t)round);
            if (c.stencil.decimated.step) {
                check_case_free(&c);
                continue;
            }
            if (!check_case_expect(&c, true)) {
                check_case_free(&c);
                return false;
            }
            check_case_clear(&c);
            check_cpu_run(&wrong_variants[w], &c);
            caught = !check_case_compare(&c, wrong_variants[w].name, true);
            check_case_free(&c);
        }
        printf("selftest: a variant that %s%s: %s\n",
               w == 1   ? "has a "
               : w == 3 ? "takes "
                        : "",
               wrong_variants[w].name, caught ? "caught" : "NOT CAUGHT");
        all = all && caught;
    }
    return all;
}
