// SPDX-License-Identifier: MIT
// Times the variants on one thread (one stream), beside a copy of the same bytes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "check_kernels.h"

#define RUNS 21
#define SLOW_NS 200000000 // three runs of variants that take longer (the reference) are enough

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double time_variant(const struct conv_variant *variant, const struct check_case *c,
                           void *scratch)
{
    static struct conv_stencil_plan plan;
    struct conv_stencil_batch batch = {
        .planes = c->planes, .count = c->count, .cpu.scratch = scratch};
    conv_stencil_plan_init(&plan, variant, &c->stencil, NULL);
    uint64_t times[RUNS];
    int runs = 0;
    for (int r = 0; r <= RUNS && runs < RUNS; r++) {
        uint64_t start = conv_clock_ns();
        variant->run(&plan, &batch);
        times[runs] = conv_clock_ns() - start;
        if (r > 0 || times[0] > SLOW_NS) // the first run warms up
            runs++;
        if (runs == 3 && times[0] > SLOW_NS)
            break;
    }
    qsort(times, (size_t)runs, sizeof times[0], compare_times);
    return (double)times[runs / 2] * 1e-6;
}

static double time_copy(const struct check_case *c)
{
    uint64_t times[RUNS];
    for (int r = 0; r < RUNS; r++) {
        uint64_t start = conv_clock_ns();
        for (int p = 0; p < c->count; p++)
            memcpy(c->planes[p].dst, c->planes[p].src, c->src[p].size);
        times[r] = conv_clock_ns() - start;
    }
    qsort(times, RUNS, sizeof times[0], compare_times);
    return (double)times[RUNS / 2] * 1e-6;
}

static void print_line(const char *name, const struct check_case *c, double ms, double copy_ms,
                       double reference_ms)
{
    double pixels = (double)c->planes[0].width * c->planes[0].height;
    double bytes = 2 * pixels * c->count * (c->stencil.depth / 8);
    printf("  %-18s %9.3f ms %9.1f Mpix/s %8.2f GB/s %6.3f of a copy", name, ms, pixels / ms / 1e3,
           bytes / ms / 1e6, copy_ms / ms);
    if (reference_ms > 0)
        printf(" %9.1f x reference", reference_ms / ms);
    printf("\n");
    fflush(stdout);
}

static void bench_cpu(struct check_case *c, unsigned have, const char *only)
{
    int count;
    const struct conv_variant *const *variants = conv_stencil_variants(&count);
    double copy_ms = time_copy(c), reference_ms = time_variant(variants[count - 1], c, NULL);
    print_line("memcpy", c, copy_ms, copy_ms, 0);
    print_line(variants[count - 1]->name, c, reference_ms, copy_ms, reference_ms);
    for (int r = count - 2; r >= 0; r--) {
        const struct conv_variant *variant = variants[r];
        if (variant->place != CONV_ON_CPU || (variant->needs & ~have) ||
            (variant->can && !variant->can(&c->stencil)) ||
            (only && strcmp(only, variant->name) != 0))
            continue;
        static struct conv_stencil_plan plan;
        conv_stencil_plan_init(&plan, variant, &c->stencil, NULL);
        size_t size = conv_stencil_plan_scratch(&plan, c->planes[0].width);
        void *scratch = aligned_alloc(64, (size + 64) / 64 * 64);
        if (scratch)
            print_line(variant->name, c, time_variant(variant, c, scratch), copy_ms, reference_ms);
        free(scratch);
    }
}

#if CONV_HAVE_CUDA
static int bench_cuda(struct check_case *c, int capability, const char *only)
{
    int count;
    const struct conv_variant *const *variants = conv_stencil_variants(&count);
    bool copied = false;
    for (int r = count - 1; r >= 0; r--) {
        const struct conv_variant *variant = variants[r];
        double ms, copy_ms;
        if (variant->place != CONV_ON_CUDA || variant->needs > (unsigned)capability ||
            (variant->can && !variant->can(&c->stencil)) ||
            (only && strcmp(only, variant->name) != 0))
            continue;
        if (!check_cuda_time(variant, c, RUNS, &ms, &copy_ms))
            return 1;
        if (!copied)
            print_line("device copy", c, copy_ms, copy_ms, 0);
        copied = true;
        print_line(variant->name, c, ms, copy_ms, 0);
    }
    return 0;
}
#endif

int check_bench_run(unsigned have, bool cpu, int capability, const char *only)
{
    static const struct conv_filter filters[] = {
        {.name = "emboss 3x3",
         .width = 3,
         .height = 3,
         .scale = 1,
         .coef = {-2, -1, 0, -1, 1, 1, 0, 1, 2}},
        {.name = "box 3x3 / 9",
         .width = 3,
         .height = 3,
         .scale = 9,
         .coef = {1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {.name = "gaussian 5x5 / 273",
         .width = 5,
         .height = 5,
         .scale = 273,
         .coef = {1,  4, 7, 4,  1,  4,  16, 26, 16, 4, 7, 26, 41,
                  26, 7, 4, 16, 26, 16, 4,  1,  4,  7, 4, 1}},
        {.name = "gaussian 5x5 / 256",
         .width = 5,
         .height = 5,
         .scale = 256,
         .coef = {1,  4, 6, 4,  1,  4,  16, 24, 16, 4, 6, 24, 36,
                  24, 6, 4, 16, 24, 16, 4,  1,  4,  6, 4, 1}},
        {.name = "real 3x3",
         .width = 3,
         .height = 3,
         .scale = 1,
         .coef = {.05, .1, .05, .1, .4, .1, .05, .1, .05}},
    };
    int failed = 0;
    for (size_t f = 0; f < sizeof filters / sizeof filters[0] && !failed; f++) {
        for (int depth = 8; depth <= 16; depth += 8) {
            struct check_case c;
            check_case_init_bench(&c, &filters[f], depth, 2048, 2048, 3);
            printf("%s, 2048x2048 x 3, %d bits, replicate\n", filters[f].name, depth);
            if (cpu)
                bench_cpu(&c, have, only);
#if CONV_HAVE_CUDA
            if (capability)
                failed = bench_cuda(&c, capability, only);
#else
            (void)capability;
#endif
            check_case_free(&c);
        }
    }
    return failed;
}
