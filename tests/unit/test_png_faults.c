// SPDX-License-Identifier: MIT
// Damaged and hostile files: refused with a reason, or accepted if the standard or png.h says so.
// Most cases are useful mainly under a sanitizer.
#include <stdio.h>

#include "support/png_make.h"
#include "support/test_image.h"
#include "support/unit.h"

static struct png_file file;
static struct png_file stream; // of gray_rows

// 4 x 3 gray pixels from any bytes as the zlib stream.
static void make_gray_file(const void *zlib, size_t size)
{
    png_make_free(&file);
    png_make_head(&file, 4, 3, 8, 0);
    png_make_chunk(&file, "IDAT", zlib, size);
    png_make_chunk(&file, "IEND", "", 0);
}

static const uint8_t gray_rows[3 * 5] = {0, 1, 2, 3, 4, 0, 5, 6, 7, 8, 0, 9, 10, 11, 12};

static int start(void **state)
{
    (void)state;
    stream = png_make_zlib(gray_rows, sizeof gray_rows);
    return 0;
}

static int forget(void **state)
{
    (void)state;
    png_make_free(&file);
    png_make_free(&stream);
    return 0;
}

static void make_sound_file(void)
{
    make_gray_file(stream.data, stream.size);
}

// Decodes the first `size` bytes of `file` from memory that ends there.
static enum conv_status decode(size_t size, struct conv_image *image, struct conv_err *err)
{
    struct png_file part = {0};
    *err = (struct conv_err){0};
    png_make_bytes(&part, file.data, size);
    enum conv_status status = image_decode(image, part.data, part.size, err);
    png_make_free(&part);
    return status;
}

static void refuse_part(size_t size, const char *reason)
{
    struct conv_image image;
    struct conv_err err;
    enum conv_status status = decode(size, &image, &err);
    if (status != CONV_ERR_FORMAT || err.status != CONV_ERR_FORMAT || !strstr(err.text, reason))
        fail_msg("status %d, '%s' does not say '%s'", status, err.text, reason);
    image_free(&image);
}

static void refuse(const char *reason)
{
    refuse_part(file.size, reason);
}

static void accept_gray(void)
{
    struct conv_image image;
    struct conv_err err;
    if (decode(file.size, &image, &err) != CONV_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < 12; i++)
        assert_int_equal(image_sample(&image, 0, i % 4, i / 4), i + 1);
    image_free(&image);
}

// 7 x 5 pixels of 8 bits, every kind of critical chunk in it.
static void make_palette_file(bool interlaced)
{
    uint16_t samples[7 * 5];
    for (int i = 0; i < 7 * 5; i++)
        samples[i] = (uint16_t)(i * i % 16);
    png_make_free(&file);
    png_make_image(&file, &(struct png_spec){.width = 7,
                                             .height = 5,
                                             .color_type = 3,
                                             .depth = 8,
                                             .interlaced = interlaced,
                                             .palette_size = 16,
                                             .transparency = true,
                                             .samples = samples});
}

// --- truncation and CRCs -------------------------------------------------------------------------

UNIT_TEST(truncated_at_every_byte)
{
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        make_palette_file(interlaced);
        refuse_part(0, "empty file");
        for (size_t size = 1; size < file.size; size++)
            refuse_part(size, "truncated: ");
        struct conv_image image;
        struct conv_err err;
        assert_int_equal(decode(file.size, &image, &err), CONV_OK);
        image_free(&image);
    }
}

UNIT_TEST(wrong_crc_of_each_critical_chunk)
{
    static const char *const types[] = {"IHDR", "PLTE", "IDAT", "IEND"};
    for (size_t i = 0; i < 4; i++) {
        make_palette_file(false);
        size_t at = png_make_find(&file, types[i], 0);
        size_t length = file.data[at + 2] * 256u + file.data[at + 3];
        assert_true(at < file.size);
        file.data[at + 8 + length + 1] ^= 0x10;
        refuse("CRC");
    }
}

// --- headers -------------------------------------------------------------------------------------

UNIT_TEST(no_png_at_all)
{
    png_make_bytes(&file, "GIF89a, and so on and so forth", 30);
    refuse("a GIF, not a PNG");
    refuse_part(3, "not a PNG (bad signature)");
    png_make_free(&file);
    png_make_bytes(&file, "\xFF\xD8\xFF\xE0 and so on and so forth", 27);
    refuse("a JPEG, not a PNG");
    png_make_free(&file);
    png_make_bytes(&file, "neither of both, nor anything else", 30);
    refuse("not a PNG (bad signature)");
}

