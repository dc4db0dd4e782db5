// SPDX-License-Identifier: MIT
#include "filter/scan.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- a number ------------------------------------------------------------------------------------

// strtod accepts hexadecimal, "nan", "infinity" and leading blanks, none of which is a coefficient:
// the grammar is checked here, and strtod only converts.

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

// --- a text of numbers ---------------------------------------------------------------------------

#define MAX_PATH_SHOWN 200

const char *conv_scan_tail(const char *path)
{
    size_t size = strlen(path);
    return size > MAX_PATH_SHOWN ? path + size - MAX_PATH_SHOWN : path;
}

const char *conv_scan_dots(const char *path)
{
    return conv_scan_tail(path) == path ? "" : "...";
}

enum conv_status conv_scan_error(const struct conv_scanner *scanner, const char *where,
                                 const char *fmt, ...)
{
    char reason[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    size_t column = (size_t)(where - scanner->line_begin) + 1;
    const char *source = scanner->source;
    if (!source)
        return conv_err_hint(
            scanner->err, CONV_HINT_KERNEL_AT, 0,
            conv_err_set(scanner->err, CONV_ERR_USAGE, "character %zu: %s", column, reason));
    return conv_err_set(scanner->err, CONV_ERR_FORMAT, "%s%s:%zu:%zu: %s", conv_scan_dots(source),
                        conv_scan_tail(source), scanner->line, column, reason);
}

// Brackets, as NumPy and MATLAB write them around rows, are blanks in the text of an option.
static bool is_blank(const struct conv_scanner *scanner, char c)
{
    return c == ' ' || c == '\t' || (!scanner->source && (c == '[' || c == ']'));
}

static bool is_separator(char c)
{
    return c == ',' || c == ';';
}

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

void conv_scan_blanks(struct conv_scanner *scanner)
{
    while (scanner->at < scanner->end && is_blank(scanner, *scanner->at))
        scanner->at++;
}

bool conv_scan_token(struct conv_scanner *scanner, bool first, struct conv_token *token)
{
    conv_scan_blanks(scanner);
    if (!first && scanner->at < scanner->end && is_separator(*scanner->at)) {
        scanner->at++;
        conv_scan_blanks(scanner);
    }
    if (scanner->at == scanner->end || is_line_end(*scanner->at))
        return false;
    token->text = scanner->at++;
    if (!is_separator(*token->text)) {
        while (scanner->at < scanner->end &&
               (*scanner->at == '[' || !is_blank(scanner, *scanner->at)) &&
               !is_separator(*scanner->at) && !is_line_end(*scanner->at))
            scanner->at++;
    }
    token->size = (size_t)(scanner->at - token->text);
    return true;
}

bool conv_scan_line(struct conv_scanner *scanner)
{
    if (scanner->at == scanner->end)
        return false;
    if (*scanner->at == '\r' && scanner->end - scanner->at > 1 && scanner->at[1] == '\n')
        scanner->at++;
    scanner->at++;
    scanner->line++;
    scanner->line_begin = scanner->at;
    return true;
}

bool conv_scan_empty_lines(struct conv_scanner *scanner)
{
    do {
        conv_scan_blanks(scanner);
        if (scanner->at < scanner->end && !is_line_end(*scanner->at))
            return true;
    } while (conv_scan_line(scanner));
    return false;
}

enum conv_status conv_scan_number(const struct conv_scanner *scanner,
                                  const struct conv_token *token, double limit, double *value)
{
    struct conv_err reason;
    if (conv_number_parse(value, limit, token->text, token->size, &reason) != CONV_OK)
        return conv_scan_error(scanner, token->text, "%s", reason.text);
    return CONV_OK;
}
