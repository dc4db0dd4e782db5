// SPDX-License-Identifier: MIT
// conv list: the built-in filters and the parametric ones, one per line; with --json one object per
// line. conv list banks: the families of filter banks. conv list kernels: what can run filters.
#include <string.h>

#include "cli/commands.h"
#include "conv.h"
#include "filter/bank.h"
#include "report/json.h"

#define MOST_MEMBERS 4

// A line of two columns, or an object.
static void print_row(bool json, const char *left, const char *right, const char *type,
                      const char *const members[MOST_MEMBERS][2])
{
    if (!json) {
        printf("%-20s %s\n", left, right);
        return;
    }
    printf("{\"type\":\"%s\"", type);
    for (int i = 0; i < MOST_MEMBERS && members[i][0]; i++)
        conv_json_member(stdout, members[i][0], members[i][1]);
    puts("}");
}

static void print_families(bool json, const char *type, const struct conv_filter_family *families,
                           int count)
{
    for (int i = 0; i < count; i++) {
        const struct conv_filter_family *row = &families[i];
        const char *const members[MOST_MEMBERS][2] = {{"name", row->name},
                                                      {"usage", row->usage},
                                                      {"example", row->example},
                                                      {"summary", row->summary}};
        char right[200];
        bool plain = strcmp(row->usage, row->example) == 0;
        snprintf(right, sizeof right, "%s%s%s%s", row->summary, plain ? "" : " (for example ",
                 plain ? "" : row->example, plain ? "" : ")");
        print_row(json, row->usage, right, type, members);
    }
}

static void list_kernels(bool json)
{
    const char *name, *device;
    for (int i = 0; (name = conv_kernel_name(i, &device)); i++) {
        const char *const members[MOST_MEMBERS][2] = {{"name", name}, {"device", device}};
        char right[40];
        snprintf(right, sizeof right, "%s%s", device, i ? "" : ", the definition");
        print_row(json, name, right, "kernel", members);
    }
}

static void list_filters(bool json)
{
    int count;
    const struct conv_filter_builtin *builtins = conv_filter_builtins(&count);
    for (int i = 0; i < count; i++) {
        const struct conv_filter_builtin *row = &builtins[i];
        const char *const members[MOST_MEMBERS][2] = {
            {"name", row->name}, {"family", row->family}, {"summary", row->summary}};
        print_row(json, row->name, row->summary, "filter", members);
    }
    const struct conv_filter_family *families = conv_filter_families(&count);
    print_families(json, "parametric_filter", families, count);
}

int conv_list_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    bool json = options->report.json;
    const char *what = options->operand_count ? options->operands[0] : "";
    bool banks = strcmp(what, "banks") == 0, kernels = strcmp(what, "kernels") == 0;
    int count;
    const struct conv_filter_family *families = conv_bank_families(&count);
    if (options->operand_count > 0 && !banks && !kernels)
        conv_err_set(&err, CONV_ERR_USAGE, "conv list takes banks or kernels, not '%s'", what);
    else if (options->operand_count > 1)
        conv_err_set(&err, CONV_ERR_USAGE, "conv list %s takes nothing else, not '%s'", what,
                     options->operands[1]);
    else if (banks)
        print_families(json, "bank", families, count);
    else if (kernels)
        list_kernels(json);
    else
        list_filters(json);
    return err.status ? conv_errors_fail(&err) : conv_errors_flush();
}
