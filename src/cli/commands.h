// SPDX-License-Identifier: MIT
// The commands. Each takes the options with its own name removed from the operands and returns the
// program's exit code.
#pragma once

#include <stddef.h>

#include "cli/options.h"
#include "report/record.h"

// The whole program with a table of devices (engine.h); main.c has this build's, a test its own.
// A program that is linked with src/bench computes `bench` itself; conv runs conv-bench.
// Returns the exit code, or ends the process if a thread cannot be waited for.
int conv_commands_main(const struct conv_device_ops *const *backends, int argc, char **argv);

int conv_run_main(const struct conv_options *options);          // run.c
int conv_list_main(const struct conv_options *options);         // list_show.c
int conv_show_main(const struct conv_options *options);         // list_show.c
int conv_devices_main(const struct conv_options *options);      // list_show.c
int conv_verify_main(const struct conv_options *options);       // verify.c
int conv_layer_main(const struct conv_options *options);        // layer.c
int conv_report_merge_main(const struct conv_options *options); // report_merge.c
int conv_bench_main(const struct conv_options *options);        // main.c

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

// --- errors in the words of the command line, and the exit codes that belong to them: errors.c ---

// The hints of errors become names of options there, since these occur in this folder only.

enum {
    CONV_EXIT_OK = 0,
    CONV_EXIT_SOME_FAILED = 1,
    CONV_EXIT_USAGE = 2,
    CONV_EXIT_NOTHING = 3,
    CONV_EXIT_DEVICE = 4,
    CONV_EXIT_SIGNAL = 128, // plus the signal's number
};

// Enough for any error's text and the words around it.
#define CONV_ERRORS_SIZE (sizeof((struct conv_err *)NULL)->text + 128)

// Writes the text of *err, with the options that its hint refers to, and returns `text`.
char *conv_errors_explain(char *text, size_t size, const struct conv_err *err);

// The exit code that belongs to err->status.
int conv_errors_code_of(const struct conv_err *err);

// Prints `conv: TEXT` on stderr and returns the exit code that belongs to err->status.
int conv_errors_fail(const struct conv_err *err);

// The exit code of a run over images: that of the signal `stop` if it is > 0, else by the totals.
int conv_errors_exit_code(const struct conv_totals *totals, int stop);

// Flushes stdout: CONV_EXIT_OK, or a message and CONV_EXIT_SOME_FAILED if it could not be written.
int conv_errors_flush(void);
