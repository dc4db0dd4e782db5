// SPDX-License-Identifier: MIT
// conv list: the built-in filters and the parametric ones, one per line; with --json one object per
// line. conv list banks: the families of filter banks. conv list kernels: what can run filters.
//
// conv show FILTER: what a filter computes, and which variants run it on this machine; with --json
// one object per filter of the chain. For a filter bank its maps, its filters and their
// coefficients; after the filter, if the name is both.
#include "cli/commands.h"

#include <stdarg.h>
#include <string.h>

#include "base/features.h"
#include "base/limits.h"
#include "conv.h"
#include "engine/engine.h"
#include "filter/bank.h"
#include "kernels/stencil/stencil.h"
#include "report/json.h"

// --- list ----------------------------------------------------------------------------------------

// A line of two columns, or an object of names and texts, which end with NULL.
static void print_row(bool json, const char *left, const char *right, const char *type, ...)
{
    va_list members;
    va_start(members, type);
    if (json)
        printf("{\"type\":\"%s\"", type);
    for (const char *name; json && (name = va_arg(members, const char *));)
        conv_json_member(stdout, name, va_arg(members, const char *));
    json ? puts("}") : printf("%-34s %s\n", left, right);
    va_end(members);
}

static void print_families(bool json, bool banks)
{
    int count;
    const struct conv_filter_family *families =
        banks ? conv_bank_families(&count) : conv_filter_families(&count);
    for (int i = 0; i < count; i++) {
        const struct conv_filter_family *row = &families[i];
        char right[200], numbers[200];
        bool plain = strcmp(row->usage, row->example) == 0;
        if (!banks)
            conv_filter_describe_numbers(numbers, sizeof numbers, row);
        snprintf(right, sizeof right, "%s%s%s%s", row->summary, plain ? "" : " (for example ",
                 plain ? "" : row->example, plain ? "" : ")");
        print_row(json, row->usage, right, banks ? "bank" : "parametric_filter", "name", row->name,
                  "usage", row->usage, "example", row->example, "summary", row->summary,
                  banks ? NULL : "numbers", numbers, NULL);
        if (!banks && !json)
            printf("%-34s %s\n", "", numbers);
    }
}

static void list_kernels(bool json)
{
    const char *name, *device;
    for (int i = 0; (name = conv_kernel_name(i, &device)); i++) {
        char right[40];
        snprintf(right, sizeof right, "%s%s", device, i ? "" : ", the definition");
        print_row(json, name, right, "kernel", "name", name, "device", device, NULL);
    }
}

static void list_filters(bool json)
{
    int count;
    const struct conv_filter_builtin *builtins = conv_filter_builtins(&count);
    for (int i = 0; i < count; i++) {
        const struct conv_filter_builtin *row = &builtins[i];
        print_row(json, row->name, row->summary, "filter", "name", row->name, "family", row->family,
                  "summary", row->summary, NULL);
    }
    print_families(json, false);
}

int conv_list_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    bool json = options->report.json;
    const char *what = options->operand_count ? options->operands[0] : "";
    bool banks = strcmp(what, "banks") == 0, kernels = strcmp(what, "kernels") == 0;
    if (!banks && !kernels && *what && strcmp(what, "filters") != 0)
        conv_err_usage(&err, "conv list takes filters, banks or kernels, not '%s'", what);
    else if (options->operand_count > 1)
        conv_err_usage(&err, "conv list %s takes nothing else, not '%s'", what,
                       options->operands[1]);
    else if (banks)
        print_families(json, true);
    else if (kernels)
        list_kernels(json);
    else
        list_filters(json);
    return err.status ? conv_errors_fail(&err) : conv_errors_flush();
}

// --- show ----------------------------------------------------------------------------------------

static void print_numbers(const char *lead, const double *numbers, int count)
{
    fputs(lead, stdout);
    for (int i = 0; i < count; i++)
        printf("%s%.17g", i ? "," : "[", numbers[i] + 0.0);
    putchar(']');
}

static void print_line(const char *lead, const double *numbers, int count)
{
    for (int i = 0; i < count; i++)
        printf("%s %.9g", i ? "" : lead, numbers[i]);
}

