// SPDX-License-Identifier: MIT
// Reads numbers, and cuts a text into them with the position for errors with line and column.
#ifndef CONV_FILTER_SCAN_H
#define CONV_FILTER_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

// Reads all of text[0..size) as a decimal number: sign, digits with an optional point, exponent. No
// blanks, no hexadecimal, no nan or inf; -0 becomes 0. CONV_ERR_FORMAT, quoting the text, if it is
// not such a number or beyond +-limit; *value is then unchanged. Any thread.
enum conv_status conv_number_parse(double *value, double limit, const char *text, size_t size,
                                   struct conv_err *err);

struct conv_scanner {
    const char *at, *end;
    const char *line_begin;
    size_t line;          // from 1
    const char *source;   // the file's name, or NULL for a kernel given as text
    struct conv_err *err; // may be NULL
};

struct conv_token {
    const char *text;
    size_t size;
};

// Steps over blanks and tabs, in a text of the user also over brackets.
void conv_scan_blanks(struct conv_scanner *scanner);

// Takes the next token of the current line; false at its end. Between two numbers there may be one
// separator; a second one is a token, which conv_scan_number refuses. `first`: no number precedes,
// so any separator is one too many.
bool conv_scan_token(struct conv_scanner *scanner, bool first, struct conv_token *token);

// Steps over LF, CR LF or CR; false at the end of the text. Only to be called at the end of a line.
bool conv_scan_line(struct conv_scanner *scanner);

// Goes to the next line that is not empty, which may be the current one; false if there is none.
bool conv_scan_empty_lines(struct conv_scanner *scanner);

// Reads the token as a number within +-limit. Errors as conv_scan_error.
enum conv_status conv_scan_number(const struct conv_scanner *scanner,
                                  const struct conv_token *token, double limit, double *value);

// Sets the error "SOURCE:LINE:COLUMN: ..." (CONV_ERR_FORMAT) for a file, and "character N: ..."
// (CONV_ERR_USAGE) with the hint CONV_HINT_KERNEL_AT for a text. Returns its status. `where` is on
// the current line.
enum conv_status conv_scan_error(const struct conv_scanner *scanner, const char *where,
                                 const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// The end of a long path, so that the reason after it fits into a message, and the prefix for it:
// "..." or "".
const char *conv_scan_tail(const char *path);
const char *conv_scan_dots(const char *path);

#endif
