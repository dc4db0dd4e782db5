// SPDX-License-Identifier: MIT
// conv help --json: the tables of commands and options as one object. tools/make-manual makes the
// manual and the completions of shells from it.
#include "cli/commands.h"

#include "cli/option_table.h"
#include "conv.h"
#include "report/json.h"

static void print_commands_of(unsigned commands)
{
    const char *separator = "";
    fputs(",\"commands\":[", stdout);
    for (size_t i = 0; i < conv_command_count; i++) {
        if (!(commands & 1u << conv_command_table[i].command))
            continue;
        fputs(separator, stdout);
        conv_json_string(stdout, conv_command_table[i].words);
        separator = ",";
    }
    putchar(']');
}

static void print_command(const struct conv_command_row *row)
{
    fputs("{\"name\":", stdout);
    conv_json_string(stdout, row->words);
    conv_json_member(stdout, "operands", row->operands);
    conv_json_member(stdout, "summary", row->summary);
    putchar('}');
}

static void print_choices(const char *const *choices)
{
    fputs(",\"choices\":", stdout);
    if (!choices) {
        fputs("null", stdout);
        return;
    }
    putchar('[');
    for (int i = 0; choices[i]; i++) {
        fputs(i ? "," : "", stdout);
        conv_json_string(stdout, choices[i]);
    }
    putchar(']');
}

// `section` is that of the row, which only the first one of a section states.
static void print_option(const struct conv_option *row, const char *section)
{
    const char letter[2] = {row->letter, '\0'};
    fputs("{\"name\":", stdout);
    conv_json_string(stdout, row->name);
    conv_json_member(stdout, "letter", row->letter ? letter : NULL);
    conv_json_member(stdout, "argument", row->arg);
    print_choices(row->choices);
    conv_json_member(stdout, "values", row->values);
    printf(",\"repeatable\":%s", row->kind == KIND_LIST ? "true" : "false");
    conv_json_member(stdout, "section", section);
    conv_json_member(stdout, "help", row->help);
    print_commands_of(row->commands);
    putchar('}');
}

static void print_rule(const struct conv_option_rule *rule)
{
    fputs("{\"option\":", stdout);
    conv_json_string(stdout, rule->name);
    conv_json_member(stdout, "choice", rule->choice);
    conv_json_member(stdout, "relation", rule->relation == OPTION_NEEDS ? "needs" : "excludes");
    conv_json_member(stdout, "other", rule->other);
    conv_json_member(stdout, "reason", rule->reason);
    print_commands_of(rule->commands ? rule->commands : ~0u);
    putchar('}');
}

void conv_help_print_json(unsigned commands)
{
    const char *section = NULL, *separator = "";
    fputs("{\"type\":\"help\",\"version\":\"" CONV_VERSION "\",\"commands\":[", stdout);
    for (size_t i = 0; i < conv_command_count; i++) {
        if (!(commands & 1u << conv_command_table[i].command))
            continue;
        fputs(separator, stdout);
        print_command(&conv_command_table[i]);
        separator = ",";
    }
    fputs("],\"options\":[", stdout);
    separator = "";
    for (size_t i = 0; i < conv_option_count; i++) {
        const struct conv_option *row = &conv_option_table[i];
        section = row->section ? row->section : section;
        if (!(row->commands & commands))
            continue;
        fputs(separator, stdout);
        print_option(row, section);
        separator = ",";
    }
    fputs("],\"rules\":[", stdout);
    separator = "";
    for (size_t i = 0; i < conv_option_rule_count; i++) {
        const struct conv_option_rule *rule = &conv_option_rules[i];
        if (rule->commands && !(rule->commands & commands))
            continue;
        fputs(separator, stdout);
        print_rule(rule);
        separator = ",";
    }
    puts("]}");
}