static void print_matrix(const struct conv_filter *filter)
{
    int width = 5;
    for (int k = 0; k < filter->width * filter->height; k++) {
        int length = snprintf(NULL, 0, "%.10g", filter->coef[k]);
        width = length > width ? length : width;
    }
    for (int j = 0; j < filter->height; j++) {
        printf("  %s", j ? "            " : "kernel      ");
        for (int i = 0; i < filter->width; i++)
            printf(" %*.10g", width, filter->coef[j * filter->width + i] + 0.0); // no -0
        putchar('\n');
    }
}

// The variant that a device runs for planes of that depth; NULL if none can.
static const struct conv_variant *pick(const struct conv_filter *filter,
                                       const struct conv_options *options, enum conv_place place,
                                       const struct conv_device_info *info, int depth)
{
    struct conv_stencil stencil;
    conv_stencil_init(&stencil, filter, depth, options->filter.border,
                      options->filter.border_value);
    return conv_stencil_pick(&stencil, conv_options_group_bytes(&options->machine, true), place,
                             info->offers, options->machine.variant);
}

// The kernels that the backend's first device runs the filter with.
static void print_variant(const struct conv_filter *filter, const struct conv_options *options,
                          const struct conv_device_ops *ops)
{
    struct conv_device_info info;
    struct conv_err err = {0};
    int count;
    printf("  on %-9s", ops->title);
    if (ops->devices(&info, 1, &count, &err)) {
        printf(" no: %s\n", err.text);
        return;
    }
    for (int depth = 8; depth <= 16; depth += 8) {
        const struct conv_variant *variant = pick(filter, options, ops->place, &info, depth);
        printf("%s %s (%d bits)", depth == 8 ? "" : ",", variant ? variant->name : "none", depth);
    }
    putchar('\n');
}

// The lines that only parametric filters have.
static void print_deviation(const struct conv_filter *filter)
{
    if (conv_filter_family_of(filter->name))
        printf("  ideal        within %.3g of 255 of the ideal results before rounding%s, on any "
               "image, at its border as well\n",
               filter->deviation, filter->threshold > 0 ? " and threshold" : "");
}

// What a matrix says of other filters: how a large Gaussian is computed.
static void print_decimated(const struct conv_decimated *d)
{
    int down = 4 * d->step - 1, line = 2 * d->radius + 1;
    printf("  method       reduced to one sample in %d rows and columns, by weights of %d x %d\n"
           "               pixels; filtered there by %d x %d; enlarged by 4 x 4\n",
           d->step, down, down, line, line);
    if (d->amount)
        printf("  amount       %d / %d\n", (int)d->amount, CONV_DECIMATED_AMOUNT);
}

static void print_kernel(const struct conv_filter *filter)
{
    printf("  size         %d x %d\n", filter->width, filter->height);
    print_matrix(filter);
    if (filter->magnitude)
        puts("  magnitude    yes: sqrt(gx * gx + gy * gy), gx by this kernel, gy by its transpose");
    printf("  divisor      %.10g\n", filter->scale);
}

static void print_exactness(const struct conv_filter *filter)
{
    double column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    bool exact = conv_filter_is_exact(filter);
    printf("  exact        %s\n",
           filter->decimated.step
               ? "no: integers that are rounded after each step, the same on every device"
           : filter->magnitude
               ? "gx and gy; each operation after them is rounded to float32, on every device"
           : exact
               ? "yes: all numbers are integers, the result is the rational number, rounded once"
               : "no: float32, multiply-adds row by row, the same on every device");
    if (!conv_filter_is_separable(filter, column, row)) {
        printf("  separable    %s\n", filter->decimated.step ? "yes, each step" : "no");
        return;
    }
    print_line("  separable    yes: column", column, filter->height);
    print_line(", row", row, filter->width);
    putchar('\n');
}

static void print_filter(const struct conv_filter *filter, const struct conv_options *options)
{
    conv_text_terminal(stdout, filter->name); // may be a file name
    putchar('\n');
    if (filter->decimated.step)
        print_decimated(&filter->decimated);
    else
        print_kernel(filter);
    if (filter->threshold > 0)
        printf("  threshold    %g (in 8-bit units): a sample that would change by less stays\n",
               filter->threshold);
    printf("  bias         %g (in 8-bit units; at 16 bits it counts 257-fold)\n", filter->offset);
    printf("  flip         %s\n",
           options->filter.settings.flip ? "yes: convolution" : "no: correlation");
    printf("  border       %s", conv_filter_border_name(options->filter.border));
    if (options->filter.border == CONV_BORDER_CONSTANT)
        printf(":%d", options->filter.border_value);
    printf("\n  rounding     %s, then clamped to the sample's range\n",
           filter->decimated.step ? "after each step, halves up" : "half to even, once");
    print_exactness(filter);
    print_deviation(filter);
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++)
        print_variant(filter, options, options->machine.backends[i]);
    if (conv_bank_accepts(filter->name))
        printf("  filter bank  conv layer takes the name, too, as the bank below\n");
}

