// SPDX-License-Identifier: MIT
// Text to filter: libvips' matrix files and the argument of --kernel. The text may come from
// anywhere, so nothing is guessed, and every error has its line and column.
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter/filter.h"

// 961 numbers of 63 characters are 61 kB; the rest is for blanks.
#define MAX_FILE_BYTES (256 * 1024)

// --- a number ------------------------------------------------------------------------------------

#define MAX_TOKEN 63              // the longest number; a double needs 24 characters
#define MAX_QUOTED 24             // of the user's text in a message
#define NUL_SYMBOL "\xe2\x90\x80" // U+2400, for a byte that would end the message

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
    for (; size > 0 && text[size - 1] == ' '; size--)
        ;
    for (; size > 0 && *text == ' '; size--)
        text++;
    quote(quoted, sizeof quoted, text, size);
    // strtod accepts hexadecimal, "nan", "infinity" and leading blanks as well.
    char token[MAX_TOKEN + 1] = {0}, *end;
    memcpy(token, text, size < MAX_TOKEN ? size : MAX_TOKEN);
    errno = 0;
    double number = strtod(token, &end); // in the C locale: this program never calls setlocale
    bool whole = size > 0 && size <= MAX_TOKEN && end == token + size;
    if (!whole || strspn(token, "+-.0123456789eE") != size)
        return conv_err_format(err, "expected a number, found '%s'", quoted);
    if (errno == ERANGE || fabs(number) > limit)
        return conv_err_format(err, "the number '%s' is out of range (-%.0f to %.0f)", quoted,
                               limit, limit);
    *value = number + 0.0;
    return CONV_OK;
}

// --- a text of numbers ---------------------------------------------------------------------------

struct scanner {
    const char *at, *end;
    const char *line_begin;
    size_t line;          // from 1
    const char *source;   // the file's name, or NULL for a kernel given as text
    struct conv_err *err; // may be NULL
};

struct token {
    const char *text;
    size_t size;
};

#define MAX_PATH_SHOWN 200

// The end of a long path, so that the reason after it fits into a message, and the prefix for it:
// "..." or "".
static const char *tail_of(const char *path)
{
    size_t size = strlen(path);
    return size > MAX_PATH_SHOWN ? path + size - MAX_PATH_SHOWN : path;
}

static const char *dots_of(const char *path)
{
    return tail_of(path) == path ? "" : "...";
}

