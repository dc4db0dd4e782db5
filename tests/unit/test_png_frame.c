// SPDX-License-Identifier: MIT
// The interface to coders on a device: the zlib stream of a file, and the file around image data.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/png_make.h"
#include "support/test_image.h"

static const uint8_t rows[] = {0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9}; // 1 x 3 pixels in RGB

// A file of 1 x 3 pixels whose stream is cut into chunks of `step` bytes.
static struct png_file make_file(const struct png_file *stream, size_t step, int color_type)
{
    struct png_file file = {0};
    png_make_head(&file, 1, 3, 8, color_type);
    for (size_t at = 0; at < stream->size; at += step)
        png_make_chunk(&file, "IDAT", stream->data + at,
                       stream->size - at < step ? stream->size - at : step);
    png_make_chunk(&file, "IEND", NULL, 0);
    return file;
}

// *stream: malloc'ed, as large as the file, and so that writing after its end is detected.
static bool copy(const struct png_file *file, uint8_t **stream, size_t *size)
{
    struct conv_image_header header;
    *stream = malloc(file->size);
    assert_non_null(*stream);
    assert_int_equal(conv_png_format.probe(file->data, file->size, &header, NULL), CONV_OK);
    return conv_png_format.device->copy_stream(*stream, size, file->data, file->size, &header);
}

static void stream_is_joined(void **state)
{
    (void)state;
    struct png_file stream = png_make_zlib(rows, sizeof rows);
    for (size_t step = 1; step <= stream.size; step++) {
        struct png_file file = make_file(&stream, step, 2);
        uint8_t *copied;
        size_t size;
        assert_true(copy(&file, &copied, &size));
        assert_int_equal(size, stream.size);
        assert_memory_equal(copied, stream.data, size);
        free(copied);
        png_make_free(&file);
    }
    png_make_free(&stream);
}

// Frees the file.
static void refuse(struct png_file *file)
{
    uint8_t *copied;
    size_t size;
    assert_false(copy(file, &copied, &size));
    free(copied);
    png_make_free(file);
}

static void odd_files_have_none(void **state)
{
    (void)state;
    struct png_file stream = png_make_zlib(rows, sizeof rows), file = make_file(&stream, 4, 2);
    struct png_file more = {0};
    file.data[png_make_find(&file, "IDAT", 1) + 8] ^= 1; // its CRC is wrong now
    refuse(&file);

    file = make_file(&stream, 4, 2); // an ancillary chunk between image data
    png_make_chunk(&more, "tEXt", "a\0b", 3);
    png_make_insert(&file, png_make_find(&file, "IDAT", 1), &more);
    refuse(&file);
    png_make_free(&more);

    file = make_file(&stream, 4, 2); // a colour that is to be transparent
    png_make_chunk(&more, "tRNS", "\0\1\0\1\0\1", 6);
    png_make_insert(&file, png_make_find(&file, "IDAT", 0), &more);
    refuse(&file);
    png_make_free(&more);
    png_make_free(&stream);
}

static void frame_makes_a_file(void **state)
{
    (void)state;
    struct conv_codec *codec;
    struct conv_codec_config config = {.level = -1};
    assert_int_equal(conv_png_format.open(&codec, &config, NULL), CONV_OK);
    struct png_file stream = png_make_zlib(rows, sizeof rows), idat = {0}, file = {0}, text = {0};
    png_make_chunk(&idat, "IDAT", stream.data, stream.size);
    png_make_chunk(&text, "tEXt", "a\0b", 3);
    struct conv_image shape = {.width = 1, .height = 3, .channels = 3, .depth = 8}, back;
    struct conv_metadata meta = {.data = text.data, .size = text.size, .front = text.size};
    struct conv_encoded bytes;
    struct conv_err err = {0};
    conv_png_format.device->frame(codec, &shape, &meta, idat.data, idat.size, &bytes);
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        png_make_bytes(&file, bytes.part[i].data, bytes.part[i].size);
    assert_int_equal(file.size, bytes.size);
    assert_int_equal(png_make_find(&file, "tEXt", 0), 33);
    if (image_decode(&back, file.data, file.size, &err) != CONV_OK)
        fail_msg("%s", err.text);
    for (int y = 0; y < 3; y++)
        for (int c = 0; c < 3; c++)
            assert_int_equal(image_sample(&back, c, 0, y), 1 + 3 * y + c);
    image_free(&back);
    png_make_free(&file);
    png_make_free(&text);
    png_make_free(&idat);
    png_make_free(&stream);
    conv_png_format.close(codec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_is_joined),
        cmocka_unit_test(odd_files_have_none),
        cmocka_unit_test(frame_makes_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