static void print_variant_json(const struct conv_filter *filter, const struct conv_options *options,
                               const struct conv_device_ops *ops)
{
    struct conv_device_info info;
    int count;
    if (ops->devices(&info, 1, &count, NULL)) {
        fputs("null", stdout);
        return;
    }
    for (int depth = 8; depth <= 16; depth += 8) {
        const struct conv_variant *variant = pick(filter, options, ops->place, &info, depth);
        printf("%s\"%d\":", depth == 8 ? "{" : ",", depth);
        conv_json_string(stdout, variant ? variant->name : NULL);
    }
    putchar('}');
}

static void print_kernel_json(const struct conv_filter *filter)
{
    printf(",\"width\":%d,\"height\":%d", filter->width, filter->height);
    for (int j = 0; j < filter->height; j++)
        print_numbers(j ? "," : ",\"kernel\":[", filter->coef + j * filter->width, filter->width);
    printf("],\"divisor\":%.17g", filter->scale);
}

static void print_integers(const char *lead, const int32_t *numbers, int count)
{
    fputs(lead, stdout);
    for (int i = 0; i < count; i++)
        printf("%s%d", i ? "," : "[", (int)numbers[i]);
    putchar(']');
}

static void print_decimated_json(const struct conv_filter *filter)
{
    const struct conv_decimated *d = &filter->decimated;
    printf(",\"step\":%d,\"reach\":%d,\"amount\":%.17g", d->step, conv_decimated_reach(d),
           (double)d->amount / CONV_DECIMATED_AMOUNT);
    print_integers(",\"down\":", d->down, 2 * d->step);
    print_integers(",\"line\":", d->line, d->radius + 1);
    for (int i = 0; i < d->step; i++)
        print_integers(i ? "," : ",\"up\":[", d->up[i], 4);
    putchar(']');
}

static void print_filter_json(const struct conv_filter *filter, const struct conv_options *options)
{
    double column[CONV_FILTER_MAX_SIDE], row[CONV_FILTER_MAX_SIDE];
    fputs("{\"type\":\"filter\"", stdout);
    conv_json_member(stdout, "name", filter->name);
    if (filter->decimated.step)
        print_decimated_json(filter);
    else
        print_kernel_json(filter);
    printf(",\"bias\":%.17g,\"flip\":%s", filter->offset,
           options->filter.settings.flip ? "true" : "false");
    conv_json_member(stdout, "border", conv_filter_border_name(options->filter.border));
    if (options->filter.border == CONV_BORDER_CONSTANT)
        printf(",\"border_value\":%d", options->filter.border_value);
    printf(",\"magnitude\":%s", filter->magnitude ? "true" : "false");
    if (filter->threshold > 0)
        printf(",\"threshold\":%.17g", filter->threshold);
    if (conv_filter_family_of(filter->name))
        printf(",\"deviation\":%.17g", filter->deviation);
    printf(",\"exact\":%s", conv_filter_is_exact(filter) ? "true" : "false");
    if (conv_filter_is_separable(filter, column, row)) {
        print_numbers(",\"separable\":{\"column\":", column, filter->height);
        print_numbers(",\"row\":", row, filter->width);
        putchar('}');
    } else {
        fputs(",\"separable\":null", stdout);
    }
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++) {
        printf("%s\"%s\":", i ? "," : ",\"variants\":{", options->machine.backends[i]->name);
        print_variant_json(filter, options, options->machine.backends[i]);
    }
    puts("}}");
}

// --- filter banks --------------------------------------------------------------------------------

static const char *combine_name(enum conv_bank_combine combine)
{
    static const char *const names[] = {[CONV_BANK_ONLY] = "response",
                                        [CONV_BANK_MAGNITUDE] = "magnitude",
                                        [CONV_BANK_MAX] = "max"};
    return names[combine];
}

