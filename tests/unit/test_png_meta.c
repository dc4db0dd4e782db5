// SPDX-License-Identifier: MIT
// Which chunks are in the output, and where: those that are still true of a filtered image, byte
// for byte, the background in the output's colour type, and nothing else. Also which files are
// animations.

#include "png/png.h"
#include "support/png_make.h"
#include "support/unit.h"

static const uint8_t rows[2] = {0, 77}; // one gray pixel
static struct png_file file, wanted;
static size_t wanted_front; // bytes of `wanted` that come before the image data
static struct conv_image_header header;
static struct conv_metadata meta;

static int forget(void **)
{
    png_make_free(&file);
    png_make_free(&wanted);
    conv_metadata_free(&meta);
    return 0;
}

static void start_file_of(int color_type, int depth)
{
    png_make_free(&file);
    png_make_free(&wanted);
    png_make_head(&file, 1, 1, depth, color_type);
    header = (struct conv_image_header){
        .shape = {.width = 1, .height = 1, .depth = depth == 16 ? 16 : 8},
        .png = {.color_type = color_type, .bit_depth = depth}};
    wanted_front = 0;
}

static void start_file(void)
{
    start_file_of(0, 8);
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

static void add_image(void)
{
    struct png_file stream = png_make_zlib(rows, sizeof rows);
    png_make_chunk(&file, "IDAT", stream.data, stream.size);
    png_make_free(&stream);
    wanted_front = wanted.size;
}

static void collect(void)
{
    assert_true(
        conv_png_format.collect(file.data, file.size, &header, (struct conv_cleaning){0}, &meta));
    assert_int_equal(meta.bytes.size, wanted.size);
    assert_int_equal(meta.front, wanted_front);
    if (wanted.size > 0)
        assert_memory_equal(meta.bytes.data, wanted.data, wanted.size);
}

UNIT_TEST(carried_kinds)
{
    static const uint8_t long_text[65] = {0};
    start_file();
    add_carried("gAMA", "\0\0\xb1\x8f", 4);
    add_carried("cHRM", "01234567890123456789012345678901", 32);
    add_dropped("iCCP", "name\0\0not really compressed", 27);
    add_carried("iCCP", "name\0\0\x78\x9c\x4b\x4c\x4a\6\0\2\x4d\1\x27", 17);
    add_dropped("sBIT", "\5", 1);
    add_carried("sRGB", "\0", 1);
    add_carried("cICP", "\x09\x10\0\1", 4);
    add_carried("mDCV", "012345678901234567890123", 24);
    add_dropped("cLLI", "01234567", 8); // the brightest pixel may be another one now
    add_carried("bKGD", "\0\7", 2);
    add_carried("pHYs", "\0\0\x0b\x13\0\0\x0b\x13\1", 9);
    add_carried("oFFs", "\0\0\0\1\0\0\0\2\1", 9);
    add_dropped("oFFs", "\0\0\0\3\0\0\0\4\1", 9);
    add_carried("sCAL",
                "\1"
                "1\0"
                "2",
                4);
    add_carried("sTER", "\1", 1);
    add_dropped("tIME", "1234567", 7);
    add_dropped("hIST", "\0\1", 2);
    add_dropped("sPLT", "name\0\10123412", 12);
    add_dropped("pCAL",
                "name\0\0\0\0\0\0\0\0\1\0\2m\0"
                "0\0"
                "1",
                21);
    add_dropped("dSIG", "signed", 6);
    add_dropped("acTL", "\0\0\0\1\0\0\0\0", 8);
    add_dropped("fcTL", "01234567890123456789012345", 26);
    add_carried("tEXt", "Title\0one", 9);
    add_carried("tEXt", "Title\0two", 9);
    add_dropped("prVT", "unknown, unsafe to copy", 23);
    add_carried("prVt", "unknown, safe to copy", 21);
    add_carried("prVt", "unknown, safe to copy", 21);
    add_carried("vpAg", "\0\0\0\5\0\0\0\5\0", 9);
    add_carried("caNv", "\0\0\0\5\0\0\0\5\0\0\0\1\0\0\0\1", 16);
    add_dropped("prvt", "of a later version of PNG", 25);
    add_dropped("pr1t", "no name", 7);
    add_dropped("prVt", long_text, sizeof long_text); // may be an image
    add_dropped("tEXt", "", 0);
    add_image();
    add_dropped("zTXt", "Comment\0\0xyz", 12); // no zlib stream
    add_carried("zTXt", "Comment\0\0\x78\x9c\x4b\x4c\x4a\6\0\2\x4d\1\x27", 20);
    add_carried("iTXt", "Title\0\0\0de\0\0abc", 15);
    add_dropped("eXIf", "MM\0*\0\0\0\10", 8); // without a directory
    add_carried("eXIf", "MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0\6\0\0\0\0\0\0", 26);
    add_dropped("eXIf", "II*\0\10\0\0\0", 8);
    add_dropped("fdAT", "\0\0\0\2data", 8);
    add_dropped("tIME", "1234567", 7);
    add_dropped("prVT", "unknown, unsafe to copy", 23);
    add_carried("prVt", "unknown, safe to copy", 21);
    png_make_chunk(&file, "IEND", "", 0);
    png_make_chunk(&file, "tEXt", "Title\0after the end", 19);
    collect();
}

UNIT_TEST(first_of_each_single_kind)
{
    start_file();
    png_make_chunk(&file, "gAMA", "\0\0\1\0", 4);
    file.data[file.size - 1] ^= 1; // a wrong CRC: dropped, and does not count as the first
    add_carried("gAMA", "\0\0\2\0", 4);
    add_dropped("gAMA", "\0\0\3\0", 4);
    png_make_chunk(&file, "tEXt", "a\0b", 3);
    file.data[file.size - 1] ^= 1;
    add_image();
    // Without meaning after the image data.
    add_dropped("sRGB", "\0", 1);
    add_dropped("pHYs", "\0\0\x0b\x13\0\0\x0b\x13\1", 9);
    add_dropped("bKGD", "\0\0", 2);
    png_make_chunk(&file, "IEND", "", 0);
    collect();
}

UNIT_TEST(reused_for_the_next_image)
{
    start_file();
    add_carried("tEXt", "long\0long long long long long", 29);
    add_image();
    collect();
    size_t capacity = meta.bytes.capacity;
    start_file();
    add_carried("sRGB", "\1", 1);
    add_image();
    collect();
    assert_int_equal(meta.bytes.capacity, capacity);
    start_file();
    add_image();
    collect();
    assert_true(conv_png_format.collect(NULL, 0, &header, (struct conv_cleaning){0}, &meta));
    assert_int_equal(meta.bytes.size, 0);
    assert_int_equal(meta.front, 0);
}

// The output has 8 or 16 bits and no palette, so the background is converted to the colour that a
// reader would show.
UNIT_TEST(background_is_converted)
{
    static const struct {
        int color_type, depth;
        size_t size, wanted_size; // 0: dropped
        const char *data, *wanted;
    } cases[] = {
        {0, 1, 2, 2, "\0\1", "\0\xff"},
        {0, 2, 2, 2, "\0\2", "\0\xaa"},
        {0, 4, 2, 2, "\0\3", "\0\x33"},
        {0, 4, 2, 0, "\0\x10", NULL}, // more than 4 bits
        {0, 8, 2, 2, "\0\x80", "\0\x80"},
        {0, 8, 2, 0, "\1\0", NULL},
        {0, 8, 6, 0, "\0\1\0\2\0\3", NULL},
        {0, 16, 2, 2, "\x12\x34", "\x12\x34"},
        {4, 16, 2, 2, "\xff\xff", "\xff\xff"},
        {2, 8, 6, 6, "\0\1\0\2\0\xff", "\0\1\0\2\0\xff"},
        {2, 8, 6, 0, "\0\1\0\2\1\xff", NULL},
        {2, 8, 2, 0, "\0\1", NULL},
        {6, 16, 6, 6, "\1\1\2\2\3\3", "\1\1\2\2\3\3"},
        {3, 2, 1, 6, "\2", "\0g\0h\0i"},
        {3, 8, 1, 6, "\0", "\0a\0b\0c"},
        {3, 8, 1, 0, "\3", NULL}, // the palette has three entries
        {3, 8, 2, 0, "\0\1", NULL},
        {3, 8, 0, 0, "", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        start_file_of(cases[i].color_type, cases[i].depth);
        if (cases[i].color_type == 3)
            png_make_chunk(&file, "PLTE", "abcdefghi", 9);
        png_make_chunk(&file, "bKGD", cases[i].data, cases[i].size);
        if (cases[i].wanted)
            png_make_chunk(&wanted, "bKGD", cases[i].wanted, cases[i].wanted_size);
        add_image();
        collect();
    }
    start_file_of(3, 8);
    png_make_chunk(&file, "bKGD", "\0", 1); // before the palette that it is an index of
    png_make_chunk(&file, "PLTE", "abcdefghi", 9);
    add_image();
    collect();
}

// An animation has a valid acTL of more than one frame before the image data. Any chunk of APNG in
// any other file made it one, and it was refused.
UNIT_TEST(animations_are_known)
{
    enum { COUNT = 8 };
    static const struct {
        const char *actl;
        size_t size;
        bool late, damaged, animated;
    } kinds[COUNT] = {
        {"\0\0\0\2\0\0\0\0", 8, false, false, true},
        {"\177\377\377\377\0\0\0\1", 8, false, false, true},
        {"\0\0\0\1\0\0\0\0", 8, false, false, false},
        {"\0\0\0\0\0\0\0\0", 8, false, false, false},
        {"\200\0\0\2\0\0\0\0", 8, false, false, false},
        {"\0\0\0\2\0\0\0\0", 7, false, false, false},
        {"\0\0\0\2\0\0\0\0", 8, true, false, false},
        {"\0\0\0\2\0\0\0\0", 8, false, true, false},
    };
    assert_false(conv_png_format.is_animated(NULL, 0));
    for (size_t k = 0; k < COUNT; k++) {
        start_file();
        if (kinds[k].late)
            add_image();
        png_make_chunk(&file, "acTL", kinds[k].actl, kinds[k].size);
        file.data[file.size - 1] ^= kinds[k].damaged;
        png_make_chunk(&file, "fcTL", "12345678901234567890123456", 26);
        if (!kinds[k].late)
            add_image();
        png_make_chunk(&file, "fdAT", "12345678", 8);
        assert_int_equal(conv_png_format.is_animated(file.data, file.size), kinds[k].animated);
        assert_false(conv_png_format.is_animated(file.data, 40));
    }
}

// Every truncation, and a length that reaches beyond the data.
UNIT_TEST(stays_within_the_data)
{
    start_file();
    add_carried("tEXt", "a\0b", 3);
    add_carried("sRGB", "\0", 1);
    for (size_t size = 0; size <= file.size; size++) {
        struct png_file part = {0};
        png_make_bytes(&part, file.data, size);
        assert_true(conv_png_format.collect(part.data, part.size, &header,
                                            (struct conv_cleaning){0}, &meta));
        size_t whole = size == file.size ? wanted.size : size >= file.size - 13 ? 15 : 0;
        assert_int_equal(meta.bytes.size, whole);
        png_make_free(&part);
    }
    file.data[33] = 0x7f;
    png_make_free(&wanted);
    collect();
}

UNIT_MAIN_EACH(NULL, forget)
