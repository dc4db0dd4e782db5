// SPDX-License-Identifier: MIT
// The commands. Each takes the options with its own name removed from the operands and returns the
// program's exit code.
#ifndef CONV_CLI_COMMANDS_H
#define CONV_CLI_COMMANDS_H

#include "cli/errors.h"
#include "cli/options.h"

// The whole program with a table of devices (engine.h); main.c has this build's, a test its own.
// A program that is linked with src/bench computes `bench` itself; conv runs conv-bench.
// Returns the exit code, or ends the process if a thread cannot be waited for.
int conv_commands_main(const struct conv_device_ops *const *backends, int argc, char **argv);

int conv_run_main(const struct conv_options *options);          // run.c
int conv_list_main(const struct conv_options *options);         // list.c
int conv_show_main(const struct conv_options *options);         // show.c
int conv_devices_main(const struct conv_options *options);      // devices.c
int conv_verify_main(const struct conv_options *options);       // verify.c
int conv_layer_main(const struct conv_options *options);        // layer.c
int conv_report_merge_main(const struct conv_options *options); // report_merge.c
int conv_bench_main(const struct conv_options *options);        // bench_program.c
int conv_help_main(const struct conv_options *options);         // help.c
int conv_version_main(const struct conv_options *options);      // help.c

// --help: of the command before it, or of all of them if there is none.
int conv_help_print(const struct conv_options *options);

// conv list banks, one family per line, and conv show of a bank: its maps and filters with their
// coefficients; with --json one object per line. banks.c
int conv_banks_list(const struct conv_report_options *report);
int conv_banks_show(const struct conv_report_options *report, const char *name);

// For a command line without command and filter: prints a message and returns CONV_EXIT_USAGE.
int conv_help_missing(void);

// What the program says before it begins: options->report.note.
void conv_commands_say_note(const struct conv_report_options *report);

// For commands without operands: CONV_ERR_USAGE if there are any.
enum conv_status conv_commands_check_operands(const struct conv_options *options,
                                              struct conv_err *err);

// conv_filter_parse_chain with the options' settings. A filter file that cannot be read or parsed
// is a usage error too; a folder or an image in place of the filter gets a message that says so.
enum conv_status conv_commands_parse_chain(const struct conv_options *options, const char *text,
                                           struct conv_filter *filters, int *count,
                                           struct conv_err *err);

#endif
