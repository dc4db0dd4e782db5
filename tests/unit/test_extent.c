// SPDX-License-Identifier: MIT
// Where an image in a stream ends: the same however much of it, and of what follows, is there.
#include <string.h>

#include "io/files/formats.h"
#include "support/unit.h"

#define BYTES(text) text, sizeof(text) - 1

static const struct {
    const char *format, *data;
    size_t size;
} images[] = {
    {"PNM", BYTES("P6 #\n2 1 255\n\1\2\3\4\5\6")},
    {"PNM", BYTES("P4 9 1\n\xFF\0")},
    {"PAM", BYTES("P7\nWIDTH 1\nHEIGHT 2\nDEPTH 2\nMAXVAL 256\nENDHDR\n\0\1\0\2\0\1\0\2")},
    {"PNG", BYTES("\x89PNG\r\n\x1a\n\0\0\0\1IHDR.crc.\0\0\0\0IDATcrc.\0\0\0\0IENDcrc.")},
    // FF D9 in a segment, a stuffed FF, restarts, fill bytes, a second scan.
    {"JPEG", BYTES("\xFF\xD8\xFF\xE1\0\4\xFF\xD9\xFF\xDA\0\2ab\xFF\0\xFF\xD0\xD9\xFF\xFF\xDA\0\3x"
                   "yz\xFF\xFF\xD9")},
};

static const struct conv_format *find(const char *name)
{
    for (int i = 0; i < conv_format_count; i++)
        if (strcmp(conv_formats[i]->name, name) == 0)
            return conv_formats[i];
    return NULL;
}

// `step`: bytes that arrive at a time, before the image and what follows it are there.
static void check_steps(const struct conv_format *format, const uint8_t *data, size_t size,
                        size_t all, size_t step)
{
    size_t at = 0;
    uint64_t bytes = 8;
    for (size_t there = 8;; there = there + step < all ? there + step : all) {
        uint64_t needed = bytes;
        if (there < needed)
            continue;
        if (format->extent(data, there, &at, &bytes))
            break;
        assert_true(bytes > there && bytes <= size); // no byte of the next image is waited for
    }
    assert_int_equal(bytes, size);
}

UNIT_TEST(the_end_does_not_depend_on_how_bytes_arrive)
{
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++) {
        const struct conv_format *format = find(images[i].format);
        uint8_t data[256] = {0};
        memcpy(data, images[i].data, images[i].size);
        memcpy(data + images[i].size, images[i].data, images[i].size);
        for (size_t step = 1; format && step <= 2 * images[i].size; step++) {
            check_steps(format, data, images[i].size, 2 * images[i].size, step);
            assert_int_equal(conv_format_end(format, data, 2 * images[i].size), images[i].size);
        }
        if (format) // truncated: all of it
            assert_int_equal(conv_format_end(format, data, images[i].size - 1), images[i].size - 1);
    }
}

UNIT_TEST(damage_is_noticed)
{
    static const struct {
        const char *format, *data;
        size_t size, at;
    } damaged[] = {
        {"PNM", BYTES("P6 2 x 255 .........."), 5},
        {"PNG", BYTES("\x89PNG\r\n\x1a\n\0\0\0\1IH\1R.crc."), 8},
        {"PNG", BYTES("\x89PNG\r\n\x1a\n\x80\0\0\0IHDR.crc."), 8},
        {"JPEG", BYTES("\xFF\xD8\xFF\xE1\0\4\xFF\xD9\x01\xDA\0\2ab"), 8},
        {"JPEG", BYTES("\xFF\xD8\xFF\xC0\0\1\xFF\xD9\xFF\xDA\0\2ab"), 2},
    };
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        const struct conv_format *format = find(damaged[i].format);
        size_t at = 0;
        uint64_t bytes;
        if (!format)
            continue;
        assert_false(
            format->extent((const uint8_t *)damaged[i].data, damaged[i].size, &at, &bytes));
        assert_int_equal(bytes, 0);
        assert_int_equal(at, damaged[i].at);
    }
}

UNIT_MAIN(NULL, NULL)