// Sets the error "SOURCE:LINE:COLUMN: ..." (CONV_ERR_FORMAT) for a file, and "character N: ..."
// (CONV_ERR_USAGE) with the hint CONV_HINT_KERNEL_AT for a text. Returns its status. `where` is on
// the current line.
__attribute__((format(printf, 3, 4))) static enum conv_status
fail_at(const struct scanner *scanner, const char *where, const char *fmt, ...)
{
    char reason[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    size_t column = (size_t)(where - scanner->line_begin) + 1;
    const char *source = scanner->source;
    if (!source)
        return conv_err_advise(scanner->err, CONV_ERR_USAGE, CONV_HINT_KERNEL_AT,
                               "character %zu: %s", column, reason);
    return conv_err_format(scanner->err, "%s%s:%zu:%zu: %s", dots_of(source), tail_of(source),
                           scanner->line, column, reason);
}

// Brackets, as NumPy and MATLAB write them around rows, are blanks in the text of an option.
static bool is_blank(const struct scanner *scanner, char c)
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

// Steps over blanks and tabs, in a text of the user also over brackets.
static void skip_blanks(struct scanner *scanner)
{
    while (scanner->at < scanner->end && is_blank(scanner, *scanner->at))
        scanner->at++;
}

// Takes the next token of the current line; false at its end. Between two numbers there may be one
// separator; a second one is a token, which read_number refuses. `first`: no number precedes,
// so any separator is one too many.
static bool next_token(struct scanner *scanner, bool first, struct token *token)
{
    skip_blanks(scanner);
    if (!first && scanner->at < scanner->end && is_separator(*scanner->at)) {
        scanner->at++;
        skip_blanks(scanner);
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

// Steps over LF, CR LF or CR; false at the end of the text. Only to be called at the end of a line.
static bool end_line(struct scanner *scanner)
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

// Goes to the next line that is not empty, which may be the current one; false if there is none.
static bool skip_empty_lines(struct scanner *scanner)
{
    do {
        skip_blanks(scanner);
        if (scanner->at < scanner->end && !is_line_end(*scanner->at))
            return true;
    } while (end_line(scanner));
    return false;
}

// Reads the token as a number within +-limit. Errors as fail_at.
static enum conv_status read_number(const struct scanner *scanner, const struct token *token,
                                    double limit, double *value)
{
    struct conv_err reason;
    return conv_number_parse(value, limit, token->text, token->size, &reason)
               ? fail_at(scanner, token->text, "%s", reason.text)
               : CONV_OK;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

// --- matrix files --------------------------------------------------------------------------------

static enum conv_status parse_header(struct scanner *scanner, struct conv_filter *filter)
{
    static const char layout[] = "the first line is: width height [scale [offset]]";
    static const char *const side_names[] = {"width", "height"};
    const double limits[] = {CONV_FILTER_MAX_COEF, CONV_FILTER_MAX_COEF, CONV_FILTER_MAX_COEF,
                             CONV_FILTER_MAX_OFFSET};
    double values[] = {0, 0, 1, 0};
    int count = 0;
    if (!skip_empty_lines(scanner))
        return fail_at(scanner, scanner->at, "expected a matrix (%s)", layout);
    for (struct token token; next_token(scanner, count == 0, &token); count++) {
        if (count == 4)
            return fail_at(scanner, token.text, "more than 4 numbers (%s)", layout);
        enum conv_status status = read_number(scanner, &token, limits[count], &values[count]);
        if (status != CONV_OK)
            return status;
        double value = values[count];
        if (count < 2 && !(value >= 1 && value <= CONV_FILTER_MAX_SIDE && (int)value == value &&
                           (int)value % 2 == 1))
            return fail_at(scanner, token.text,
                           "the %s is %g, but must be an odd number from 1 to %d (%s)",
                           side_names[count], value, CONV_FILTER_MAX_SIDE, layout);
        if (count == 2 && value == 0)
            return fail_at(scanner, token.text, "the scale is 0, and sums are divided by it");
    }
    if (count < 2)
        return fail_at(scanner, scanner->at, "the height is missing (%s)", layout);
    filter->width = (int)values[0];
    filter->height = (int)values[1];
    filter->scale = values[2];
    filter->offset = values[3];
    return CONV_OK;
}

static enum conv_status parse_row(struct scanner *scanner, const struct conv_filter *filter,
                                  int row, double *coef)
{
    int count = 0;
    const char *extra = NULL;
    for (struct token token; next_token(scanner, count == 0, &token); count++) {
        double value;
        enum conv_status status = read_number(scanner, &token, CONV_FILTER_MAX_COEF, &value);
        if (status != CONV_OK)
            return status;
        if (count < filter->width)
            coef[count] = value;
        else if (!extra)
            extra = token.text;
        // A divisor near 0 must not make coefficients of real filters overflow float32.
        if (value / filter->scale > CONV_FILTER_MAX_COEF ||
            value / filter->scale < -CONV_FILTER_MAX_COEF)
            return fail_at(scanner, token.text, "the number divided by the scale %g is too large",
                           filter->scale);
    }
    if (count != filter->width)
        return fail_at(scanner, extra ? extra : scanner->at, "row %d has %d number%s, %d expected",
                       row + 1, count, plural(count), filter->width);
    return CONV_OK;
}

// The file's name without folder and ".mat".
static void name_after(struct conv_filter *filter, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t size = strlen(name);
    if (size > 4 && strcmp(name + size - 4, ".mat") == 0)
        size -= 4;
    if (size >= sizeof filter->name)
        size = sizeof filter->name - 1;
    memcpy(filter->name, name, size);
    filter->name[size] = '\0';
}

enum conv_status conv_filter_parse_matrix(struct conv_filter *filter, const char *text, size_t size,
                                          const char *source, struct conv_err *err)
{
    struct conv_filter parsed = {0};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { // byte order mark of UTF-8
        text += 3;
        size -= 3;
    }
    struct scanner scanner = {text, text + size, text, 1, source, err};
    enum conv_status status = parse_header(&scanner, &parsed);
    if (status != CONV_OK)
        return status;
    for (int row = 0; row < parsed.height; row++) {
        end_line(&scanner);
        if (!skip_empty_lines(&scanner))
            return fail_at(&scanner, scanner.at, "the matrix ends after %d row%s, %d expected", row,
                           plural(row), parsed.height);
        status = parse_row(&scanner, &parsed, row, parsed.coef + row * parsed.width);
        if (status != CONV_OK)
            return status;
    }
    end_line(&scanner);
    if (skip_empty_lines(&scanner))
        return fail_at(&scanner, scanner.at, "unexpected text after the last row (%d expected)",
                       parsed.height);
    name_after(&parsed, source);
    *filter = parsed;
    return CONV_OK;
}

enum conv_status conv_filter_load(struct conv_filter *filter, const char *path,
                                  struct conv_err *err)
{
    enum conv_status status;
    const char *dots = dots_of(path), *tail = tail_of(path);
    FILE *file = fopen(path, "rbe");
    if (!file)
        return conv_err_errno(err, errno, "cannot open the filter '%s%s'", dots, tail);
    char *text = malloc(MAX_FILE_BYTES + 1);
    size_t size = text ? fread(text, 1, MAX_FILE_BYTES + 1, file) : 0;
    if (!text)
        status = conv_err_memory(err, "no memory to read '%s%s'", dots, tail);
    else if (ferror(file))
        status = conv_err_errno(err, errno, "cannot read the filter '%s%s'", dots, tail);
    else if (size > MAX_FILE_BYTES)
        status = conv_err_format(err, "%s%s: more than %d KiB, no filter is that large", dots, tail,
                                 MAX_FILE_BYTES / 1024);
    else
        status = conv_filter_parse_matrix(filter, text, size, path, err);
    free(text);
    fclose(file); // was only read
    return status;
}

// --- --kernel ------------------------------------------------------------------------------------

// One side of "WxH:"; 0 if there is no number. A number that is too large becomes one that the
// caller refuses.
static int parse_side(struct scanner *scanner)
{
    size_t digits = strspn(scanner->at, "0123456789");
    scanner->at += digits;
    return digits > 4 ? 9999 : atoi(scanner->at - digits);
}

static enum conv_status parse_size(struct scanner *scanner, struct conv_filter *filter)
{
    skip_blanks(scanner);
    const char *begin = scanner->at;
    filter->width = filter->height = parse_side(scanner);
    if (scanner->at > begin && (*scanner->at == 'x' || *scanner->at == 'X')) {
        scanner->at++;
        filter->height = parse_side(scanner);
    }
    skip_blanks(scanner);
    if (*scanner->at == '+' || *scanner->at == '-')
        return fail_at(scanner, scanner->at,
                       "an origin cannot be given, it is always the centre of the kernel");
    if (*scanner->at != ':' || scanner->at == begin)
        return fail_at(scanner, scanner->at,
                       "expected WIDTHxHEIGHT: before the numbers (kernels with a name "
                       "are filters: gaussian:2)");
    if (filter->width > CONV_FILTER_MAX_SIDE || filter->width % 2 == 0 ||
        filter->height > CONV_FILTER_MAX_SIDE || filter->height % 2 == 0)
        return fail_at(scanner, begin, "%.*s: both sides must be odd numbers from 1 to %d",
                       scanner->at - begin > 16 ? 16 : (int)(scanner->at - begin), begin,
                       CONV_FILTER_MAX_SIDE);
    scanner->at++;
    return CONV_OK;
}

static enum conv_status parse_numbers(struct scanner *scanner, struct conv_filter *filter,
                                      int *count)
{
    struct token token;
    for (;;) {
        if (!next_token(scanner, *count == 0, &token)) {
            if (scanner->at == scanner->end)
                return CONV_OK;
            scanner->at++; // a line end within the option is a blank
            continue;
        }
        double value;
        if (memchr(token.text, '/', token.size))
            return fail_at(scanner, token.text,
                           "'%.*s' is a fraction; its denominator is given as the divisor",
                           (int)token.size, token.text);
        enum conv_status status = read_number(scanner, &token, CONV_FILTER_MAX_COEF, &value);
        if (status != CONV_OK)
            return status;
        if (*count < CONV_FILTER_MAX_TAPS)
            filter->coef[*count] = value;
        ++*count; // argv is far shorter than INT_MAX numbers
    }
}

// The numbers of a kernel, or of the planes of ffmpeg's filter `convolution` with colons between
// them, which are to be equal and are divided by their sum.
static enum conv_status parse_planes(struct scanner *scanner, struct conv_filter *filter,
                                     int *count)
{
    const char *end = scanner->end, *begin = scanner->at, *colon;
    struct conv_filter other = {0};
    enum conv_status status = CONV_OK;
    for (int plane = 0; !status && begin <= end; plane++, begin = scanner->end + 1) {
        int numbers = 0;
        colon = memchr(begin, ':', (size_t)(end - begin));
        scanner->at = begin;
        scanner->end = colon ? colon : end;
        status = parse_numbers(scanner, plane ? &other : filter, &numbers);
        if (!status && plane > 0 &&
            (numbers != *count || memcmp(other.coef, filter->coef, sizeof other.coef) != 0))
            return fail_at(scanner, begin,
                           "the planes must have one kernel; rdiv and bias are options here");
        *count = numbers;
    }
    return status;
}

// True for "3: ..." and "5x1: ...", and for a colon in a wrong place: at most one word is before
// it.
static bool has_size(const char *spec)
{
    spec += strspn(spec, " \t");
    spec += strcspn(spec, " \t,;\n:");
    return spec[strspn(spec, " \t")] == ':';
}

// Numbers in each row of a kernel in brackets, which "]" or ";" ends; -1: the rows differ.
static int row_length(const char *spec)
{
    int length = 0;
    for (int count = 0;; spec += strcspn(spec, " \t\r\n,;[]")) {
        for (; *(spec += strspn(spec, " \t\r\n,[")) == ']' || *spec == ';' || !*spec; spec++) {
            if (count > 0 && length > 0 && count != length)
                return -1;
            length = count > 0 ? count : length;
            count = 0;
            if (!*spec)
                return length;
        }
        count++;
    }
}

// The sides that brackets show, or those of a square: a list in one pair of brackets has no shape.
static enum conv_status find_sides(struct conv_filter *filter, const char *spec, int count,
                                   struct conv_err *err)
{
    int across = strchr(spec, '[') ? row_length(spec) : count, side = 1;
    bool rows = count > 0 && (across != count || strstr(spec, "[["));
    while (side < CONV_FILTER_MAX_SIDE && side * side < count)
        side += 2;
    filter->width = rows ? across : side;
    filter->height = rows ? count / across : side;
    if (rows && (across % 2 != 1 || filter->height % 2 != 1 || across > CONV_FILTER_MAX_SIDE ||
                 filter->height > CONV_FILTER_MAX_SIDE))
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_KERNEL,
                               across < 0 ? "the rows in brackets differ in length"
                                          : "%dx%d: both sides must be odd numbers from 1 to %d",
                               across, filter->height, CONV_FILTER_MAX_SIDE);
    if (!rows && side * side != count)
        return conv_err_advise(
            err, CONV_ERR_USAGE, CONV_HINT_KERNEL,
            "9, 25, 49, ... numbers make a square kernel; %d given (write WxH: for others)", count);
    return CONV_OK;
}

enum conv_status conv_filter_parse_spec(struct conv_filter *filter, const char *spec,
                                        struct conv_err *err)
{
    if (*spec == '@')
        return conv_filter_load(filter, spec + 1, err);

    struct conv_filter parsed = {.name = "custom", .scale = 1};
    struct scanner scanner = {spec, spec + strlen(spec), spec, 1, NULL, err};
    int count = 0;
    bool sized = has_size(spec);
    enum conv_status status = sized ? parse_size(&scanner, &parsed) : CONV_OK;
    if (status == CONV_OK)
        status = sized ? parse_numbers(&scanner, &parsed, &count)
                       : parse_planes(&scanner, &parsed, &count);
    if (status != CONV_OK)
        return status;

    if (sized && count != parsed.width * parsed.height)
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_KERNEL,
                               "%dx%d takes %d numbers; %d given", parsed.width, parsed.height,
                               parsed.width * parsed.height, count);
    if (!sized) {
        status = find_sides(&parsed, spec, count, err);
        if (status)
            return status;
        double sum = conv_filter_sum(&parsed);
        parsed.scale = strchr(spec, ':') && sum != 0 ? sum : 1;
    }
    *filter = parsed;
    return CONV_OK;
}
