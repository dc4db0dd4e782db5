// SPDX-License-Identifier: MIT
// The command table, nothing else.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/opening.h"
#include "cli/commands.h"

static const struct {
    const char *name;
    int (*run)(const struct conv_options *options);
} commands[] = {
    {"list", conv_list_main},     {"show", conv_show_main},   {"devices", conv_devices_main},
    {"verify", conv_verify_main}, {"bench", conv_bench_main},
};

static int run(int argc, char **argv)
{
    struct conv_options options;
    struct conv_err err = {0};
    if (conv_options_parse(&options, argc, argv, &err))
        return conv_commands_fail(&err);
    if (options.help || options.version) {
        if (options.help)
            conv_options_print_help(stdout);
        else
            puts("conv " CONV_VERSION);
        return conv_commands_flush();
    }
    if (options.operand_count == 0) {
        conv_err_set(&err, CONV_ERR_USAGE,
                     "no filter given: conv FILTER INPUT... OUTPUT (see conv --help)");
        return conv_commands_fail(&err);
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(options.operands[0], commands[i].name) == 0) {
            options.operands++;
            options.operand_count--;
            return commands[i].run(&options);
        }
    }
    return conv_run_main(&options);
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);
    if (conv_opening_any_left()) {
        fflush(NULL);
        _exit(code);
    }
    return code;
}
