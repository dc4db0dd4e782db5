// SPDX-License-Identifier: MIT
// conv list | show FILTER | devices: the filters, one filter, the machine. With --json: one object
// per filter; one for the machine.
#include "cli/commands.h"

#include "backend/backend.h"
#include "base/features.h"
#include "base/limits.h"
#include "kernels/stencil/stencil.h"
#include "report/json.h"
#include "report/report.h"

static void print_string(const char *lead, const char *text)
{
    fputs(lead, stdout);
    conv_json_string(stdout, text);
}

static void print_numbers(const char *lead, const double *numbers, int count)
{
    fputs(lead, stdout);
    for (int i = 0; i < count; i++)
        printf("%s%.17g", i ? "," : "[", numbers[i]);
    putchar(']');
}

// --- list ----------------------------------------------------------------------------------------

int conv_list_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    if (conv_commands_check_operands(options, &err))
        return conv_commands_fail(&err);
    int count;
    const struct conv_filter_builtin *builtins = conv_filter_builtins(&count);
    for (int i = 0; i < count; i++) {
        if (!options->json) {
            printf("%-12s %s\n", builtins[i].name, builtins[i].summary);
            continue;
        }
        print_string("{\"type\":\"filter\",\"name\":", builtins[i].name);
        print_string(",\"family\":", builtins[i].family);
        print_string(",\"summary\":", builtins[i].summary);
        puts("}");
    }
    return conv_commands_flush();
}

// --- show ----------------------------------------------------------------------------------------

static void print_matrix(const struct conv_filter *filter)
{
    for (int j = 0; j < filter->height; j++) {
        printf("  %s", j ? "            " : "kernel      ");
        for (int i = 0; i < filter->width; i++)
            printf(" %5.6g", filter->coef[j * filter->width + i]);
        putchar('\n');
    }
}

// The kernels that the backend's first device runs the filter with.
static void print_variant(const struct conv_filter *filter, const struct conv_options *options,
                          const struct conv_backend_ops *ops)
{
    struct conv_stencil stencil;
    struct conv_device_info info;
    struct conv_err err = {0};
    int count;
    printf("  on %-9s", ops->title);
    if (ops->devices(&info, 1, &count, &err)) {
        printf(" no: %s\n", err.text);
        return;
    }
    for (int depth = 8; depth <= 16; depth += 8) {
        conv_stencil_init(&stencil, filter, depth, options->border, options->border_value);
        const struct conv_variant *variant =
            conv_stencil_pick(&stencil, NULL, ops->place, info.capability, options->variant);
        printf("%s %s (%d bits)", depth == 8 ? "" : ",", variant ? variant->name : "none", depth);
    }
    putchar('\n');
}

static void print_filter(const struct conv_filter *filter, const struct conv_options *options)
{
    double column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    bool exact = conv_filter_is_exact(filter);
    conv_report_print_path(stdout, filter->name); // a file's
    putchar('\n');
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
    for (int i = 0; i < CONV_BACKENDS; i++)
        print_variant(filter, options, options->backends[i]);
}

static void print_variant_json(const struct conv_filter *filter, const struct conv_options *options,
                               const struct conv_backend_ops *ops)
{
    struct conv_stencil stencil;
    struct conv_device_info info;
    int count;
    if (ops->devices(&info, 1, &count, NULL)) {
        fputs("null", stdout);
        return;
    }
    for (int depth = 8; depth <= 16; depth += 8) {
        conv_stencil_init(&stencil, filter, depth, options->border, options->border_value);
        const struct conv_variant *variant =
            conv_stencil_pick(&stencil, NULL, ops->place, info.capability, options->variant);
        printf("%s\"%d\":", depth == 8 ? "{" : ",", depth);
        if (variant)
            print_string("", variant->name);
        else
            fputs("null", stdout);
    }
    putchar('}');
}

static void print_filter_json(const struct conv_filter *filter, const struct conv_options *options)
{
    double column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    print_string("{\"type\":\"filter\",\"name\":", filter->name);
    printf(",\"width\":%d,\"height\":%d", filter->width, filter->height);
    for (int j = 0; j < filter->height; j++)
        print_numbers(j ? "," : ",\"kernel\":[", filter->coef + j * filter->width, filter->width);
    printf("],\"divisor\":%.17g,\"bias\":%.17g,\"flip\":%s", filter->scale, filter->offset,
           options->filter.flip ? "true" : "false");
    print_string(",\"border\":", conv_filter_border_name(options->border));
    if (options->border == CONV_BORDER_CONSTANT)
        printf(",\"border_value\":%d", options->border_value);
    printf(",\"exact\":%s", conv_filter_is_exact(filter) ? "true" : "false");
    if (conv_filter_is_separable(filter, column, row)) {
        print_numbers(",\"separable\":{\"column\":", column, filter->height);
        print_numbers(",\"row\":", row, filter->width);
        putchar('}');
    } else {
        fputs(",\"separable\":null", stdout);
    }
    for (int i = 0; i < CONV_BACKENDS; i++) {
        printf("%s\"%s\":", i ? "," : ",\"variants\":{", options->backends[i]->name);
        print_variant_json(filter, options, options->backends[i]);
    }
    puts("}}");
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
        options->json ? print_filter_json(&filters[i], options)
                      : print_filter(&filters[i], options);
    return conv_commands_flush();
}

