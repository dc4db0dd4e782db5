// SPDX-License-Identifier: MIT
// Writes file names, which are bytes, as JSON and to a terminal. Control characters and marks that
// reverse the direction of text are escaped. A byte of invalid UTF-8 becomes U+FFFD in JSON and is
// escaped on a terminal.
#ifndef CONV_REPORT_TEXT_H
#define CONV_REPORT_TEXT_H

#include <stddef.h>
#include <stdio.h>

#define CONV_TEXT_UNIT 6 // most bytes of a unit: \u001f

// Writes the unit for the next character of *text, advances *text past it and returns the number of
// bytes written, at most CONV_TEXT_UNIT. **text is not 0.
size_t conv_text_json_unit(char *dst, const char **text);

// The whole text, without quotes around it.
void conv_text_json(FILE *stream, const char *text);

// The whole text for a terminal: escaped bytes as \xNN, a backslash as \\, so that a file name can
// neither break a line nor control the terminal.
void conv_text_terminal(FILE *stream, const char *text);

#endif
