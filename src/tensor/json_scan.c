// SPDX-License-Identifier: MIT
#include "tensor/json_scan.h"

#include <string.h>

#define MOST_DEPTH 16 // of values that are skipped

void conv_json_scan_space(struct conv_json_scan *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

bool conv_json_scan_char(struct conv_json_scan *json, char c)
{
    conv_json_scan_space(json);
    if (json->at == json->end || *json->at != c)
        return false;
    json->at++;
    return true;
}

static bool take_hex(struct conv_json_scan *json, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        if (json->at == json->end)
            return false;
        char c = *json->at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

// Called after "\u": takes one code point of one or two escapes. 0 and lone surrogates are refused.
static bool take_code_point(struct conv_json_scan *json, uint32_t *code)
{
    uint32_t low;
    if (!take_hex(json, code) || *code == 0 || (*code >= 0xdc00 && *code <= 0xdfff))
        return false;
    if (*code < 0xd800 || *code > 0xdbff)
        return true;
    if (json->end - json->at < 2 || json->at[0] != '\\' || json->at[1] != 'u')
        return false;
    json->at += 2;
    if (!take_hex(json, &low) || low < 0xdc00 || low > 0xdfff)
        return false;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

static size_t encode_utf8(char utf8[4], uint32_t code)
{
    if (code < 0x80) {
        utf8[0] = (char)code;
        return 1;
    }
    size_t more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    utf8[0] = (char)(lead[more] | code >> 6 * more);
    for (size_t i = 1; i <= more; i++)
        utf8[i] = (char)(0x80 | (code >> 6 * (more - i) & 0x3f));
    return more + 1;
}

// Called after a backslash: sets the bytes that the escape stands for and returns their number; 0:
// it is not an escape.
static size_t take_escape(struct conv_json_scan *json, char utf8[4])
{
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    uint32_t code;
    if (json->at == json->end)
        return 0;
    char c = *json->at++;
    const char *escape = c ? strchr(escapes, c) : NULL;
    if (escape) {
        utf8[0] = meanings[escape - escapes];
        return 1;
    }
    return c == 'u' && take_code_point(json, &code) ? encode_utf8(utf8, code) : 0;
}

bool conv_json_scan_string(struct conv_json_scan *json, char *string, size_t size)
{
    size_t used = 0;
    bool fits = true;
    if (!conv_json_scan_char(json, '"'))
        return false;
    while (json->at < json->end) {
        char utf8[4] = {*json->at++};
        size_t length = 1;
        if (utf8[0] == '"') {
            string[fits ? used : 0] = '\0';
            return true;
        }
        if ((unsigned char)utf8[0] < 0x20)
            return false;
        if (utf8[0] == '\\')
            length = take_escape(json, utf8);
        if (length == 0)
            return false;
        fits = fits && used + length < size;
        if (fits)
            memcpy(string + used, utf8, length);
        used += length;
    }
    return false;
}

bool conv_json_scan_number(struct conv_json_scan *json, uint64_t *number)
{
    conv_json_scan_space(json);
    const char *first = json->at;
    *number = 0;
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
        if (*number > (uint64_t)INT64_MAX / 10 - 1)
            return false;
        *number = 10 * *number + (uint64_t)(*json->at - '0');
    }
    return json->at > first;
}

bool conv_json_scan_numbers(struct conv_json_scan *json, uint64_t *numbers, int room, int *count)
{
    *count = 0;
    if (!conv_json_scan_char(json, '['))
        return false;
    if (conv_json_scan_char(json, ']'))
        return true;
    do {
        if (*count == room || !conv_json_scan_number(json, &numbers[*count]))
            return false;
        ++*count;
    } while (conv_json_scan_char(json, ','));
    return conv_json_scan_char(json, ']');
}

// A word such as true, null or a number of any kind.
static bool skip_word(struct conv_json_scan *json)
{
    const char *first = json->at;
    while (json->at < json->end && *json->at && strchr("+-.0123456789aeflnrstuE", *json->at))
        json->at++;
    return json->at > first;
}

// The brackets that are open are the bits of a mask: 1 for an object.
bool conv_json_scan_skip(struct conv_json_scan *json)
{
    char text[1];
    unsigned is_object = 0;
    int depth = 0;
    for (;;) {
        bool opened = false;
        if (conv_json_scan_char(json, '{') || conv_json_scan_char(json, '[')) {
            if (++depth > MOST_DEPTH)
                return false;
            is_object = is_object << 1 | (json->at[-1] == '{');
            opened = true;
        } else if (json->at < json->end && *json->at == '"'
                       ? !conv_json_scan_string(json, text, sizeof text)
                       : !skip_word(json)) {
            return false;
        }
        // Next come the ends of one or more values, and the beginning of the next value.
        while (depth > 0 && conv_json_scan_char(json, is_object & 1 ? '}' : ']')) {
            is_object >>= 1;
            depth--;
            opened = false;
        }
        if (depth == 0)
            return true;
        if (!opened && !conv_json_scan_char(json, ','))
            return false;
        if ((is_object & 1) &&
            (!conv_json_scan_string(json, text, sizeof text) || !conv_json_scan_char(json, ':')))
            return false;
    }
}
