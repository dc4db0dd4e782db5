// SPDX-License-Identifier: MIT
// File names are bytes: how they get into JSON and HTML, which take characters only. A byte that is
// no UTF-8 becomes U+FFFD. Control characters and marks that turn the direction of text around are
// escaped in JSON, which may go to a terminal, and U+FFFD in HTML.
#ifndef CONV_REPORT_TEXT_H
#define CONV_REPORT_TEXT_H

#include <stddef.h>
#include <stdio.h>

#define CONV_TEXT_UNIT 6 // bytes that one unit needs at most: \u001f, &quot;

// Writes what stands for the next character of *text, moves *text behind it and returns the number
// of bytes written, at most CONV_TEXT_UNIT. **text is not 0.
size_t conv_text_json_unit(char *dst, const char **text);
size_t conv_text_html_unit(char *dst, const char **text);

// The whole text; no quotes around it.
void conv_text_json(FILE *stream, const char *text);
void conv_text_html(FILE *stream, const char *text);

#endif
