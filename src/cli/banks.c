// SPDX-License-Identifier: MIT
// conv list banks, and conv show of a filter bank: its maps, its filters and their coefficients.
#include <string.h>

#include "cli/commands.h"
#include "filter/bank.h"
#include "report/json.h"

int conv_banks_list(const struct conv_report_options *report)
{
    int count;
    const struct conv_bank_family *families = conv_bank_families(&count);
    for (int i = 0; i < count; i++) {
        if (!report->json) {
            printf("%-20s %s", families[i].usage, families[i].summary);
            if (strcmp(families[i].usage, families[i].example) != 0)
                printf(" (for example %s)", families[i].example);
            putchar('\n');
            continue;
        }
        fputs("{\"type\":\"bank\"", stdout);
        conv_json_member(stdout, "name", families[i].name);
        conv_json_member(stdout, "usage", families[i].usage);
        conv_json_member(stdout, "example", families[i].example);
        conv_json_member(stdout, "summary", families[i].summary);
        puts("}");
    }
    return conv_errors_flush();
}

static const char *combine_name(enum conv_bank_combine combine)
{
    static const char *const names[] = {[CONV_BANK_ONLY] = "response",
                                        [CONV_BANK_MAGNITUDE] = "magnitude",
                                        [CONV_BANK_MAX] = "max"};
    return names[combine];
}

static void print_line(const char *lead, const double *numbers, int count)
{
    fputs(lead, stdout);
    for (int i = 0; i < count; i++)
        printf(" %.9g", numbers[i]);
    putchar('\n');
}

static void print_filter(const struct conv_bank_filter *filter)
{
    printf("  %s: %d x %d", filter->label, filter->width, filter->height);
    if (filter->terms)
        printf(", separable into %d term%s", filter->terms, filter->terms > 1 ? "s" : "");
    putchar('\n');
    for (int t = 0; t < filter->terms; t++) {
        print_line("    column", filter->columns + t * filter->height, filter->height);
        print_line("    row   ", filter->rows + t * filter->width, filter->width);
    }
    for (int j = 0; j < filter->height && !filter->terms; j++)
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
        print_filter(&bank->filters[i]);
}

static void print_array(const char *lead, const double *numbers, int count)
{
    fputs(lead, stdout);
    for (int i = 0; i < count; i++)
        printf("%s%.17g", i ? "," : "[", numbers[i]);
    putchar(']');
}

static void print_filter_json(const struct conv_bank_filter *filter)
{
    conv_json_member(stdout, "label", filter->label);
    printf(",\"width\":%d,\"height\":%d,\"terms\":[", filter->width, filter->height);
    for (int t = 0; t < filter->terms; t++) {
        print_array(t ? ",{\"column\":" : "{\"column\":", filter->columns + t * filter->height,
                    filter->height);
        print_array(",\"row\":", filter->rows + t * filter->width, filter->width);
        putchar('}');
    }
    putchar(']');
    for (int j = 0; j < filter->height; j++)
        print_array(j ? "," : ",\"kernel\":[", filter->coef + j * filter->width, filter->width);
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
        print_filter_json(&bank->filters[i]);
    }
}

int conv_banks_show(const struct conv_report_options *report, const char *name)
{
    struct conv_bank bank;
    struct conv_err err = {0};
    if (conv_bank_parse(&bank, name, &err))
        return conv_errors_fail(&err);
    report->json ? print_bank_json(&bank) : print_bank(&bank);
    conv_bank_free(&bank);
    return conv_errors_flush();
}
