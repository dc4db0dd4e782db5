// SPDX-License-Identifier: MIT
// strtod accepts hexadecimal, "nan", "infinity" and leading blanks, none of which is a coefficient:
// the grammar is checked here, and strtod only converts.
#include "filter/number.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKEN 63              // the longest number; a double needs 24 characters
#define MAX_QUOTED 24             // of the user's text in a message
#define NUL_SYMBOL "\xe2\x90\x80" // U+2400, for a byte that would end the message

static size_t skip_digits(const char *text, size_t size, size_t at)
{
    while (at < size && text[at] >= '0' && text[at] <= '9')
        at++;
    return at;
}

static size_t skip_sign(const char *text, size_t size, size_t at)
{
    return at < size && (text[at] == '+' || text[at] == '-') ? at + 1 : at;
}

static bool is_number(const char *text, size_t size)
{
    size_t start = skip_sign(text, size, 0);
    size_t at = skip_digits(text, size, start);
    size_t digits = at - start;
    if (at < size && text[at] == '.') {
        start = at + 1;
        at = skip_digits(text, size, start);
        digits += at - start;
    }
    if (digits == 0)
        return false;
    if (at < size && (text[at] == 'e' || text[at] == 'E')) {
        start = skip_sign(text, size, at + 1);
        at = skip_digits(text, size, start);
        if (at == start)
            return false;
    }
    return at == size;
}

// The beginning of the text as a string. The caller that prints the message escapes it.
static void quote(char *quoted, size_t room, const char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < size && i < MAX_QUOTED; i++) {
        const char character[] = {text[i], '\0'};
        used +=
            (size_t)snprintf(quoted + used, room - used, "%s", text[i] ? character : NUL_SYMBOL);
    }
    snprintf(quoted + used, room - used, "%s", size > MAX_QUOTED ? "..." : "");
}

enum conv_status conv_number_parse(double *value, double limit, const char *text, size_t size,
                                   struct conv_err *err)
{
    char quoted[sizeof NUL_SYMBOL * MAX_QUOTED + 4];
    quote(quoted, sizeof quoted, text, size);
    if (!is_number(text, size))
        return conv_err_set(err, CONV_ERR_FORMAT, "expected a number, found '%s'", quoted);
    if (size > MAX_TOKEN)
        return conv_err_set(err, CONV_ERR_FORMAT, "the number '%s' has %zu characters, %d at most",
                            quoted, size, MAX_TOKEN);
    char token[MAX_TOKEN + 1];
    memcpy(token, text, size);
    token[size] = '\0';
    errno = 0;
    double number = strtod(token, NULL); // in the C locale: this program never calls setlocale
    if (errno == ERANGE || fabs(number) > limit)
        return conv_err_set(err, CONV_ERR_FORMAT, "the number '%s' is out of range (-%.0f to %.0f)",
                            quoted, limit, limit);
    *value = number + 0.0;
    return CONV_OK;
}
