// SPDX-License-Identifier: MIT
// The command table, nothing else.
#include <stdio.h>
#include <unistd.h>

#include "backend/async_open.h"
#include "base/standard.h"
#include "cli/commands.h"

static int (*const commands[])(const struct conv_options *options) = {
    [CONV_COMMAND_RUN] = conv_run_main,
    [CONV_COMMAND_LIST] = conv_list_main,
    [CONV_COMMAND_SHOW] = conv_show_main,
    [CONV_COMMAND_VERIFY] = conv_verify_main,
    [CONV_COMMAND_BENCH] = conv_bench_main,
    [CONV_COMMAND_BENCH_KERNELS] = conv_bench_main,
    [CONV_COMMAND_BENCH_STREAMS] = conv_bench_main,
    [CONV_COMMAND_BENCH_CODEC] = conv_bench_main,
    [CONV_COMMAND_DEVICES] = conv_devices_main,
    [CONV_COMMAND_HELP] = conv_help_main,
    [CONV_COMMAND_VERSION] = conv_version_main,
};

static int run(int argc, char **argv)
{
    struct conv_options options;
    struct conv_err err = {0};
    if (conv_options_parse(&options, argc, argv, &err))
        return conv_commands_fail(&err);
    if (options.help)
        return conv_help_print(&options);
    if (options.version) {
        options.operand_count = 0;
        return conv_version_main(&options);
    }
    if (options.operand_count == 0)
        return conv_help_missing();
    if (options.note[0] && !options.quiet)
        fprintf(stderr, "conv: %s\n", options.note);
    if (options.command != CONV_COMMAND_RUN) { // its name is an operand no more
        options.operands++;
        options.operand_count--;
    }
    return commands[options.command](&options);
}

int main(int argc, char **argv)
{
    if (!conv_standard_open())
        return CONV_EXIT_SOME_FAILED; // and there is nowhere to say why
    int code = run(argc, argv);
    if (conv_async_open_any_left()) {
        fflush(NULL);
        _exit(code);
    }
    return code;
}
