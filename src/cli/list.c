// SPDX-License-Identifier: MIT
// conv list | show FILTER | devices: what there is.
#include "cli/commands.h"

#include "backend/backend.h"
#include "base/cpu.h"
#include "kernels/stencil.h"

int conv_list_main(const struct conv_options *options)
{
    (void)options;
    int count;
    const struct conv_filter_builtin *builtins = conv_filter_builtins(&count);
    for (int i = 0; i < count; i++)
        printf("%-12s %s\n", builtins[i].name, builtins[i].summary);
    return conv_commands_flush();
}

static void print_matrix(const struct conv_filter *filter)
{
    for (int j = 0; j < filter->height; j++) {
        printf("  %s", j ? "            " : "kernel      ");
        for (int i = 0; i < filter->width; i++)
            printf(" %5.6g", filter->coef[j * filter->width + i]);
        putchar('\n');
    }
}

static void print_variant(const struct conv_filter *filter, const struct conv_options *options,
                          enum conv_where where, unsigned have, const char *label)
{
    struct conv_stencil stencil;
    printf("  %s", label);
    for (int depth = 8; depth <= 16; depth += 8) {
        conv_stencil_init(&stencil, filter, depth, options->border, options->border_value);
        const struct conv_variant *variant =
            conv_stencil_pick(&stencil, where, have, options->variant);
        printf("%s %s (%d bits)", depth == 8 ? "" : ",", variant ? variant->name : "none", depth);
    }
    putchar('\n');
}

static void print_filter(const struct conv_filter *filter, const struct conv_options *options)
{
    double column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    bool exact = conv_filter_is_exact(filter);
    printf("%s\n", filter->name);
    printf("  size         %d x %d\n", filter->width, filter->height);
    print_matrix(filter);
    printf("  divisor      %g\n", filter->scale);
    printf("  bias         %g (in 8-bit units; at 16 bits it counts 257-fold)\n", filter->offset);
    printf("  flip         %s\n", options->filter.flip ? "yes: convolution" : "no: correlation");
    printf("  border       %s", conv_filter_border_name(options->border));
    if (options->border == CONV_BORDER_CONSTANT)
        printf(":%d", options->border_value);
    printf("\n  rounding     half to even, once, then clamped to the sample's range\n");
    printf("  exact        %s\n",
           exact ? "yes: all numbers are integers, the result is the rational number, rounded once"
                 : "no: float32, multiply-adds row by row, the same on every device");
    if (conv_filter_is_separable(filter, column, row)) {
        printf("  separable    yes: column");
        for (int j = 0; j < filter->height; j++)
            printf(" %g", column[j]);
        printf(", row");
        for (int i = 0; i < filter->width; i++)
            printf(" %g", row[i]);
        putchar('\n');
    } else {
        printf("  separable    no\n");
    }
    print_variant(filter, options, CONV_ON_CPU, conv_cpu_features(), "on the CPU  ");
    struct conv_device_info info[1];
    struct conv_err err = {0};
    int count = 0;
    if (conv_backend_cuda_devices(info, 1, &count, &err))
        printf("  on CUDA      no: %s\n", err.text);
    else
        print_variant(filter, options, CONV_ON_CUDA, (unsigned)info[0].capability, "on CUDA     ");
}

int conv_show_main(const struct conv_options *options)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int count = 0;
    struct conv_err err = {0};
    if (options->operand_count != 1) {
        conv_err_set(&err, CONV_ERR_USAGE, "conv show takes one filter (conv list shows all)");
        return conv_commands_fail(&err);
    }
    if (conv_commands_parse_chain(options, options->operands[0], filters, &count, &err))
        return conv_commands_fail(&err);
    for (int i = 0; i < count; i++)
        print_filter(&filters[i], options);
    return conv_commands_flush();
}

static void print_features(void)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{CONV_CPU_SSE41, "SSE4.1"},
                 {CONV_CPU_AVX2, "AVX2"},
                 {CONV_CPU_AVX512, "AVX-512"},
                 {CONV_CPU_VNNI, "VNNI"},
                 {CONV_CPU_NEON, "NEON"}};
    unsigned have = conv_cpu_features();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (have & names[i].bit)
            printf(" %s", names[i].name);
}

int conv_devices_main(const struct conv_options *options)
{
    (void)options;
    struct conv_device_info info[64];
    struct conv_err err = {0};
    int count = 0;
    if (conv_backend_cuda_devices(info, 64, &count, &err))
        printf("cuda    none: %s\n", err.text);
    for (int i = 0; i < count && i < 64; i++)
        printf("cuda:%-2d %s, compute capability %d.%d, %d multiprocessors, %zu of %zu MiB free\n",
               i, info[i].name, info[i].capability / 10, info[i].capability % 10,
               info[i].multiprocessors, info[i].free >> 20, info[i].memory >> 20);
    printf("cpu     %d cores,", conv_cpu_count());
    print_features();
    printf(", %zu MiB of memory\n", conv_cpu_memory() >> 20);
    return conv_commands_flush();
}
