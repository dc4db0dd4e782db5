// SPDX-License-Identifier: MIT
// Where an image in a stream ends: the same however much of it, and of what follows, is there.
#include <string.h>

#include "io/files/formats.h"
#include "support/unit.h"

#define BYTES(text) text, sizeof(text) - 1

static const struct {
    const char *data;
    size_t size;
} images[] = {
    {BYTES("P6 #\n2 1 255\n\1\2\3\4\5\6")},
    {BYTES("P4 9 1\n\xFF\0")},
    {BYTES("P7\nWIDTH 1\nHEIGHT 2\nDEPTH 2\nMAXVAL 256\nENDHDR\n\0\1\0\2\0\1\0\2")},
    {BYTES("\x89PNG\r\n\x1a\n\0\0\0\1IHDR.crc.\0\0\0\0IDATcrc.\0\0\0\0IENDcrc.")},
    // FF D9 in a segment, a stuffed FF, restarts, fill bytes, a second scan.
    {BYTES("\xFF\xD8\xFF\xE1\0\4\xFF\xD9\xFF\xDA\0\2ab\xFF\0\xFF\xD0\xD9\xFF\xFF\xDA\0\3x"
           "yz\xFF\xFF\xD9")},
    // A strip before its directory; after it, with Exif; a tile in a BigTIFF.
    {BYTES("II*\0\12\0\0\0ab\2\0\21\1\4\0\1\0\0\0\10\0\0\0\27\1\4\0\1\0\0\0\2\0\0\0\0\0\0\0")},
    {BYTES(
        "MM\0*\0\0\0\10\0\3\1\21\0\4\0\0\0\2\0\0\0002\1\27\0\3\0\0\0\2\0\2\0\1\207i\0\4\0\0\0\1\0"
        "\0\0>\0\0\0\0\0\0\0P\0\0\0R\0\0\0\0\0\1\220\0\0\7\0\0\0\0040201\0\0\0\0xyz")},
    {BYTES("II+\0\10\0\0\0\22\0\0\0\0\0\0\0ab\2\0\0\0\0\0\0\0D\1\20\0\1\0\0\0\0\0\0\0\20\0\0\0\0"
           "\0\0\0E\1\20\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")},
};

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
        const struct conv_format *format;
        uint8_t data[256] = {0};
        memcpy(data, images[i].data, images[i].size);
        memcpy(data + images[i].size, images[i].data, images[i].size);
        if (conv_formats_check(&format, data, sizeof data, true, NULL)) // not in this build
            continue;
        for (size_t step = 1; step <= 2 * images[i].size; step++) {
            check_steps(format, data, images[i].size, 2 * images[i].size, step);
            assert_int_equal(conv_format_end(format, data, 2 * images[i].size), images[i].size);
        }
        // Truncated: all of it.
        assert_int_equal(conv_format_end(format, data, images[i].size - 1), images[i].size - 1);
    }
}

UNIT_TEST(damage_is_noticed)
{
    static const struct {
        const char *data;
        size_t size, at;
    } damaged[] = {
        {BYTES("P6 2 x 255 .........."), 5},
        {BYTES("\x89PNG\r\n\x1a\n\0\0\0\1IH\1R.crc."), 8},
        {BYTES("\x89PNG\r\n\x1a\n\x80\0\0\0IHDR.crc."), 8},
        {BYTES("\xFF\xD8\xFF\xE1\0\4\xFF\xD9\x01\xDA\0\2ab"), 8},
        {BYTES("\xFF\xD8\xFF\xC0\0\1\xFF\xD9\xFF\xDA\0\2ab"), 2},
        {BYTES("MM\0*\0\0\0\0........"), 0}, // no directory
    };
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        const uint8_t *data = (const uint8_t *)damaged[i].data;
        const struct conv_format *format;
        size_t at = 0;
        uint64_t bytes;
        if (conv_formats_check(&format, data, damaged[i].size, true, NULL))
            continue;
        assert_false(format->extent(data, damaged[i].size, &at, &bytes));
        assert_int_equal(bytes, 0);
        assert_int_equal(at, damaged[i].at);
    }
}

UNIT_MAIN(NULL, NULL)
