// SPDX-License-Identifier: MIT
// What a device reads of a JPEG file, and the file around what it writes: only of files that it
// decodes as libjpeg-turbo does.
#include "jpeg/cuda/cuda_jpeg.h"
#include "jpeg/jpeg.h"
#include "support/jpeg_make.h"
#include "support/unit.h"

static struct png_file file; // of the test in progress
static struct conv_err err;

static const struct jpeg_spec usual = {.width = 40, .height = 24, .channels = 3};

static uint8_t *copy_stream(void)
{
    struct conv_image_header header;
    assert_ok(conv_jpeg_probe(file.data, file.size, &header, &err));
    size_t room = conv_jpeg_stream_bytes(&header, file.size), size = 0;
    uint8_t *stream = malloc(room + 1); // malloc'ed memory is 16-byte aligned
    assert_non_null(stream);
    stream[room] = 0xa5;
    bool copied = conv_jpeg_copy_stream(stream, &size, file.data, file.size, &header);
    assert_true(size <= room && stream[room] == 0xa5);
    if (copied)
        return stream;
    free(stream);
    return NULL;
}

static void expect_no_stream(void)
{
    uint8_t *stream = copy_stream();
    assert_null(stream);
}

// Stuffed bytes and markers put back, the data of the stream must be those of the file.
static void check_stream(void)
{
    uint8_t *stream = copy_stream();
    assert_non_null(stream);
    const struct conv_jpeg_stream *head = (const struct conv_jpeg_stream *)(void *)stream;
    const uint32_t *offsets = (const uint32_t *)(void *)(stream + head->offsets_at);
    const uint8_t *data = stream + head->data_at;
    const uint8_t *scan = file.data + jpeg_find_last(&file, 0xDA);
    scan += 2 + conv_marker_read_u16(scan + 2);
    assert_int_equal(offsets[head->segments], head->data_bytes);
    assert_true(head->bytes - head->data_at - head->data_bytes >= 16);
    for (uint32_t i = 0; i < head->segments; i++) {
        for (uint32_t at = offsets[i]; at < offsets[i + 1]; at++) {
            assert_int_equal(data[at], *scan++);
            if (data[at] == 0xFF)
                assert_int_equal(*scan++, 0);
        }
        assert_int_equal(*scan++, 0xFF);
        assert_int_equal(*scan++, i + 1 < head->segments ? 0xD0 + (i & 7) : 0xD9);
    }
    assert_true(scan == file.data + file.size);
    free(stream);
}

UNIT_TEST(streams_are_the_data_of_the_scan)
{
    for (int kind = 0; kind < 4; kind++) {
        jpeg_make(&file,
                  &(struct jpeg_spec){.width = 200,
                                      .height = 150,
                                      .channels = kind & 1 ? 3 : 1,
                                      .quality = 98,
                                      .sampling_h = 1 + (kind & 1),
                                      .restart = kind & 2 ? 1 : 0,
                                      .optimized = kind == 3},
                  7);
        check_stream();
    }
}

// What libjpeg might refuse, warn of or decode in another way is left to it.
UNIT_TEST(unusual_files_have_no_stream)
{
    static const struct jpeg_spec kinds[] = {
        {.width = 40, .height = 24, .channels = 3, .progressive = true},
        {.width = 40, .height = 24, .channels = 3, .arithmetic = true},
        {.width = 40, .height = 24, .channels = 3, .separate = true},
        {.width = 40, .height = 24, .channels = 3, .colors = JPEG_RGB},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        jpeg_make(&file, &kinds[i], 1);
        expect_no_stream();
    }
    struct jpeg_spec restarts = {.width = 40, .height = 40, .channels = 1, .restart = 1};
    jpeg_make(&file, &restarts, 1);
    check_stream();
    file.data[jpeg_find(&file, 0xD1) + 1] = 0xD2; // out of order
    expect_no_stream();
    jpeg_make(&file, &restarts, 1);
    size_t at = jpeg_find(&file, 0xD1);
    file.data[at] = file.data[at + 1] = 0x55; // one is missing
    expect_no_stream();
    static const int codes[] = {0xDC, 0xE1, 0xFE, 0xC4};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) { // between the scan and EOI
        jpeg_make(&file, &usual, 1);
        jpeg_insert(&file, file.size - 2, codes[i], "\0\30", 2);
        expect_no_stream();
    }
    for (int table = 0; table < 2; table++) { // all ones is a code
        jpeg_make(&file, &usual, 1);
        at = jpeg_find(&file, 0xC4);
        memset(file.data + at + 5, 0, 16);
        file.data[at + 5] = (uint8_t)(1 + table);
        file.data[at + 5 + 15] = (uint8_t)(11 - table);
        if (table)
            expect_no_stream();
        else
            check_stream();
    }
    jpeg_make(&file, &usual, 1);
    at = jpeg_find(&file, 0xDB);
    file.data[at + 5 + 20] = 0; // a step of quantisation
    expect_no_stream();
}

// Before libjpeg's data stand the head that a device's data get, and a JFIF segment.
UNIT_TEST(heads_around_a_devices_data_are_those_of_libjpeg)
{
    static const struct jpeg_spec specs[] = {{.channels = 1, .sampling_h = 1, .sampling_v = 1},
                                             {.channels = 3, .sampling_h = 1, .sampling_v = 1},
                                             {.channels = 3, .sampling_h = 2, .sampling_v = 1},
                                             {.channels = 3, .sampling_h = 2, .sampling_v = 2}};
    for (int i = 0; i < 4 * 100; i++) {
        struct jpeg_spec spec = specs[i / 100];
        struct conv_image shape = {.channels = spec.channels, .width = 258, .height = 1};
        struct conv_device_encoding encoding = {.h = (uint8_t)spec.sampling_h,
                                                .v = (uint8_t)spec.sampling_v};
        struct conv_marker marker = {0};
        uint8_t head[CONV_JPEG_HEAD_MOST];
        size_t at = 0;
        spec.quality = 1 + i % 100;
        spec.width = shape.width;
        spec.height = shape.height;
        jpeg_make(&file, &spec, 0);
        while (marker.code != CONV_MARKER_SOS) {
            assert_true(conv_marker_next(&marker, file.data, file.size, &at));
            for (int k = 0; marker.code == CONV_MARKER_DQT && k < 64; k++)
                encoding.quant[marker.data[0]][k] = marker.data[1 + k];
        }
        assert_int_equal(conv_jpeg_write_head(head, &shape, &encoding), at - CONV_JPEG_JFIF_SIZE);
        assert_memory_equal(head, file.data, 2);
        assert_memory_equal(head + 2, file.data + 2 + CONV_JPEG_JFIF_SIZE,
                            at - 2 - CONV_JPEG_JFIF_SIZE);
    }
    png_make_free(&file);
}

UNIT_MAIN(NULL, NULL)
