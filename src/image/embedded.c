// SPDX-License-Identifier: MIT
#include "image/format.h"

#include <ctype.h>
#include <string.h>

#define LEAST_IMAGE 40 // bytes of a GIF of one pixel
#define LEAST_LINE 48  // encoders break lines at 60 to 76 digits
#define LEAST_RUN 16   // of the digits that are looked at
#define LEAST_BYTES 16 // as numbers with something between them
#define MOST_DIGITS 256

// First bytes of files. Nearly all positions of a text are excluded by them alone.
static bool may_begin(unsigned byte)
{
    static const uint64_t bytes[4] = {
        1ull << ('8'),
        1ull << ('I' & 63) | 1ull << ('M' & 63) | 1ull << ('G' & 63) | 1ull << ('R' & 63) |
            1ull << ('f' & 63) | 1ull << ('J' & 63) | 1ull << ('j' & 63),
        1ull << (0x89 & 63),
        1ull << (0xFF & 63),
    };
    return bytes[byte >> 6] >> (byte & 63) & 1;
}

// True if the first 32 bits of a file are those of an image or video format. The fourth byte of a
// JPEG is that of a marker.
static bool is_signature(uint32_t head)
{
    static const uint32_t heads[] = {
        0x89504E47, 0x49492A00, 0x4D4D002A, // PNG, TIFF
        0x49492B00, 0x4D4D002B, 0x49495500, // BigTIFF, Panasonic's raw files
        0x47494638, 0x52494646, 0x66747970, // GIF8, RIFF (WebP), ftyp (HEIC, AVIF, MP4)
        0x4A584C20, 0x6A502020, 0x38425053, // JPEG XL, JPEG 2000, Photoshop
    };
    if (head >> 6 == 0xFFD8FFC0 >> 6)
        return true;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (head == heads[i])
            return true;
    return false;
}

// BMP: its size, two zeros, the offset of the pixels; then the size of the second header.
static bool is_bmp(const uint8_t *p, size_t left)
{
    return left >= 18 && p[0] == 'B' && p[1] == 'M' && memcmp(p + 6, "\0\0\0", 4) == 0 &&
           p[14] >= 12 && memcmp(p + 15, "\0\0", 3) == 0;
}

// Texts may mention the names among the signatures; in files zeros or sizes are around them.
static bool is_file(const uint8_t *data, size_t size, size_t at)
{
    const uint8_t *p = data + at;
    size_t left = size - at;
    uint32_t head = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    if (!is_signature(head))
        return is_bmp(p, left);
    switch (head) {
    case 0x47494638:
        return left >= 10 && (p[7] < 0x20 || p[9] < 0x20);
    case 0x52494646:
        return left >= 12 && memcmp(p + 8, "WEBP", 4) == 0;
    case 0x66747970:
    case 0x4A584C20:
    case 0x6A502020:
        return at >= 4 && p[-4] == 0 && p[-3] == 0;
    case 0x38425053:
        return left >= 5 && p[4] == 0;
    default:
        return true;
    }
}

// All of them have NULs, which text has only at its end.
static bool has_file(const uint8_t *data, size_t size)
{
    if (!memchr(data, 0, size))
        return false;
    for (size_t at = 0; at + 4 <= size; at++)
        if ((may_begin(data[at]) || data[at] == 'B') && is_file(data, size, at))
            return true;
    return false;
}

// --- digits --------------------------------------------------------------------------------------

// What a character is in a text with digits: below 64 a digit of either alphabet of base64.
enum { BREAK = 64, SPACE, LINE, ESCAPE };

// clang-format off
#define _ BREAK
static const uint8_t kinds[256] = {
    SPACE, _, _, _, _, _, _, _, _, SPACE, LINE, _, _, LINE, _, _,
    _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _,
    SPACE, _, _, _, _, ESCAPE, ESCAPE, _, _, _, _, 62, _, 62, _, 63,
    52, 53, 54, 55, 56, 57, 58, 59, 60, 61, _, _, _, _, _, _,
    _, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
    15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, _, ESCAPE, _, _, 63,
    _, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40,
    41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, _, _, _, _, _,
    _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _,
    _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _,
    _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _,
    _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _,
};
#undef _
// clang-format on

static int hex_digit(int c)
{
    return isdigit(c) ? c - '0' : isxdigit(c) ? (c | 0x20) - 'a' + 10 : -1;
}

