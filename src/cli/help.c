// SPDX-License-Identifier: MIT
// --help, conv help and conv version, printed from the tables of commands and options.
#include "cli/commands.h"

#include <string.h>

#include "base/err.h"
#include "cli/option_table.h"
#include "conv.h"
#include "report/json.h"

#define COLUMN 26 // where the second column of both tables begins
#define WIDTH 80  // of the terminal that the text is wrapped for

// Prints words from column COLUMN on, after `used` columns of the line.
static void print_wrapped(const char *text, int used)
{
    int column = COLUMN;
    if (used + 1 < COLUMN)
        printf("%*s", COLUMN - used, "");
    else // too wide for its place
        printf("\n%*s", COLUMN, "");
    for (bool first = true; *text; first = false) {
        int length = (int)strcspn(text, " ");
        if (!first && column + 1 + length > WIDTH) {
            printf("\n%*s", COLUMN, "");
            column = COLUMN;
        } else if (!first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_option(const struct conv_option *row)
{
    char left[64];
    int used = snprintf(left, sizeof left, "  %c%c%s--%s%s%s", row->letter ? '-' : ' ',
                        row->letter ? row->letter : ' ', row->letter ? ", " : "  ", row->name,
                        row->arg ? " " : "", row->arg ? row->arg : "");
    fputs(left, stdout);
    print_wrapped(row->help, used);
}

// The options that at least one of the commands takes.
static void print_options(unsigned commands)
{
    const struct conv_option *row;
    const char *section = NULL, *printed = NULL;
    for (size_t i = 0; (row = conv_option_next(&i, commands, &section));) {
        if (section != printed)
            printf("\n%s:\n", section);
        printed = section;
        print_option(row);
    }
}

static void print_command(const struct conv_command_row *row)
{
    char left[64];
    int used = snprintf(left, sizeof left, "  conv %s%s%s", row->words, *row->operands ? " " : "",
                        row->operands);
    fputs(left, stdout);
    print_wrapped(row->summary, used);
}

static void print_everything(void)
{
    fputs("conv " CONV_VERSION ": filters images (PNG, JPEG) by convolution, on GPUs or CPU cores\n"
          "\n"
          "Usage:\n"
          "  conv FILTER[,FILTER...] [OPTIONS] INPUT... OUTPUT\n"
          "  conv FILTER[,FILTER...] --in-place|--beside|--output OUTPUT [OPTIONS] INPUT...\n"
          "\n"
          "  conv emboss photos embossed          every image of a folder, into a folder\n"
          "  conv blur,sharpen photo.png out.png  one image, two filters in turn\n"
          "  conv emboss - - <a.png >b.png        standard input to standard output\n"
          "\n"
          "FILTER is a name that `conv list` prints, `custom` with --kernel, or a matrix\n"
          "file (its path contains a slash or ends in .mat).\n"
          "\n"
          "Other commands:\n",
          stdout);
    for (size_t i = 1; i < conv_command_count; i++)
        print_command(&conv_command_table[i]);
    print_options(~0u);
    fputs("\nEach command refuses options that it would ignore; `conv help COMMAND` prints\n"
          "those that it takes (`conv help FILTER`: those of the main job).\n"
          "\n"
          "Exit codes: 0 everything done or skipped, 1 some images failed, 2 usage error,\n"
          "3 no image found, 4 the device cannot be used, 130/143 ended by a signal.\n",
          stdout);
}

static void print_usage(unsigned commands)
{
    fputs("Usage:\n", stdout);
    for (size_t i = 0; i < conv_command_count; i++)
        if (commands & 1u << conv_command_table[i].command)
            print_command(&conv_command_table[i]);
}

// The short help, which fits a screen of 24 lines.
static void print_short(void)
{
    fputs("conv " CONV_VERSION ": filters images (PNG, JPEG) by convolution, on GPUs or CPU cores\n"
          "\n"
          "  conv FILTER[,FILTER...] [OPTIONS] INPUT... OUTPUT\n"
          "  conv emboss photo.png out.png              one image\n"
          "  conv blur,sharpen photos out               a folder, two filters in turn\n"
          "  conv sharpen --beside --suffix _s photos   results next to the originals\n"
          "  conv emboss --limit 10 --dry-run photos x  what would be done, with ten images\n"
          "\n"
          "  -r, --recursive        folders below INPUT, too\n"
          "  -o, --output OUTPUT    all operands are inputs: for find -exec ... {} +\n"
          "      --in-place         replace the originals\n"
          "      --skip-existing    continue after an interruption\n"
          "      --include GLOB     only these names; --exclude GLOB: not those\n"
          "      --device DEVICE    auto, cpu, cuda, cuda:N or all\n"
          "  -j, --jobs N           worker threads\n"
          "  -v, --verbose          print each image; -q: failures only\n"
          "\n"
          "Other commands: list, show, verify, layer, bench, devices, help, version.\n"
          "`conv list` prints the filters, `conv --help` all options, `conv help COMMAND`\n"
          "those of one command, `man conv` everything.\n",
          stdout);
}

// The names of a command's options.
static void print_names(enum conv_command command)
{
    char name[32];
    const struct conv_option *row;
    int column = 9;
    fputs("\nOptions:", stdout);
    for (size_t i = 0; (row = conv_option_next(&i, conv_command_bits(command), NULL));) {
        int length = 3 + (int)strlen(row->name);
        if (column + length > WIDTH) {
            fputs("\n        ", stdout);
            column = 9;
        }
        printf(" --%s", row->name);
        column += length;
    }
    conv_command_name(name, sizeof name, command);
    printf("\n\n`%s --help` explains them.\n", command == CONV_COMMAND_RUN ? "conv FILTER" : name);
}

// --- JSON ----------------------------------------------------------------------------------------

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

static void print_command_json(const struct conv_command_row *row)
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
static void print_option_json(const struct conv_option *row, const char *section)
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

// conv help --json: the tables of commands and options as one object, from which tools/make-manual
// makes the manual and the completions of shells.
static void print_json(unsigned commands)
{
    const char *section = NULL, *separator = "";
    fputs("{\"type\":\"help\",\"version\":\"" CONV_VERSION "\",\"commands\":[", stdout);
    for (size_t i = 0; i < conv_command_count; i++) {
        if (!(commands & 1u << conv_command_table[i].command))
            continue;
        fputs(separator, stdout);
        print_command_json(&conv_command_table[i]);
        separator = ",";
    }
    fputs("],\"options\":[", stdout);
    separator = "";
    const struct conv_option *row;
    for (size_t i = 0; (row = conv_option_next(&i, commands, &section));) {
        fputs(separator, stdout);
        print_option_json(row, section);
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

// --- the commands --------------------------------------------------------------------------------

int conv_help_print(const struct conv_options *options)
{
    bool of_command = options->operand_count > 0, is_short = options->help_is_short;
    unsigned commands = of_command ? conv_command_bits(options->command) : ~0u;
    if (options->report.json) {
        print_json(commands);
    } else if (of_command) {
        print_usage(commands);
        is_short ? print_names(options->command) : print_options(commands);
    } else {
        is_short ? print_short() : print_everything();
    }
    return conv_errors_flush();
}

int conv_help_missing(void)
{
    struct conv_err err = {0};
    conv_err_set(&err, CONV_ERR_USAGE,
                 "no filter given: conv FILTER INPUT... OUTPUT (see conv --help)");
    return conv_errors_fail(&err);
}

int conv_version_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    if (conv_commands_check_operands(options, &err))
        return conv_errors_fail(&err);
    printf("conv %s\n", conv_version());
    return conv_errors_flush();
}

// For a word that is neither a command nor a filter, `reason` says why not: an option, or an error.
static int print_word(const char *word, bool json, struct conv_err *reason)
{
    const struct conv_option *row = conv_option_find(word);
    if (row) {
        json ? print_option_json(row, NULL) : print_option(row);
        return conv_errors_flush();
    }
    const char *near = conv_suggest_nearest(word, &conv_command_table[1].words,
                                            sizeof conv_command_table[0], conv_command_count - 1);
    if (near)
        conv_err_set(reason, CONV_ERR_USAGE,
                     "'%.64s' is neither a command nor a filter; did you mean '%s'?", word, near);
    return conv_errors_fail(reason);
}

int conv_help_main(const struct conv_options *options)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    struct conv_options of_word = *options;
    struct conv_err err = {0};
    int used, count;
    if (options->operand_count == 0)
        return conv_help_print(options);
    const char *word = options->operands[0];
    of_word.command = conv_options_find_command(options->operands, options->operand_count, &used);
    if (of_word.command == CONV_COMMAND_RUN && strcmp(word, "FILTER") != 0 &&
        strcmp(word, "custom") != 0 &&
        conv_filter_parse_chain(filters, &count, word, &options->filter.settings, &err))
        return print_word(word, options->report.json, &err);
    return conv_help_print(&of_word);
}
