// SPDX-License-Identifier: MIT
#include "cli/commands.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/err.h"
#include "base/standard.h"
#include "cli/device.h"
#include "cli/option_table.h"
#include "cli/signals.h"
#include "conv.h"
#include "image/format.h"
#include "io/files/paths.h"
#include "report/json.h"

// --- help ----------------------------------------------------------------------------------------

// --help, conv help and conv version, printed from the tables of commands and options.

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
    fputs("conv " CONV_VERSION
          ": sharpens, blurs and finds edges in folders of images on CPUs or GPUs\n"
          "\n"
          "Usage:\n"
          "  conv FILTER[,FILTER...] [OPTIONS] INPUT... OUTPUT\n"
          "  conv FILTER[,FILTER...] --in-place|--beside|--output OUTPUT [OPTIONS] INPUT...\n"
          "\n"
          "  conv unsharp:1,0.6 photos sharp      every image of a folder, into a folder\n"
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
    fputs("conv " CONV_VERSION
          ": sharpens, blurs and finds edges in folders of images on CPUs or GPUs\n"
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

static void print_choices(const char *const *choices)
{
    fputs(choices ? ",\"choices\":[" : ",\"choices\":null", stdout);
    for (int i = 0; choices && choices[i]; i++) {
        fputs(i ? "," : "", stdout);
        conv_json_string(stdout, choices[i]);
    }
    fputs(choices ? "]" : "", stdout);
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

static void print_rule(const struct conv_option_rule *rule, const char *other)
{
    bool needs = rule->relation == OPTION_ALLOWS;
    fputs("{\"option\":", stdout);
    conv_json_string(stdout, needs ? other : rule->name);
    conv_json_member(stdout, "choice", rule->choice);
    conv_json_member(stdout, "relation", needs ? "needs" : "excludes");
    conv_json_member(stdout, "other", needs ? rule->name : other);
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
        printf("%s{\"name\":", separator);
        conv_json_string(stdout, conv_command_table[i].words);
        conv_json_member(stdout, "operands", conv_command_table[i].operands);
        conv_json_member(stdout, "summary", conv_command_table[i].summary);
        putchar('}');
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
        bool holds = !rule->commands || rule->commands & commands;
        for (const char *const *other = rule->others; holds && *other; other++) {
            fputs(separator, stdout);
            print_rule(rule, *other);
            separator = ",";
        }
    }
    puts("]}");
}

// --- the commands --------------------------------------------------------------------------------

// --help: of the command before it, or of all of them if there is none.
static int print_help(const struct conv_options *options)
{
    bool of_command = options->operand_count > 0, is_short = options->help_is_short;
    unsigned commands = of_command ? conv_command_bits(options->command) : ~0u;
    if (options->report.json) {
        print_json(commands);
    } else if (of_command) {
        print_usage(commands);
        if (options->command == CONV_COMMAND_RUN)
            puts("\n`conv list` prints the filters, `conv show FILTER` explains one.");
        is_short ? print_names(options->command) : print_options(commands);
    } else {
        is_short ? print_short() : print_everything();
    }
    return conv_errors_flush();
}

void conv_print_libraries(void); // cmake/formats.cmake

static int version_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    if (conv_commands_check_operands(options, &err))
        return conv_errors_fail(&err);
    printf("conv %s\n", conv_version());
    conv_print_libraries();
    return conv_errors_flush();
}

// For a word that is neither a command nor a filter. *reason says why not; if it suggests no
// filter, a command may be meant, or after conv help an option.
static enum conv_status suggest(const char *word, bool helps, struct conv_err *reason)
{
    if (strstr(reason->text, "did you mean"))
        return reason->status;
    const char *near = conv_suggest_nearest(word, &conv_command_table[1].words,
                                            sizeof conv_command_table[0], conv_command_count - 1);
    if (!near && helps)
        near = conv_suggest_nearest(word, &conv_option_table[0].name, sizeof conv_option_table[0],
                                    conv_option_count);
    if (!near && helps)
        return conv_err_usage(reason,
                              "'%.64s' is no command, filter or option; conv --help has all of "
                              "them, and the exit codes",
                              word);
    return !near ? reason->status
                 : conv_err_usage(reason,
                                  "'%.64s' is neither a command nor a filter; did you mean '%s'?",
                                  word, near);
}

static int help_main(const struct conv_options *options)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    struct conv_options of_word = *options;
    struct conv_err err = {0};
    int used, count;
    if (options->operand_count == 0)
        return print_help(options);
    const char *word = options->operands[0];
    of_word.command = conv_options_find_command(options->operands, options->operand_count, &used);
    if (of_word.command != CONV_COMMAND_RUN || strcasecmp(word, "FILTER") == 0 ||
        strcmp(word, "custom") == 0 ||
        !conv_filter_parse_chain(filters, &count, word, &options->filter.settings, &err))
        return print_help(&of_word);
    const struct conv_option *row = conv_option_find(word);
    if (!row) {
        suggest(word, true, &err);
        return conv_errors_fail(&err);
    }
    options->report.json ? print_option_json(row, NULL) : print_option(row);
    return conv_errors_flush();
}

// True if the name is that of a folder or of an image: an input rather than a filter. *kind says
// which.
static bool is_input(const char *path, const char **kind)
{
    uint8_t head[32];
    bool is_folder = conv_paths_is_folder(path);
    *kind = is_folder ? "a folder" : "an image";
    return is_folder || conv_format_of_bytes(head, conv_paths_head(path, head, sizeof head)) ||
           conv_format_of_name(path);
}