// The character for which an escape at `p` stands, and its size: %2F; \/, \n; &#xA;
static int read_escape(const uint8_t *p, size_t left, size_t *size)
{
    int high = left >= 3 ? hex_digit(p[1]) : -1, low = left >= 3 ? hex_digit(p[2]) : -1, value = 0;
    *size = 1;
    if (p[0] == '%' && high >= 0 && low >= 0) {
        *size = 3;
        return high << 4 | low;
    }
    if (p[0] == '\\') {
        bool line = left >= 2 && (p[1] == 'n' || p[1] == 'r');
        *size += line;
        return line ? '\n' : 0;
    }
    const uint8_t *end = left >= 4 && p[1] == '#' ? memchr(p, ';', left < 10 ? left : 10) : NULL;
    bool hex = end && p[2] == 'x';
    for (const uint8_t *q = p + 2 + hex; end && q < end; q++)
        value = hex_digit(*q) < 0 ? '!' : value * (hex ? 16 : 10) + hex_digit(*q);
    *size += end ? (size_t)(end - p) : 0;
    return end && value < 256 ? value : '!';
}

// A digit, or a part of an escape or of UTF-16.
static bool is_digit(int c)
{
    return kinds[c] < BREAK || kinds[c] == ESCAPE || c == '#' || c == ';' || c == 0;
}

// The digits of a text as bits. A byte may begin at every second bit of base64.
struct digits {
    uint64_t base64, hex;         // the last ones
    size_t base64_bits, hex_bits; // that there are
    size_t run, line;             // digits without a space; since the last line break
};

static bool add_digit(struct digits *digits, unsigned six)
{
    bool ten = six >= 52 && six < 62, hex = ten || six < 6 || (six >= 26 && six < 32);
    unsigned four = ten ? six - 52 : six < 6 ? six + 10 : six - 16;
    digits->base64 = digits->base64 << 6 | six;
    digits->base64_bits += 6;
    digits->line++;
    digits->hex = digits->hex << 4 | four;
    digits->hex_bits = hex ? digits->hex_bits + 4 : 0;
    for (unsigned shift = 0; shift < 6; shift += 2) {
        uint32_t head = (uint32_t)(digits->base64 >> shift);
        if (may_begin(head >> 24) && digits->base64_bits >= 32 + shift && is_signature(head))
            return true;
    }
    return ++digits->run >= MOST_DIGITS ||
           (digits->hex_bits >= 32 && is_signature((uint32_t)digits->hex));
}

// Reads digits from *at on, which is moved after them.
static bool read_digits(const uint8_t *data, size_t size, size_t *from)
{
    struct digits digits = {0};
    size_t step = 1;
    for (size_t at = *from; at < size; at += step) {
        int c = data[at];
        unsigned kind = kinds[c];
        step = 1;
        if (kind == ESCAPE) {
            c = read_escape(data + at, size - at, &step);
            kind = kinds[c];
        }
        if (kind < BREAK) {
            if (add_digit(&digits, kind))
                return true;
            continue;
        }
        *from = at + step;
        if (kind == BREAK || kind == ESCAPE)
            return false;
        if ((kind == SPACE && c != 0) || (kind == LINE && digits.line < LEAST_LINE))
            digits.run = 0;
        if (kind == LINE)
            digits.line = 0;
    }
    *from = size;
    return false;
}

// Looking at one character of LEAST_RUN finds all runs that are as long, escapes included.
static bool has_digits(const uint8_t *data, size_t size)
{
    for (size_t at = LEAST_RUN - 1; at < size; at += LEAST_RUN) {
        size_t from = at, to = at;
        if (!is_digit(data[at]))
            continue;
        while (from > 0 && is_digit(data[from - 1]))
            from--;
        while (to < size && is_digit(data[to]))
            to++;
        while (to > from && to - from >= LEAST_RUN) // what is no digit after all ends a part of it
            if (read_digits(data, size, &from))
                return true;
        at = from > to ? from - 1 : to - 1;
    }
    return false;
}

// --- bytes as numbers ----------------------------------------------------------------------------

// What is between two numbers: spaces, commas, 0x, \x, %, NULs of UTF-16.
static size_t skip_between(const uint8_t *p, size_t left)
{
    size_t at = 0;
    while (at < left && at < 8 &&
           (memchr(" ,:;%\\xX-\r\n\t", p[at], 13) || p[at] == 0 ||
            (p[at] == '0' && left - at > 1 && (p[at + 1] | 0x20) == 'x')))
        at++;
    return at;
}