static void print_bank_filter(const struct conv_bank_filter *filter)
{
    printf("  %s: %d x %d", filter->label, filter->width, filter->height);
    if (filter->terms)
        printf(", separable into %d term%s", filter->terms, filter->terms > 1 ? "s" : "");
    putchar('\n');
    for (int t = 0; t < filter->terms; t++) {
        print_line("    column", filter->columns + t * filter->height, filter->height);
        print_line("\n    row   ", filter->rows + t * filter->width, filter->width);
        putchar('\n');
    }
    for (int j = 0; j < filter->height && !filter->terms; j++, putchar('\n'))
        print_line("   ", filter->coef + j * filter->width, filter->width);
}

static void print_bank(const struct conv_bank *bank)
{
    printf("%s: a bank of %d filter%s and %d map%s\n", bank->name, bank->filter_count,
           bank->filter_count == 1 ? "" : "s", bank->map_count, bank->map_count == 1 ? "" : "s");
    for (int m = 0; m < bank->map_count; m++) {
        const struct conv_bank_map *map = &bank->maps[m];
        printf("  map %-3d %-16s %s of %s", m, map->label, combine_name(map->combine),
               bank->filters[map->first].label);
        if (map->count > 1)
            printf("%s%s", map->count == 2 ? " and " : " to ",
                   bank->filters[map->first + map->count - 1].label);
        putchar('\n');
    }
    puts("filters, applied to samples from 0 to 1 as correlation, in float32:");
    for (int i = 0; i < bank->filter_count; i++)
        print_bank_filter(&bank->filters[i]);
}

static void print_bank_filter_json(const struct conv_bank_filter *filter)
{
    conv_json_member(stdout, "label", filter->label);
    printf(",\"width\":%d,\"height\":%d,\"terms\":[", filter->width, filter->height);
    for (int t = 0; t < filter->terms; t++) {
        print_numbers(t ? ",{\"column\":" : "{\"column\":", filter->columns + t * filter->height,
                      filter->height);
        print_numbers(",\"row\":", filter->rows + t * filter->width, filter->width);
        putchar('}');
    }
    putchar(']');
    for (int j = 0; j < filter->height; j++)
        print_numbers(j ? "," : ",\"kernel\":[", filter->coef + j * filter->width, filter->width);
    puts("]}");
}

// One line per filter and per map, so that no line holds the whole bank.
static void print_bank_json(const struct conv_bank *bank)
{
    for (int m = 0; m < bank->map_count; m++) {
        const struct conv_bank_map *map = &bank->maps[m];
        fputs("{\"type\":\"map\"", stdout);
        conv_json_member(stdout, "bank", bank->name);
        printf(",\"index\":%d", m);
        conv_json_member(stdout, "label", map->label);
        conv_json_member(stdout, "combine", combine_name(map->combine));
        printf(",\"first\":%d,\"count\":%d}\n", map->first, map->count);
    }
    for (int i = 0; i < bank->filter_count; i++) {
        fputs("{\"type\":\"bank_filter\"", stdout);
        conv_json_member(stdout, "bank", bank->name);
        printf(",\"index\":%d", i);
        print_bank_filter_json(&bank->filters[i]);
    }
}

static int show_bank(const struct conv_options *options)
{
    struct conv_bank bank;
    struct conv_err err = {0};
    if (conv_bank_parse(&bank, options->operands[0], &err))
        return conv_errors_fail(&err);
    options->report.json ? print_bank_json(&bank) : print_bank(&bank);
    conv_bank_free(&bank);
    return conv_errors_flush();
}

// --- the command ---------------------------------------------------------------------------------

int conv_show_main(const struct conv_options *options)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int count = 0;
    struct conv_err err = {0};
    if (options->operand_count != 1) {
        conv_err_usage(&err,
                       "conv show takes one filter or filter bank (conv list and conv list banks "
                       "show all)");
        return conv_errors_fail(&err);
    }
    const char *name = options->operands[0];
    if (conv_commands_parse_chain(options, name, filters, &count, &err)) {
        bool is_bank = conv_bank_is_name(name) && !conv_filter_family_of(name);
        return is_bank || conv_bank_accepts(name) ? show_bank(options) : conv_errors_fail(&err);
    }
    for (int i = 0; i < count; i++)
        options->report.json ? print_filter_json(&filters[i], options)
                             : print_filter(&filters[i], options);
    return conv_bank_accepts(name) ? show_bank(options) : conv_errors_flush();
}

// --- conv devices --------------------------------------------------------------------------------
// The GPUs, the processor and what limits its use; with --json one object.

