// SPDX-License-Identifier: MIT
// Puts the hints of errors into words: option names occur in this folder only.
#ifndef CONV_CLI_HINTS_H
#define CONV_CLI_HINTS_H

#include <stddef.h>

#include "base/err.h"

// Enough for any error's text and the words around it.
#define CONV_HINTS_SIZE (sizeof((struct conv_err *)NULL)->text + 128)

// Writes the text of *err, with the options that its hint refers to, and returns `text`.
char *conv_hints_explain(char *text, size_t size, const struct conv_err *err);

#endif
