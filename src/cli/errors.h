// SPDX-License-Identifier: MIT
// Errors in the words of the command line, and the exit codes that belong to them. The hints of
// errors become names of options here, since these occur in this folder only.
#ifndef CONV_CLI_ERRORS_H
#define CONV_CLI_ERRORS_H

#include <stddef.h>

#include "base/err.h"
#include "report/record.h"

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

#endif