// Prints words, or with `quoted` the elements of a JSON array.
static void print_features(bool quoted)
{
    size_t count;
    const struct conv_cpu_feature_row *rows = conv_cpu_feature_rows(&count);
    unsigned have = conv_cpu_features();
    const char *lead = quoted ? "\"" : " ";
    for (size_t i = 0; i < count; i++)
        if (have & rows[i].bit) {
            printf("%s%s%s", lead, rows[i].title, quoted ? "\"" : "");
            lead = quoted ? ",\"" : " ";
        }
}

// The limit that applies to the cores: a quota, or else the affinity mask.
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
    conv_json_member(stdout, "cores_source", cores_source(limits));
    conv_json_member(stdout, "memory_source", memory_source(limits));
    fputs(",\"open_files\":", stdout);
    if (limits->descriptors < SIZE_MAX)
        printf("%zu}", limits->descriptors);
    else
        fputs("null}", stdout);
}

#define MOST_LISTED 64

// Fills info[MOST_LISTED], what is free included.
static enum conv_status list_gpus(const struct conv_device_ops *ops, struct conv_device_info *info,
                                  int *count, struct conv_err *err)
{
    enum conv_status status = ops->devices(info, MOST_LISTED, count, err);
    for (int i = 0; i < *count && i < MOST_LISTED && ops->read_memory && !status; i++)
        status = ops->read_memory(&info[i], i, err);
    return status;
}

static void print_gpus_json(const struct conv_device_ops *ops)
{
    struct conv_device_info info[MOST_LISTED];
    struct conv_err err = {0};
    int count;
    (void)list_gpus(ops, info, &count, &err);
    printf(",\"%s\":[", ops->name);
    for (int i = 0; i < count && i < MOST_LISTED; i++) {
        printf("%s{\"name\":\"%s:%d\"", i ? "," : "", ops->name, i);
        conv_json_member(stdout, "model", info[i].name);
        printf(",\"compute_capability\":\"%u.%u\",\"multiprocessors\":%d,\"memory\":%zu,"
               "\"free\":%zu}",
               info[i].capability / 10, info[i].capability % 10, info[i].multiprocessors,
               info[i].memory, info[i].free);
    }
    char name[32];
    snprintf(name, sizeof name, "%s_error", ops->name);
    putchar(']');
    conv_json_member(stdout, name, err.status ? err.text : NULL);
}

static void print_devices_json(const struct conv_machine_options *machine)
{
    const struct conv_limits *limits = machine->limits;
    printf("{\"type\":\"devices\",\"cpu\":{\"cores\":%d,\"features\":[", limits->cores);
    print_features(true);
    printf("],\"memory\":%zu},", limits->memory);
    print_limits_json(limits);
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++)
        if (machine->backends[i]->place != CONV_ON_CPU)
            print_gpus_json(machine->backends[i]);
    puts("}");
}

static void print_gpus(const struct conv_device_ops *ops)
{
    struct conv_device_info info[MOST_LISTED];
    struct conv_err err = {0};
    int count;
    if (list_gpus(ops, info, &count, &err))
        printf("%-7s none: %s\n", ops->name, err.text);
    for (int i = 0; i < count && i < MOST_LISTED; i++)
        printf("%s:%-2d %s, compute capability %u.%u, %d multiprocessors, %zu of %zu MiB free\n",
               ops->name, i, info[i].name, info[i].capability / 10, info[i].capability % 10,
               info[i].multiprocessors, info[i].free >> 20, info[i].memory >> 20);
}

// Group names are not ours: control characters are escaped.
static void print_source(const char *source)
{
    fputs(" (", stdout);
    conv_text_terminal(stdout, source);
    fputs(")\n", stdout);
}

// The limits on cores, memory and files, and the setting that each comes from.
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
        return conv_errors_fail(&err);
    if (options->report.json) {
        print_devices_json(&options->machine);
        return conv_errors_flush();
    }
    for (int i = 0; i < CONV_ENGINE_DEVICES; i++)
        if (options->machine.backends[i]->place != CONV_ON_CPU)
            print_gpus(options->machine.backends[i]);
    const struct conv_limits *limits = options->machine.limits;
    printf("cpu     %d core%s,", limits->cores, limits->cores == 1 ? "" : "s");
    print_features(false);
    printf(", %zu MiB of memory\n", limits->memory >> 20);
    print_limits(limits);
    return conv_errors_flush();
}
