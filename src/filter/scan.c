// SPDX-License-Identifier: MIT
#include "filter/scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "filter/number.h"

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

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
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
    while (scanner->at < scanner->end && is_blank(*scanner->at))
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
        while (scanner->at < scanner->end && !is_blank(*scanner->at) &&
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
