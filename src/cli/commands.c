// SPDX-License-Identifier: MIT
#include "cli/commands.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/standard.h"
#include "cli/device.h"
#include "cli/option_table.h"
#include "cli/signals.h"
#include "image/format.h"
#include "report/report.h"

// True if the name is that of a folder or of an image: an input rather than a filter. *kind says
// which.
static bool is_input(const char *path, const char **kind)
{
    struct stat info;
    uint8_t head[32];
    size_t got = 0;
    bool exists = stat(path, &info) == 0;
    *kind = exists && S_ISDIR(info.st_mode) ? "a folder" : "an image";
    if (exists && S_ISDIR(info.st_mode))
        return true;
    FILE *file = exists && S_ISREG(info.st_mode) ? fopen(path, "re") : NULL;
    if (file) {
        got = fread(head, 1, sizeof head, file);
        fclose(file);
    }
    return conv_format_of_bytes(head, got) || conv_format_of_name(path);
}

// A common mistake: conv photo.png out.png.
static enum conv_status refuse_input(const struct conv_options *options, const char *text,
                                     const char *kind, struct conv_err *err)
{
    bool runs = options->command == CONV_COMMAND_RUN;
    if (!runs && options->command != CONV_COMMAND_VERIFY)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "'%s' is %s, not a filter (conv list prints the filters)", text, kind);
    return conv_err_set(err, CONV_ERR_USAGE,
                        "'%s' is %s: the filter comes first, e.g. conv %semboss %s%s%s", text, kind,
                        runs ? "" : "verify ", text, runs ? " " : "",
                        !runs                         ? ""
                        : options->operand_count == 2 ? options->operands[1]
                                                      : "OUTPUT");
}

// Another common mistake: conv gaussian 2 photo.png out.png. NULL: it is not that.
static const struct conv_filter_family *family_of_operand(const struct conv_options *options,
                                                          const char *text)
{
    int count;
    const struct conv_filter_family *families = conv_filter_families(&count);
    const char *number = options->operand_count > 1 ? options->operands[1] : "";
    if (options->report.quiet || *number == '\0' ||
        number[strspn(number, "0123456789.,x+%")] != '\0' || access(number, F_OK) == 0)
        return NULL; // -q 90 has a message of its own
    for (int i = 0; i < count; i++)
        if (strcmp(families[i].name, text) == 0)
            return &families[i];
    return NULL;
}

enum conv_status conv_commands_parse_chain(const struct conv_options *options, const char *text,
                                           struct conv_filter *filters, int *count,
                                           struct conv_err *err)
{
    const struct conv_filter_family *family = family_of_operand(options, text);
    if (family)
        return conv_err_set(err, CONV_ERR_USAGE, "numbers follow a colon: %s, for example %s",
                            family->usage, family->example);
    if (!conv_filter_parse_chain(filters, count, text, &options->filter.settings, err))
        return CONV_OK;
    const char *kind;
    if (is_input(text, &kind))
        return refuse_input(options, text, kind, err);
    return err->status = CONV_ERR_USAGE;
}

enum conv_status conv_commands_check_operands(const struct conv_options *options,
                                              struct conv_err *err)
{
    char name[32];
    if (options->operand_count == 0)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE, "%s takes no operands, but '%s' was given",
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
    [CONV_COMMAND_HELP] = conv_help_main,
    [CONV_COMMAND_VERSION] = conv_version_main,
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
        return conv_help_print(&options);
    if (options.version) {
        options.operand_count = 0;
        return conv_version_main(&options);
    }
    if (options.operand_count == 0)
        return conv_help_missing();
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