// True if LEAST_BYTES numbers of the base begin here, and a file with them.
static bool is_numbers(const uint8_t *p, size_t left, int base)
{
    uint32_t head = 0;
    for (size_t count = 0, at = 0; count < LEAST_BYTES; count++) {
        int value = 0;
        size_t digits = 0, between;
        for (; digits < (base == 16 ? 2 : 3) && at < left; digits++, at++) {
            int digit = hex_digit(p[at]);
            if (digit < 0 || digit >= base)
                break;
            value = value * base + digit;
        }
        between = skip_between(p + at, left - at);
        at += between;
        if (value > 255 || digits < (base == 16 ? 2 : 1) || (base == 10 && between == 0))
            return false;
        head = count < 4 ? head << 8 | (uint32_t)value : head;
        if (count == 3 && !is_signature(head))
            return false;
    }
    return true;
}

static bool has_numbers(const uint8_t *data, size_t size)
{
    bool inside = false; // a number
    for (size_t at = 0; at + 2 * LEAST_BYTES < size; at++) {
        bool digit = kinds[data[at]] < BREAK && hex_digit(data[at]) >= 0;
        if (digit && !inside &&
            (is_numbers(data + at, size - at, 16) || is_numbers(data + at, size - at, 10)))
            return true;
        inside = digit && !(data[at] == '0' && (data[at + 1] | 0x20) == 'x');
    }
    return false;
}

bool conv_embedded_image(const void *bytes, size_t size)
{
    const uint8_t *data = bytes;
    while (size > 0 && data[size - 1] == 0)
        size--;
    return size >= LEAST_IMAGE &&
           (has_file(data, size) || has_digits(data, size) || has_numbers(data, size));
}

// --- tables --------------------------------------------------------------------------------------

// Three segments of a JPEG, one after the other.
static bool is_jpeg(const uint8_t *data, size_t size, size_t at)
{
    if (size - at < 3 || memcmp(data + at, "\xFF\xD8\xFF", 3) != 0)
        return false;
    at += 2;
    for (int i = 0; i < 3; i++) {
        if (size - at < 4 || data[at] != 0xFF || data[at + 1] < 0xC0)
            return false;
        size_t length = 2 + ((size_t)data[at + 2] << 8 | data[at + 3]);
        if (length < 4 || length > size - at)
            return false;
        at += length;
    }
    return true;
}

bool conv_embedded_in_tables(const uint8_t *data, size_t size)
{
    static const char *const heads[] = {"\x89PNG\r\n\x1A\n", "GIF89a", "GIF87a"};
    for (size_t at = 0; at < size; at++) {
        if (!may_begin(data[at]))
            continue;
        for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
            if (size - at > strlen(heads[i]) && memcmp(data + at, heads[i], strlen(heads[i])) == 0)
                return true;
        if (is_jpeg(data, size, at) ||
            (size - at >= 12 && memcmp(data + at, "RIFF", 4) == 0 && is_file(data, size, at)))
            return true;
    }
    return false;
}

// --- text ----------------------------------------------------------------------------------------

static bool is_control(unsigned c)
{
    return c < 0x20 && !(c >= '\t' && c <= '\r') && c != 0x1B;
}

bool conv_embedded_is_text(const uint8_t *data, size_t size)
{
    while (size > 0 && data[size - 1] == 0)
        size--;
    for (size_t i = 0; i < size; i++)
        if (is_control(data[i]))
            return false;
    return true;
}

bool conv_embedded_is_utf16(const uint8_t *data, size_t size, bool little)
{
    bool high = false; // the last one was the first half of a pair
    while (size >= 2 && data[size - 1] == 0 && data[size - 2] == 0)
        size -= 2;
    for (size_t i = 0; i + 1 < size; i += 2) {
        unsigned c = (unsigned)(data[i + little] << 8 | data[i + !little]);
        if (is_control(c) || high != (c >> 10 == 0xDC00 >> 10))
            return false;
        high = c >> 10 == 0xD800 >> 10;
    }
    return !high && size % 2 == 0;
}

bool conv_embedded_is_utf8(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        const uint8_t *text = data + at;
        size_t step = conv_text_utf8(text, size - at);
        bool is_mark = step == 3 && text[0] == 0xEF && text[1] == 0xBF && text[2] >= 0xBE;
        if (step == 0 || is_mark) // U+FFFE and U+FFFF are no characters
            return false;
        at += step;
    }
    return true;
}
