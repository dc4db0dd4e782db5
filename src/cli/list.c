// SPDX-License-Identifier: MIT
// conv list: the built-in filters and the parametric ones, one per line; with --json one object per
// line. conv list banks: the families of filter banks. conv list kernels: what can run filters.
#include <string.h>

#include "cli/commands.h"

#include "conv.h"
#include "report/json.h"

static void print_families(const struct conv_report_options *report)
{
    int count;
    const struct conv_filter_family *families = conv_filter_families(&count);
    for (int i = 0; i < count; i++) {
        if (!report->json) {
            printf("%-20s %s (for example %s)\n", families[i].usage, families[i].summary,
                   families[i].example);
            continue;
        }
        fputs("{\"type\":\"parametric_filter\"", stdout);
        conv_json_member(stdout, "name", families[i].name);
        conv_json_member(stdout, "usage", families[i].usage);
        conv_json_member(stdout, "example", families[i].example);
        conv_json_member(stdout, "summary", families[i].summary);
        puts("}");
    }
}

static int list_kernels(const struct conv_report_options *report)
{
    const char *name, *device;
    for (int i = 0; (name = conv_kernel_name(i, &device)); i++) {
        if (!report->json) {
            printf("%-20s %s%s\n", name, device, i ? "" : ", the definition");
            continue;
        }
        fputs("{\"type\":\"kernel\"", stdout);
        conv_json_member(stdout, "name", name);
        conv_json_member(stdout, "device", device);
        puts("}");
    }
    return conv_errors_flush();
}

int conv_list_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    if (options->operand_count == 1 && strcmp(options->operands[0], "banks") == 0)
        return conv_banks_list(&options->report);
    if (options->operand_count == 1 && strcmp(options->operands[0], "kernels") == 0)
        return list_kernels(&options->report);
    if (options->operand_count > 0) {
        const char *const *operands = (const char *const *)options->operands;
        bool known = strcmp(operands[0], "banks") == 0 || strcmp(operands[0], "kernels") == 0;
        if (known)
            conv_err_set(&err, CONV_ERR_USAGE, "conv list %s takes nothing else, not '%s'",
                         operands[0], operands[1]);
        else
            conv_err_set(&err, CONV_ERR_USAGE, "conv list takes banks or kernels, not '%s'",
                         operands[0]);
        return conv_errors_fail(&err);
    }
    int count;
    const struct conv_filter_builtin *builtins = conv_filter_builtins(&count);
    for (int i = 0; i < count; i++) {
        if (!options->report.json) {
            printf("%-20s %s\n", builtins[i].name, builtins[i].summary);
            continue;
        }
        fputs("{\"type\":\"filter\"", stdout);
        conv_json_member(stdout, "name", builtins[i].name);
        conv_json_member(stdout, "family", builtins[i].family);
        conv_json_member(stdout, "summary", builtins[i].summary);
        puts("}");
    }
    print_families(&options->report);
    return conv_errors_flush();
}