// --- devices -------------------------------------------------------------------------------------

// Words, or with `quoted` the elements of a JSON array.
static void print_features(bool quoted)
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
    const char *lead = quoted ? "\"" : " ";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (have & names[i].bit) {
            printf("%s%s%s", lead, names[i].name, quoted ? "\"" : "");
            lead = quoted ? ",\"" : " ";
        }
}

// What limits the cores; the affinity mask, if nothing tighter does.
static const char *cores_source(const struct conv_limits *limits)
{
    return limits->cores_source[0]                         ? limits->cores_source
           : limits->allowed_cores < limits->machine_cores ? "affinity mask"
                                                           : "no limit";
}

static const char *memory_source(const struct conv_limits *limits)
{
    return limits->memory_source[0] ? limits->memory_source : "no limit";
}

static void print_limits_json(const struct conv_limits *limits)
{
    printf("\"limits\":{\"machine_cores\":%d,\"machine_memory\":%zu,\"memory_used\":%zu",
           limits->machine_cores, limits->physical, limits->memory_used);
    print_string(",\"cores_source\":", cores_source(limits));
    print_string(",\"memory_source\":", memory_source(limits));
    fputs(",\"open_files\":", stdout);
    if (limits->descriptors < SIZE_MAX)
        printf("%zu}", limits->descriptors);
    else
        fputs("null}", stdout);
}

#define MOST_LISTED 64

static void print_gpus_json(const struct conv_backend_ops *ops)
{
    struct conv_device_info info[MOST_LISTED];
    struct conv_err err = {0};
    int count;
    (void)ops->devices(info, MOST_LISTED, &count, &err);
    printf(",\"%s\":[", ops->name);
    for (int i = 0; i < count && i < MOST_LISTED; i++) {
        printf("%s{\"name\":\"%s:%d\"", i ? "," : "", ops->name, i);
        print_string(",\"model\":", info[i].name);
        printf(",\"compute_capability\":\"%u.%u\",\"multiprocessors\":%d,\"memory\":%zu,"
               "\"free\":%zu}",
               info[i].capability / 10, info[i].capability % 10, info[i].multiprocessors,
               info[i].memory, info[i].free);
    }
    printf("],\"%s_error\":", ops->name);
    if (err.status)
        print_string("", err.text);
    else
        fputs("null", stdout);
}

static void print_devices_json(const struct conv_options *options)
{
    const struct conv_limits *limits = conv_limits_at_start();
    printf("{\"type\":\"devices\",\"cpu\":{\"cores\":%d,\"features\":[", limits->cores);
    print_features(true);
    printf("],\"memory\":%zu},", limits->memory);
    print_limits_json(limits);
    for (int i = 0; i < CONV_BACKENDS; i++)
        if (options->backends[i]->place != CONV_ON_CPU)
            print_gpus_json(options->backends[i]);
    puts("}");
}

static void print_gpus(const struct conv_backend_ops *ops)
{
    struct conv_device_info info[MOST_LISTED];
    struct conv_err err = {0};
    int count;
    if (ops->devices(info, MOST_LISTED, &count, &err))
        printf("%-7s none: %s\n", ops->name, err.text);
    for (int i = 0; i < count && i < MOST_LISTED; i++)
        printf("%s:%-2d %s, compute capability %u.%u, %d multiprocessors, %zu of %zu MiB free\n",
               ops->name, i, info[i].name, info[i].capability / 10, info[i].capability % 10,
               info[i].multiprocessors, info[i].free >> 20, info[i].memory >> 20);
}

// Names of groups are somebody else's: control characters do not reach the terminal.
static void print_source(const char *source)
{
    fputs(" (", stdout);
    conv_report_print_path(stdout, source);
    fputs(")\n", stdout);
}

// What keeps the program from using the whole machine, and which setting of which group that is.
static void print_limits(const struct conv_limits *limits)
{
    printf("limits  cores: %d of %d", limits->cores, limits->machine_cores);
    print_source(cores_source(limits));
    printf("        memory: %zu MiB of %zu MiB", limits->memory >> 20, limits->physical >> 20);
    if (conv_limits_memory_is_limited(limits))
        printf(", %zu MiB in use", limits->memory_used >> 20);
    print_source(memory_source(limits));
    if (limits->descriptors < SIZE_MAX)
        printf("        open files: %zu (RLIMIT_NOFILE)\n", limits->descriptors);
}

int conv_devices_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    if (conv_commands_check_operands(options, &err))
        return conv_commands_fail(&err);
    if (options->json) {
        print_devices_json(options);
        return conv_commands_flush();
    }
    for (int i = 0; i < CONV_BACKENDS; i++)
        if (options->backends[i]->place != CONV_ON_CPU)
            print_gpus(options->backends[i]);
    const struct conv_limits *limits = conv_limits_at_start();
    printf("cpu     %d core%s,", limits->cores, limits->cores == 1 ? "" : "s");
    print_features(false);
    printf(", %zu MiB of memory\n", limits->memory >> 20);
    print_limits(limits);
    return conv_commands_flush();
}
