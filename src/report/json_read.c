// SPDX-License-Identifier: MIT
// Brackets are counted, not matched: only a report that was edited by hand can have a damaged line
// that passes.
#include "report/json_read.h"

#include <stdlib.h>
#include <string.h>

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

// The end of the string that begins at `at`; NULL if it has none.
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\')
            at++;
        if (!*at)
            return NULL;
    }
    return at + 1;
}

// The end of the value that begins at `at`; NULL if there is none.
static const char *skip_value(const char *at)
{
    size_t depth = 0;
    do {
        at = skip_blanks(at);
        if (*at == '"') {
            at = skip_string(at);
            if (!at)
                return NULL;
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if ((*at == '}' || *at == ']') && depth > 0) {
            depth--;
            at++;
        } else if ((*at == ',' || *at == ':') && depth > 0) {
            at++;
        } else {
            size_t length = strcspn(at, ",:{}[]\" \t\r\n");
            if (length == 0)
                return NULL;
            at += length;
        }
    } while (depth > 0);
    return at;
}

const char *conv_json_skip(const char *text)
{
    return skip_value(text);
}

// Moves *at past the next member of an object, from its opening bracket or the comma before the
// member. False after the last member, with *at at the closing bracket, or if there is no member.
static bool next_member(const char **at, struct conv_json_value *name,
                        struct conv_json_value *value)
{
    const char *key = skip_blanks(*at + 1);
    if (*key != '"') {
        *at = key;
        return false;
    }
    const char *end = skip_string(key), *colon = end ? skip_blanks(end) : NULL;
    if (!colon || *colon != ':')
        return false;
    *name = (struct conv_json_value){key + 1, (size_t)(end - key) - 2};
    const char *from = skip_blanks(colon + 1), *to = skip_value(from);
    if (!to)
        return false;
    *value = (struct conv_json_value){from, (size_t)(to - from)};
    *at = skip_blanks(to);
    return true;
}

bool conv_json_read(struct conv_json_value *value, const char *text, const char *name)
{
    const char *at = skip_blanks(text);
    struct conv_json_value key;
    if (*at != '{')
        return false;
    while (next_member(&at, &key, value)) {
        if (key.size == strlen(name) && memcmp(key.text, name, key.size) == 0)
            return true;
        if (*at != ',')
            return false;
    }
    return false;
}

bool conv_json_is_object(const char *text)
{
    const char *at = skip_blanks(text);
    struct conv_json_value key, value;
    if (*at != '{')
        return false;
    while (next_member(&at, &key, &value))
        if (*at != ',')
            break;
    return *at == '}' && !*skip_blanks(at + 1);
}

bool conv_json_integer(const struct conv_json_value *value, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < value->size; i++) {
        unsigned digit = (unsigned)value->text[i] - '0';
        if (digit > 9 || *number > (UINT64_MAX - digit) / 10)
            return false;
        *number = 10 * *number + digit;
    }
    return value->size > 0;
}

bool conv_json_number(const struct conv_json_value *value, double *number)
{
    char *end;
    *number = strtod(value->text, &end); // the line is terminated
    return value->size > 0 && end == value->text + value->size;
}

static int hex(char digit)
{
    const char *digits = "0123456789abcdefABCDEF", *found = digit ? strchr(digits, digit) : NULL;
    int place = found ? (int)(found - digits) : -1;
    return place < 16 ? place : place - 6;
}

// Four hexadecimal digits at `text`, of which `left` bytes remain.
static bool read_unit(const char *text, size_t left, uint32_t *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = left >= 4 ? hex(text[i]) : -1;
        if (digit < 0)
            return false;
        *unit = *unit << 4 | (uint32_t)digit;
    }
    return true;
}

// UTF-8. Returns the number of bytes.
static size_t put_code(char *to, uint32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    size_t count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = count - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3F));
    to[0] = (char)(code | (count == 2 ? 0xC0u : count == 3 ? 0xE0u : 0xF0u));
    return count;
}

// The escape after a backslash at text[*at]; moves *at to its last character. Returns the number of
// bytes, 0 if it is none.
static size_t unescape(char *to, const char *text, size_t size, size_t *at)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *letter = *at < size ? memchr(letters, text[*at], sizeof letters - 1) : NULL;
    uint32_t code, low;
    if (letter) {
        *to = values[letter - letters];
        return 1;
    }
    if (*at >= size || text[*at] != 'u' || !read_unit(text + *at + 1, size - *at - 1, &code))
        return 0;
    *at += 4;
    bool pair = code >= 0xD800 && code < 0xDC00 && size - *at > 6 && text[*at + 1] == '\\' &&
                text[*at + 2] == 'u' && read_unit(text + *at + 3, size - *at - 3, &low) &&
                low >= 0xDC00 && low < 0xE000;
    if (pair) {
        *at += 6;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    return code ? put_code(to, code) : 0;
}

bool conv_json_text(const struct conv_json_value *value, char *text, size_t size)
{
    size_t used = 0;
    if (value->size < 2 || value->text[0] != '"')
        return false;
    const char *from = value->text + 1;
    size_t length = value->size - 2;
    for (size_t i = 0; i < length; i++) {
        char bytes[4] = {from[i]};
        size_t count = 1;
        if (from[i] == '\\') {
            i++;
            count = unescape(bytes, from, length, &i);
        }
        if (count == 0 || used + count >= size)
            return false;
        memcpy(text + used, bytes, count);
        used += count;
    }
    text[used] = '\0';
    return true;
}
