// SPDX-License-Identifier: MIT
// Reads coefficients, divisors and biases.
#ifndef CONV_FILTER_NUMBER_H
#define CONV_FILTER_NUMBER_H

#include <stddef.h>

#include "base/err.h"

// Reads all of text[0..size) as a decimal number: sign, digits with an optional point, exponent. No
// blanks, no hexadecimal, no nan or inf; -0 becomes 0. CONV_ERR_FORMAT, quoting the text, if it is
// not such a number or beyond +-limit; *value is then unchanged. Any thread.
enum conv_status conv_number_parse(double *value, double limit, const char *text, size_t size,
                                   struct conv_err *err);

#endif
