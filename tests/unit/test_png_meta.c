// SPDX-License-Identifier: MIT
// What describes colours and print, and the texts, arrive in the output byte for byte.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/picture.h"
#include "support/png_make.h"

static const uint8_t rows[2] = {0, 77}; // one gray pixel
static struct png_file file, wanted;
static struct conv_png_meta meta;

static int forget(void **state)
{
    (void)state;
    png_make_free(&file);
    png_make_free(&wanted);
    conv_png_meta_free(&meta);
    return 0;
}

static void start_file(void)
{
    png_make_free(&file);
    png_make_free(&wanted);
    png_make_head(&file, 1, 1, 8, 0);
}

// Adds a chunk that must be carried over, and one that must not.
static void add_carried(const char *type, const void *data, size_t size)
{
    png_make_chunk(&file, type, data, size);
    png_make_chunk(&wanted, type, data, size);
}

static void add_dropped(const char *type, const void *data, size_t size)
{
    png_make_chunk(&file, type, data, size);
}

static void add_picture(void)
{
    struct png_file stream = png_make_zlib(rows, sizeof rows);
    png_make_chunk(&file, "IDAT", stream.data, stream.size);
    png_make_free(&stream);
}

static void collect(void)
{
    assert_int_equal(conv_png_meta_collect(file.data, file.size, &meta, NULL), CONV_OK);
    assert_int_equal(meta.size, wanted.size);
    if (wanted.size > 0)
        assert_memory_equal(meta.data, wanted.data, wanted.size);
}

static void carried_kinds(void **state)
{
    (void)state;
    start_file();
    add_carried("gAMA", "\0\0\xb1\x8f", 4);
    add_carried("cHRM", "01234567890123456789012345678901", 32);
    add_carried("iCCP", "name\0\0not really compressed", 27);
    add_dropped("sBIT", "\5", 1);
    add_carried("sRGB", "\0", 1);
    add_carried("cICP", "\x09\x10\0\1", 4);
    add_carried("mDCV", "012345678901234567890123", 24);
    add_carried("cLLI", "01234567", 8);
    add_dropped("bKGD", "\0\0", 2);
    add_carried("pHYs", "\0\0\x0b\x13\0\0\x0b\x13\1", 9);
    add_dropped("tIME", "1234567", 7);
    add_carried("tEXt", "Title\0one", 9);
    add_carried("tEXt", "Title\0two", 9);
    add_dropped("prVt", "unknown", 7);
    add_carried("tEXt", "", 0);
    add_picture();
    add_carried("zTXt", "Comment\0\0xyz", 12);
    add_carried("iTXt", "Title\0\0\0de\0\0abc", 15);
    add_carried("eXIf", "MM\0*\0\0\0\10", 8);
    add_dropped("eXIf", "II*\0\10\0\0\0", 8);
    png_make_chunk(&file, "IEND", "", 0);
    png_make_chunk(&file, "tEXt", "Title\0after the end", 19);
    collect();
}

static void first_of_each_single_kind(void **state)
{
    (void)state;
    start_file();
    png_make_chunk(&file, "gAMA", "\0\0\1\0", 4);
    file.data[file.size - 1] ^= 1; // a wrong CRC: dropped, and does not count as the first
    add_carried("gAMA", "\0\0\2\0", 4);
    add_dropped("gAMA", "\0\0\3\0", 4);
    png_make_chunk(&file, "tEXt", "a\0b", 3);
    file.data[file.size - 1] ^= 1;
    add_picture();
    // Without meaning after the picture data: must not come into force by being moved.
    add_dropped("sRGB", "\0", 1);
    add_dropped("pHYs", "\0\0\x0b\x13\0\0\x0b\x13\1", 9);
    png_make_chunk(&file, "IEND", "", 0);
    collect();
}

static void reused_for_the_next_picture(void **state)
{
    (void)state;
    start_file();
    add_carried("tEXt", "long\0long long long long long", 29);
    add_picture();
    collect();
    size_t capacity = meta.capacity;
    start_file();
    add_carried("sRGB", "\1", 1);
    add_picture();
    collect();
    assert_int_equal(meta.capacity, capacity);
    start_file();
    add_picture();
    collect();
    assert_int_equal(conv_png_meta_collect(NULL, 0, &meta, NULL), CONV_OK);
    assert_int_equal(meta.size, 0);
}

// Every truncation, and a length that reaches beyond the data.
static void stays_within_the_data(void **state)
{
    (void)state;
    start_file();
    add_carried("tEXt", "a\0b", 3);
    add_carried("sRGB", "\0", 1);
    for (size_t size = 0; size <= file.size; size++) {
        struct png_file part = {0};
        png_make_bytes(&part, file.data, size);
        assert_int_equal(conv_png_meta_collect(part.data, part.size, &meta, NULL), CONV_OK);
        size_t whole = size == file.size ? wanted.size : size >= file.size - 13 ? 15 : 0;
        assert_int_equal(meta.size, whole);
        png_make_free(&part);
    }
    file.data[33] = 0x7f;
    png_make_free(&wanted);
    collect();
}

static void carried_through_both_encoders(void **state)
{
    (void)state;
    start_file();
    add_carried("pHYs", "\0\0\x0b\x13\0\0\x0b\x13\1", 9);
    add_picture();
    add_carried("tEXt", "Title\0of a picture", 18);
    png_make_chunk(&file, "IEND", "", 0);
    collect();
    for (int encoder = CONV_PNG_FAST; encoder <= CONV_PNG_STB; encoder++) {
        struct conv_image picture, back;
        struct conv_err err;
        struct conv_png_codec *codec;
        struct conv_png_config config = {.encoder = (enum conv_png_encoder)encoder, .level = -1};
        struct conv_png_bytes bytes;
        struct png_file output = {0};
        assert_int_equal(picture_decode(&picture, file.data, file.size, &err), CONV_OK);
        assert_int_equal(conv_png_codec_open(&codec, &config, &err), CONV_OK);
        assert_int_equal(conv_png_encode(codec, &picture, &meta, &bytes, &err), CONV_OK);
        for (int i = 0; i < CONV_PNG_PARTS; i++)
            png_make_bytes(&output, bytes.part[i].data, bytes.part[i].size);
        assert_int_equal(output.size, bytes.size);
        conv_png_codec_close(codec);

        // Right behind IHDR, before anything else.
        size_t at = png_make_find(&output, "pHYs", 0);
        assert_int_equal(at, 33);
        assert_memory_equal(output.data + at, wanted.data, wanted.size);
        assert_int_equal(png_make_find(&output, "IDAT", 0), 33 + wanted.size);
        assert_int_equal(picture_decode(&back, output.data, output.size, &err), CONV_OK);
        assert_int_equal(picture_sample(&back, 0, 0, 0), 77);
        picture_free(&back);
        picture_free(&picture);
        png_make_free(&output);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, forget)
    const struct CMUnitTest tests[] = {
        TEST(carried_kinds),
        TEST(first_of_each_single_kind),
        TEST(reused_for_the_next_picture),
        TEST(stays_within_the_data),
        TEST(carried_through_both_encoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
