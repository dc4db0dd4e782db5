// SPDX-License-Identifier: MIT
// PNG as a row of the table of formats: files of every kind.
#include "support/png_make.h"
#include "support/test_image.h"
#include "support/unit.h"

enum { WIDTH = 5, HEIGHT = 3 };

static const struct kind {
    int color_type, depth;
    bool interlaced, transparency;
    bool device_stream;
    bool looks_decodable; // a tRNS chunk comes after the bytes that are looked at
} kinds[] = {
    {0, 8, false, false, true, true},   {2, 16, false, false, true, true},
    {4, 8, false, false, true, true},   {6, 16, false, false, true, true},
    {0, 1, false, false, false, false}, {3, 4, false, true, false, false},
    {2, 8, false, true, false, true},   {6, 8, true, false, false, false},
    {3, 8, false, false, false, false},
};

static struct png_file make_file(const struct kind *kind)
{
    uint16_t samples[WIDTH * HEIGHT * 4];
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        samples[i] = (uint16_t)(i * 37 % (1u << kind->depth));
    struct png_spec spec = {.width = WIDTH,
                            .height = HEIGHT,
                            .color_type = kind->color_type,
                            .depth = kind->depth,
                            .interlaced = kind->interlaced,
                            .palette_size = kind->color_type == 3 ? 16 : 0,
                            .transparency = kind->transparency,
                            .samples = samples};
    struct png_file file = {0}, text = {0};
    png_make_image(&file, &spec);
    png_make_chunk(&text, "tEXt", "a\0b", 3);
    png_make_insert(&file, png_make_find(&file, "IDAT", 0), &text);
    png_make_free(&text);
    return file;
}

// The stream that a device would decode is put into a file again like the device's output.
UNIT_TEST(a_stream_is_taken_out_and_framed)
{
    const struct conv_format *format = &conv_png_format;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct png_file file = make_file(&kinds[i]), chunk = {0}, framed = {0};
        assert_int_equal(format->device->looks_decodable(file.data, file.size),
                         kinds[i].looks_decodable);
        struct conv_image_header header;
        assert_ok(format->probe(file.data, file.size, &header, NULL));
        uint8_t *stream = malloc(file.size);
        size_t stream_bytes;
        bool copied =
            format->device->copy_stream(stream, &stream_bytes, file.data, file.size, &header);
        assert_int_equal(copied, kinds[i].device_stream);
        if (copied) {
            struct conv_codec *codec = image_codec(NULL, -1);
            struct conv_encoded parts;
            struct conv_metadata metadata = {0};
            struct conv_image a, b;
            png_make_chunk(&chunk, "IDAT", stream, stream_bytes);
            assert_true(format->collect(file.data, file.size, &header, (struct conv_cleaning){0},
                                        &metadata));
            format->device->frame(codec, &header.shape, NULL, &metadata, chunk.data, chunk.size,
                                  &parts);
            image_join(&framed, &parts);
            assert_int_equal(png_make_find(&framed, "tEXt", 0), 33);
            conv_metadata_free(&metadata);
            assert_ok(image_decode(&a, file.data, file.size, NULL));
            assert_ok(image_decode(&b, framed.data, framed.size, NULL));
            assert_true(image_equal(&a, &b));
            image_free(&a);
            image_free(&b);
            conv_codec_close(codec);
        }
        free(stream);
        png_make_free(&file);
        png_make_free(&chunk);
        png_make_free(&framed);
    }
}

// --- the zlib stream for a device ----------------------------------------------------------------

static const uint8_t rows[] = {0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9}; // 1 x 3 pixels in RGB

// A file of 1 x 3 pixels whose stream is cut into chunks of `step` bytes.
static struct png_file make_chunks(const struct png_file *stream, size_t step)
{
    struct png_file file = {0};
    png_make_head(&file, 1, 3, 8, 2);
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
    assert_ok(conv_png_format.probe(file->data, file->size, &header, NULL));
    return conv_png_format.device->copy_stream(*stream, size, file->data, file->size, &header);
}

UNIT_TEST(stream_is_joined)
{
    struct png_file stream = png_make_zlib(rows, sizeof rows);
    for (size_t step = 1; step <= stream.size; step++) {
        struct png_file file = make_chunks(&stream, step);
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

UNIT_TEST(odd_files_have_none)
{
    struct png_file stream = png_make_zlib(rows, sizeof rows), file = make_chunks(&stream, 4);
    struct png_file more = {0};
    file.data[png_make_find(&file, "IDAT", 1) + 8] ^= 1; // its CRC is wrong now
    refuse(&file);

    file = make_chunks(&stream, 4); // an ancillary chunk between image data
    png_make_chunk(&more, "tEXt", "a\0b", 3);
    png_make_insert(&file, png_make_find(&file, "IDAT", 1), &more);
    refuse(&file);
    png_make_free(&more);

    file = make_chunks(&stream, 4); // a colour that is to be transparent
    png_make_chunk(&more, "tRNS", "\0\1\0\1\0\1", 6);
    png_make_insert(&file, png_make_find(&file, "IDAT", 0), &more);
    refuse(&file);
    png_make_free(&more);
    png_make_free(&stream);
}

UNIT_MAIN(NULL, NULL)
