// SPDX-License-Identifier: MIT
#include "report/text.h"

#include <stdbool.h>
#include <string.h>

// Length of the well-formed UTF-8 sequence at s (RFC 3629), 0 if there is none.
static int utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    int length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0; // overlong, surrogate, beyond U+10FFFF
    return length;
}

// The code of the character at s if it must not reach a terminal: a control character beyond ASCII
// (C1), the end of a line or paragraph, at which Python's splitlines() cuts JSON Lines, or a mark
// that reverses the direction of text. Else 0.
static unsigned hidden_code(const unsigned char *s, int length)
{
    if (length == 2 && s[0] == 0xC2 && s[1] < 0xA0)
        return s[1];
    if (length != 3 || s[0] != 0xE2)
        return 0;
    unsigned code = 0x2000u | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    bool hidden = (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    return hidden ? code : 0;
}

static size_t put(char *dst, const char *text)
{
    size_t size = strlen(text);
    memcpy(dst, text, size);
    return size;
}

// Copies a character that needs no translation. 0 if it needs one.
static size_t copy_plain(char *dst, const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    if (*s < 0x20 || *s == 0x7F || *s == '"' || *s == '\\' || *s == '<')
        return 0;
    int length = utf8_length(s);
    if (hidden_code(s, length))
        return 0;
    memcpy(dst, *text, (size_t)length);
    *text += length;
    return (size_t)length;
}

// Skips a character that copy_plain refused: ASCII, hidden, or a byte of invalid UTF-8, which
// counts as U+FFFD. Returns its code.
static unsigned take_rest(const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    int length = utf8_length(s);
    *text += length > 0 ? length : 1;
    return length == 0 ? 0xFFFD : length == 1 ? *s : hidden_code(s, length);
}

size_t conv_text_json_unit(char *dst, const char **text)
{
    static const char digits[] = "0123456789abcdef";
    size_t size = copy_plain(dst, text);
    if (size > 0)
        return size;
    unsigned code = take_rest(text);
    if (code < 0x20 || code >= 0x7F || code == '<') { // JSON inside HTML must not end its script
        char escape[] = {'\\',
                         'u',
                         digits[code >> 12 & 15],
                         digits[code >> 8 & 15],
                         digits[code >> 4 & 15],
                         digits[code & 15],
                         0};
        return put(dst, escape);
    }
    size = code == '"' || code == '\\' ? put(dst, "\\") : 0;
    dst[size] = (char)code;
    return size + 1;
}

void conv_text_json(FILE *stream, const char *text)
{
    char bytes[CONV_TEXT_UNIT];
    while (*text)
        fwrite(bytes, 1, conv_text_json_unit(bytes, &text), stream);
}

void conv_text_terminal(FILE *stream, const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int length = utf8_length(s);
        if (length == 0 || *s < 0x20 || *s == 0x7F || hidden_code(s, length)) {
            fprintf(stream, "\\x%02x", *s);
            length = 1;
        } else if (*s == '\\') {
            fputs("\\\\", stream);
        } else {
            fprintf(stream, "%.*s", length, s);
        }
        s += length;
    }
}