// A common mistake: conv photo.png out.png.
static enum conv_status refuse_input(const struct conv_options *options, const char *text,
                                     const char *kind, struct conv_err *err)
{
    bool runs = options->command == CONV_COMMAND_RUN;
    if (!runs && options->command != CONV_COMMAND_VERIFY)
        return conv_err_usage(err, "'%s' is %s, not a filter (conv list prints the filters)", text,
                              kind);
    return conv_err_usage(err, "'%s' is %s: the filter comes first, e.g. conv %semboss %s%s%s",
                          text, kind, runs ? "" : "verify ", text, runs ? " " : "",
                          !runs                         ? ""
                          : options->operand_count == 2 ? options->operands[1]
                                                        : "OUTPUT");
}

// Other common mistakes: conv gaussian 2 photo.png out.png, conv blur sharpen photo.png out.png.
static enum conv_status refuse_word(const struct conv_options *options, const char *text,
                                    struct conv_err *err)
{
    int count;
    const struct conv_filter_family *families = conv_filter_families(&count);
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    const char *word = options->operand_count > 1 ? options->operands[1] : "";
    bool is_number = strpbrk(word, "0123456789") && !word[strspn(word, "0123456789.,x+%")];
    if (access(word, F_OK) == 0)
        return CONV_OK;
    if (options->report.quiet && options->command == CONV_COMMAND_RUN && is_number &&
        !word[strspn(word, "0123456789")])
        return conv_err_usage(err, "-q is --quiet: use -Q %s for the quality of JPEG",
                              word); // -q is a quality elsewhere
    for (int i = 0; i < count && is_number; i++)
        if (strcmp(families[i].name, text) == 0)
            return conv_err_usage(err, "numbers follow a colon: %s, for example %s",
                                  families[i].usage, families[i].example);
    if (options->operand_count < 3 || options->inputs.files_from ||
        conv_filter_parse_chain(filters, &count, word, &options->filter.settings, NULL))
        return CONV_OK;
    return conv_err_usage(err, "filters are joined by commas: conv %s,%s ...", text, word);
}

enum conv_status conv_commands_parse_chain(const struct conv_options *options, const char *text,
                                           struct conv_filter *filters, int *count,
                                           struct conv_err *err)
{
    if (refuse_word(options, text, err))
        return err->status;
    if (!conv_filter_parse_chain(filters, count, text, &options->filter.settings, err))
        return CONV_OK;
    const char *kind;
    if (is_input(text, &kind))
        return refuse_input(options, text, kind, err);
    err->status = CONV_ERR_USAGE;
    return options->command == CONV_COMMAND_RUN ? suggest(text, false, err) : err->status;
}

enum conv_status conv_commands_check_operands(const struct conv_options *options,
                                              struct conv_err *err)
{
    char name[32];
    if (options->operand_count == 0)
        return CONV_OK;
    return conv_err_usage(err, "%s takes no operands, but '%s' was given",
                          conv_command_name(name, sizeof name, options->command),
                          options->operands[0]);
}

void conv_commands_say_note(const struct conv_report_options *report)
{
    if (report->note[0] && !report->quiet)
        fprintf(stderr, "conv: %s\n", report->note);
}

// --- the program ---------------------------------------------------------------------------------

static int (*const commands[])(const struct conv_options *options) = {
    [CONV_COMMAND_RUN] = conv_run_main,
    [CONV_COMMAND_LIST] = conv_list_main,
    [CONV_COMMAND_SHOW] = conv_show_main,
    [CONV_COMMAND_VERIFY] = conv_verify_main,
    [CONV_COMMAND_LAYER] = conv_layer_main,
    [CONV_COMMAND_REPORT_MERGE] = conv_report_merge_main,
    [CONV_COMMAND_BENCH] = conv_bench_main,
    [CONV_COMMAND_BENCH_KERNELS] = conv_bench_main,
    [CONV_COMMAND_BENCH_LAYERS] = conv_bench_main,
    [CONV_COMMAND_BENCH_STREAMS] = conv_bench_main,
    [CONV_COMMAND_BENCH_CODEC] = conv_bench_main,
    [CONV_COMMAND_DEVICES] = conv_devices_main,
    [CONV_COMMAND_HELP] = help_main,
    [CONV_COMMAND_VERSION] = version_main,
};

static int run(const struct conv_device_ops *const *backends, int argc, char **argv)
{
    struct conv_options options;
    struct conv_limits limits;
    struct conv_err err = {0};
    conv_limits_read(&limits);
    if (conv_options_parse(&options, &limits, argc, argv, &err))
        return conv_errors_fail(&err);
    options.machine.backends = backends;
    if (options.help)
        return print_help(&options);
    if (options.version) {
        options.operand_count = 0;
        return version_main(&options);
    }
    if (options.operand_count == 0) {
        conv_err_usage(&err, "no filter given: conv FILTER INPUT... OUTPUT (see conv --help)");
        return conv_errors_fail(&err);
    }
    if (commands[options.command] != conv_bench_main) // which parses the options once more
        conv_commands_say_note(&options.report);
    options.argv = argv;
    if (options.command != CONV_COMMAND_RUN) { // its name is not an operand
        options.operands++;
        options.operand_count--;
    }
    return commands[options.command](&options);
}

int conv_commands_main(const struct conv_device_ops *const *backends, int argc, char **argv)
{
    if (!conv_standard_open())
        return CONV_EXIT_SOME_FAILED; // and there is nowhere to say why
    conv_signals_begin();
    int code = run(backends, argc, argv);
    if (conv_device_is_left_open()) {
        fflush(NULL);
        _exit(code);
    }
    return code;
}
