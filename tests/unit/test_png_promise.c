// SPDX-License-Identifier: MIT
// Headers that promise more pixels than the image data can make, or fewer: refused before memory is
// allocated for them; and headers of other files.
#include "support/png_make.h"
#include "support/test_image.h"
#include "support/unit.h"

static struct png_file file;

static int forget_file(void **)
{
    png_make_free(&file);
    return 0;
}

static enum conv_status check_promise(struct conv_err *err)
{
    struct conv_image_header header;
    *err = (struct conv_err){0};
    if (conv_png_format.probe(file.data, file.size, &header, err))
        fail_msg("%s", err->text);
    return conv_png_format.check_size(file.data, file.size, &header, err);
}

// A header is accepted if there is a byte of image data for every 1032 bytes of its rows, or part
// of that: DEFLATE does not expand further.
UNIT_TEST(image_data_must_suffice_for_the_header)
{
    static const struct {
        int width, height, depth, color_type;
        bool interlaced;
        size_t least; // bytes of image data; SIZE_MAX: far more than here
    } cases[] = {
        {1, 1, 1, 0, false, 1},
        {1031, 1, 8, 0, false, 1}, // 1 + 1031
        {1032, 1, 8, 0, false, 2}, // 1 + 1032
        {1, 516, 1, 0, false, 1},  // 516 x (1 + 1)
        {1, 517, 1, 0, false, 2},  // the filters' bytes count
        {8, 8, 16, 6, false, 1},   // 8 x (1 + 64)
        {8, 8, 8, 2, true, 1},     // 15 rows, 8 x 8 x 3 samples
        {32, 32, 8, 0, true, 2},   // 60 rows in seven passes and 1024 samples
        {31, 31, 8, 0, true, 1},   // 59 rows and 961 samples: 1020
        {1 << 14, 1 << 14, 16, 6, false, SIZE_MAX},
        {0x7fffffff, 0x7fffffff, 1, 0, false, SIZE_MAX},
        {0x7fffffff, 0x7fffffff, 16, 6, false, SIZE_MAX}, // beyond 64 bits
        {0x7fffffff, 0x7fffffff, 16, 6, true, SIZE_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t least = cases[i].least;
        bool possible = least <= 4096;
        struct conv_err err;
        for (int too_little = possible ? 0 : 1; too_little < 2; too_little++) {
            static const uint8_t nothing[4096];
            size_t have = possible ? least - (size_t)too_little : sizeof nothing;
            png_make_free(&file);
            png_make_head(&file, cases[i].width, cases[i].height, cases[i].depth,
                          cases[i].color_type);
            file.data[28] = cases[i].interlaced;
            png_make_crc(&file, 8);
            png_make_chunk(&file, "IDAT", nothing, have / 2);
            png_make_chunk(&file, "IDAT", nothing, have - have / 2);
            enum conv_status status = check_promise(&err);
            if (status != (too_little ? CONV_ERR_FORMAT : CONV_OK) ||
                (too_little && !strstr(err.text, "damaged: ")))
                fail_msg("case %zu, %zu bytes: status %d, '%s'", i, have, status, err.text);
        }
    }
}

// 15 bytes of rows; 16 times that and a MiB are accepted.
UNIT_TEST(too_much_image_data)
{
    enum { MOST = (1 << 20) + 16 * 15 + 15 };
    struct conv_err err;
    uint8_t *nothing = calloc(1, MOST + 1);
    assert_non_null(nothing);
    for (size_t size = MOST; size <= MOST + 1; size++) {
        png_make_free(&file);
        png_make_head(&file, 4, 3, 8, 0);
        png_make_chunk(&file, "IDAT", nothing, size);
        assert_int_equal(check_promise(&err), size == MOST ? CONV_OK : CONV_ERR_FORMAT);
    }
    assert_non_null(strstr(err.text, "damaged: too much image data (1048832 B)"));
    free(nothing);
}

// Truncated data is reported as such, and its existing bytes count.
UNIT_TEST(promise_of_a_truncated_file)
{
    struct conv_err err;
    png_make_head(&file, 1032, 1, 8, 0);
    png_make_chunk(&file, "IDAT", "", 0);
    png_make_chunk(&file, "IDAT", "12345", 5);
    file.size -= 4 + 3; // two bytes are left
    assert_ok(check_promise(&err));
    file.size -= 1;
    assert_int_equal(check_promise(&err), CONV_ERR_FORMAT);
    assert_non_null(strstr(err.text, "truncated: too little image data (1 B)"));
}

// The other side of the bound: what zlib makes of nothing but zeros must pass it.
UNIT_TEST(best_compression_is_believed)
{
    enum { WIDTH = 4096, HEIGHT = 1024 };
    uint8_t *rows = calloc(HEIGHT, WIDTH + 1);
    assert_non_null(rows);
    struct png_file stream = png_make_zlib(rows, (size_t)HEIGHT * (WIDTH + 1));
    struct conv_image image;
    struct conv_err err;
    png_make_head(&file, WIDTH, HEIGHT, 8, 0);
    png_make_chunk(&file, "IDAT", stream.data, stream.size);
    png_make_chunk(&file, "IEND", "", 0);
    assert_true(stream.size < (size_t)HEIGHT * (WIDTH + 1) / 1000);
    if (image_decode(&image, file.data, file.size, &err) != CONV_OK)
        fail_msg("%s", err.text);
    image_free(&image);
    png_make_free(&stream);
    free(rows);
}

// The file changed between probing and decoding, or the caller mixed two up.
UNIT_TEST(header_of_another_file)
{
    static const uint8_t rows[3 * 5] = {0};
    static const struct {
        int width, height, depth, color_type;
    } others[] = {{4, 2, 8, 0}, {3, 3, 8, 0},  {5, 3, 8, 0}, {4, 4, 8, 0},
                  {4, 3, 4, 0}, {4, 3, 16, 0}, {4, 3, 8, 4}, {4, 3, 8, 2}};
    struct conv_codec *codec = image_codec(NULL, -1);
    struct png_file stream = png_make_zlib(rows, sizeof rows);
    png_make_head(&file, 4, 3, 8, 0);
    png_make_chunk(&file, "IDAT", stream.data, stream.size);
    png_make_chunk(&file, "IEND", "", 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct conv_image_header header;
        struct png_file other = {0};
        png_make_head(&other, others[i].width, others[i].height, others[i].depth,
                      others[i].color_type);
        png_make_chunk(&other, "IDAT", "", 0);
        assert_ok(conv_png_format.probe(other.data, other.size, &header, NULL));
        struct conv_image image = header.shape;
        image_alloc(&image, 0);
        // 4 bits ask for 8 as well: the same pixels.
        assert_int_equal(
            conv_png_format.decode(codec, file.data, file.size, &header, &image, NULL, NULL),
            others[i].depth == 4 ? CONV_OK : CONV_ERR_FORMAT);
        image_free(&image);
        png_make_free(&other);
    }
    png_make_free(&stream);
    conv_codec_close(codec);
}

UNIT_MAIN_EACH(NULL, forget_file)