UNIT_TEST(bad_headers)
{
    static const struct {
        size_t field;
        uint8_t value;
        const char *reason;
    } cases[] = {
        {0, 0x80, "bad header: 2147483652 x 3 pixels"},
        {3, 0, "bad header: 0 x 3 pixels"},
        {7, 0, "bad header: 4 x 0 pixels"},
        {8, 3, "bad header: colour type 0 with 3 bits"},
        {8, 0, "bad header: colour type 0 with 0 bits"},
        {8, 32, "bad header: colour type 0 with 32 bits"},
        {9, 1, "bad header: colour type 1 with 8 bits"},
        {9, 5, "bad header: colour type 5 with 8 bits"},
        {9, 7, "bad header: colour type 7 with 8 bits"},
        {9, 255, "bad header: colour type 255 with 8 bits"},
        {10, 1, "bad header: unknown method"},
        {11, 64, "bad header: unknown method"},
        {12, 2, "bad header: unknown method"},
        {9, 3, "damaged: no palette"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_sound_file();
        file.data[16 + cases[i].field] = cases[i].value;
        png_make_crc(&file, 8);
        refuse(cases[i].reason);
    }
}

UNIT_TEST(chunks_out_of_order)
{
    png_make_bytes(&file, "\x89PNG\r\n\x1a\n", 8);
    png_make_chunk(&file, "IDAT", "1234567890123", 13);
    refuse("the first chunk is not IHDR");
    png_make_free(&file);
    png_make_head(&file, 4, 3, 8, 0);
    png_make_chunk(&file, "IEND", "", 0);
    refuse("no image data");
    png_make_free(&file);
    png_make_head(&file, 4, 3, 8, 3);
    png_make_chunk(&file, "PLTE", "1234", 4);
    refuse("palette of 4 bytes");
    png_make_free(&file);
    png_make_head(&file, 4, 3, 8, 0);
    png_make_chunk(&file, "ABCD", "", 0);
    png_make_chunk(&file, "IDAT", "x", 1);
    png_make_chunk(&file, "IEND", "", 0);
    refuse("damaged image: ABCD: unhandled critical chunk");
}

UNIT_TEST(impossible_chunk_lengths)
{
    static const uint8_t lengths[] = {0x7f, 0x80, 0xff};
    for (size_t i = 0; i < sizeof lengths; i++) {
        for (int late = 0; late < 2; late++) {
            struct png_file text = {0};
            make_sound_file();
            png_make_chunk(&text, "tEXt", "a\0b", 3);
            text.data[0] = lengths[i];
            png_make_insert(&file, png_make_find(&file, late ? "IEND" : "IDAT", 0), &text);
            png_make_free(&text);
            refuse(late ? "" : lengths[i] == 0x7f ? "truncated" : "impossible chunk length");
        }
    }
}

// --- image data: the zlib stream and its sum -----------------------------------------------------

UNIT_TEST(adler32_is_checked)
{
    make_sound_file();
    accept_gray();
    for (size_t i = 1; i <= 4; i++) {
        stream.data[stream.size - i] ^= 1;
        make_sound_file();
        refuse("damaged image: IDAT: incorrect data check");
        stream.data[stream.size - i] ^= 1;
        make_gray_file(stream.data, stream.size - i); // cut off
        refuse("damaged image: Not enough image data");
    }
}

UNIT_TEST(bytes_after_the_zlib_stream)
{
    png_make_bytes(&stream, "left over", 9);
    make_sound_file();
    accept_gray();
}

// --- other files and chunks ----------------------------------------------------------------------

UNIT_TEST(bytes_after_iend)
{
    make_sound_file();
    png_make_bytes(&file, "whatever follows", 16);
    accept_gray();
}

// The file changed between probing and decoding, or the caller mixed two up.
UNIT_TEST(header_of_another_file)
{
    static const struct {
        int width, height, depth, color_type;
    } others[] = {{4, 2, 8, 0}, {3, 3, 8, 0},  {5, 3, 8, 0}, {4, 4, 8, 0},
                  {4, 3, 4, 0}, {4, 3, 16, 0}, {4, 3, 8, 4}, {4, 3, 8, 2}};
    struct conv_codec *codec = image_codec(NULL, -1);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct conv_image_header header;
        struct conv_err err = {0};
        png_make_free(&file);
        png_make_head(&file, others[i].width, others[i].height, others[i].depth,
                      others[i].color_type);
        png_make_chunk(&file, "IDAT", "", 0);
        assert_int_equal(conv_png_format.probe(file.data, file.size, &header, &err), CONV_OK);
        struct conv_image image = header.shape;
        image_alloc(&image, 0);
        make_sound_file();
        enum conv_status status =
            conv_png_format.decode(codec, file.data, file.size, &header, &image, NULL, &err);
        if (others[i].depth == 4) // asks for 8 bits as well: the same pixels
            assert_int_equal(status, CONV_OK);
        else
            assert_int_equal(status, CONV_ERR_FORMAT);
        image_free(&image);
    }
    conv_codec_close(codec);
}

// Chunks that are carried over unchanged are not examined, so that none of them can make an image
// fail or expand: a broken profile, and a text of 64 MB in 64 KB.
UNIT_TEST(metadata_is_not_unpacked)
{
    static uint8_t nothing[1 << 26];
    struct png_file bomb = png_make_zlib(nothing, sizeof nothing);
    struct png_file chunks = {0}, text = {0};
    png_make_bytes(&text, "Comment\0\0", 9);
    png_make_bytes(&text, bomb.data, bomb.size);
    png_make_chunk(&chunks, "zTXt", text.data, text.size);
    png_make_chunk(&chunks, "iCCP", text.data, text.size);
    png_make_chunk(&chunks, "sRGB", "\x09", 1);
    png_make_chunk(&chunks, "gAMA", "\0\0\0", 3);
    png_make_chunk(&chunks, "eXIf", "?", 1);
    make_sound_file();
    png_make_insert(&file, png_make_find(&file, "IDAT", 0), &chunks);
    png_make_insert(&file, png_make_find(&file, "IEND", 0), &chunks);
    accept_gray();
    chunks.data[20] ^= 1; // wrong CRC
    png_make_insert(&file, png_make_find(&file, "IDAT", 0), &chunks);
    accept_gray();
    png_make_free(&text);
    png_make_free(&chunks);
    png_make_free(&bomb);
}

UNIT_MAIN_EACH(start, forget)
