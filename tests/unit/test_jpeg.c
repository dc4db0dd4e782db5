// SPDX-License-Identifier: MIT
// JPEG: pixels are those of libjpeg-turbo's defaults for every kind of file; damaged files and
// other kinds are refused with the cause; work and memory are bounded by the image.
#include <stdio.h>

#include "base/clock.h"
#include "base/features.h"
#include "jpeg/cpu/rows.h"
#include "jpeg/cuda/cuda_jpeg.h"
#include "jpeg/jpeg.h"
#include "support/jpeg_make.h"
#include "support/random.h"
#include "support/test_image.h"
#include "support/unit.h"

static struct png_file file;
static struct conv_err err;

static int forget(void **state)
{
    (void)state;
    png_make_free(&file);
    return 0;
}

// As a worker does it. The planes are freed by the caller in any case.
static enum conv_status decode_until(struct conv_image *image, const atomic_int *stop)
{
    const struct conv_format *format = &conv_jpeg_format;
    struct conv_image_header header;
    struct conv_codec *codec;
    err.text[0] = '\0';
    *image = (struct conv_image){0};
    enum conv_status status = format->check_head(file.data, file.size, &err);
    if (!status)
        status = format->probe(file.data, file.size, &header, &err);
    if (!status)
        status = format->check_size(file.data, file.size, &header, &err);
    if (status)
        return status;
    *image = header.shape;
    image_alloc(image, 0xa5);
    const struct conv_codec_config config = {.level = -1, .stop = stop};
    assert_int_equal(format->open(&codec, &config, &err), CONV_OK);
    status = format->decode(codec, file.data, file.size, &header, image, &err);
    format->close(codec);
    assert_true(image_padding_is(image, 0xa5));
    return status;
}

static enum conv_status decode(struct conv_image *image)
{
    return decode_until(image, NULL);
}

static enum conv_status try_file(void)
{
    struct conv_image image;
    enum conv_status status = decode(&image);
    image_free(&image);
    return status;
}

static void expect_refusal(enum conv_status status, const char *cause)
{
    assert_int_equal(try_file(), status);
    if (!strstr(err.text, cause))
        fail_msg("'%s' instead of '%s'", err.text, cause);
}

static void check_pixels(const struct jpeg_spec *spec)
{
    struct conv_image image;
    jpeg_make(&file, spec, (uint64_t)spec->width);
    assert_int_equal(decode(&image), CONV_OK);
    assert_int_equal(image.channels, spec->channels);
    assert_int_equal(image.depth, 8);
    uint8_t *plain = jpeg_decode_plain(&file, spec->width, spec->height, spec->channels);
    assert_non_null(plain);
    const uint8_t *p = plain;
    for (int y = 0; y < spec->height; y++)
        for (int x = 0; x < spec->width; x++)
            for (int c = 0; c < spec->channels; c++)
                assert_int_equal(image_sample(&image, c, x, y), *p++);
    free(plain);
    image_free(&image);
}

UNIT_TEST(pixels_are_libjpegs)
{
    static const int sizes[][2] = {{1, 1}, {7, 9}, {8, 8}, {17, 16}, {33, 40}, {129, 3}};
    static const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (int kind = 0; kind < 8; kind++) {
            struct jpeg_spec spec = {.width = sizes[s][0],
                                     .height = sizes[s][1],
                                     .progressive = kind & 1,
                                     .arithmetic = kind & 2,
                                     .optimized = (kind & 6) == 4,
                                     .restart = kind == 5,
                                     .channels = 1};
            check_pixels(&spec);
            spec.channels = 3;
            for (size_t i = 0; i < sizeof samplings / sizeof samplings[0]; i++) {
                spec.sampling_h = samplings[i][0];
                spec.sampling_v = samplings[i][1];
                check_pixels(&spec);
            }
            spec.sampling_h = spec.sampling_v = 1;
            spec.colors = JPEG_RGB;
            check_pixels(&spec);
        }
    }
    check_pixels(&(struct jpeg_spec){.width = 50, .height = 30, .channels = 3, .separate = true});
    check_pixels(&(struct jpeg_spec){.width = 50, .height = 30, .channels = 1, .scans = 64});
}

// Luma and chroma; the last two have luma with fewer samples than chroma.
static const int factors[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {2, 2, 1, 1}, {1, 2, 1, 1},
                                 {4, 1, 1, 1}, {4, 2, 1, 1}, {1, 4, 1, 1}, {2, 2, 1, 2},
                                 {2, 2, 2, 1}, {4, 1, 2, 1}, {1, 1, 2, 2}, {1, 1, 2, 1}};
#define FACTORS (sizeof factors / sizeof factors[0])

static void set_factors(struct jpeg_spec *spec, size_t i)
{
    spec->sampling_h = factors[i][0], spec->sampling_v = factors[i][1];
    spec->chroma_h = factors[i][2], spec->chroma_v = factors[i][3];
}

UNIT_TEST(chroma_of_any_size_is_enlarged_as_by_libjpeg)
{
    uint64_t seed = 11;
    for (int side = 1; side <= 70; side++)
        for (size_t i = 0; i < FACTORS; i++) {
            int other = 1 + (int)random_below(&seed, 70);
            struct jpeg_spec spec = {.width = side, .height = other, .channels = 3, .quality = 95};
            set_factors(&spec, i);
            check_pixels(&spec);
            spec.width = other;
            spec.height = side;
            spec.separate = side % 8 == 0;
            check_pixels(&spec);
        }
    check_pixels(&(struct jpeg_spec){
        .width = 37, .height = 21, .channels = 1, .sampling_h = 2, .sampling_v = 2});
    check_pixels(&(struct jpeg_spec){
        .width = 37, .height = 21, .channels = 3, .sampling_h = 2, .colors = JPEG_RGB});
}

UNIT_TEST(fractions_of_samples_are_refused)
{
    jpeg_make(&file, &(struct jpeg_spec){.width = 40, .height = 24, .channels = 3, .sampling_h = 2},
              1);
    for (size_t i = 0; i + 19 < file.size; i++)
        if (file.data[i] == 0xFF && file.data[i + 1] == 0xC0)
            file.data[i + 11] = 0x31; // three to one would be whole
    assert_int_equal(try_file(), CONV_ERR_FORMAT);
    for (size_t i = 0; i + 19 < file.size; i++)
        if (file.data[i] == 0xFF && file.data[i + 1] == 0xC0)
            file.data[i + 14] = 0x21; // three to two is not
    expect_refusal(CONV_ERR_FORMAT, "Fractional sampling");
}

// All colours, and rows of all lengths from all addresses.
UNIT_TEST(vectors_compute_as_the_definition)
{
    enum { MOST = 300, SLACK = CONV_JPEG_ROW_SLACK };
    static uint8_t src[3][2 * MOST + 2 * SLACK], a[3][2 * MOST + SLACK], b[3][2 * MOST + SLACK];
    const struct conv_jpeg_rows *plain = &conv_jpeg_rows_plain;
    const struct conv_jpeg_rows *rows = conv_jpeg_rows_choose(conv_cpu_features());
    const uint8_t *const from[3] = {src[0] + SLACK, src[1] + SLACK, src[2] + SLACK};
    uint8_t *const to_a[3] = {a[0], a[1], a[2]}, *const to_b[3] = {b[0], b[1], b[2]};
    uint64_t seed = 3;
    for (int i = 0; i < 256; i++)
        src[2][SLACK + i] = (uint8_t)i;
    for (int i = 0; i < 65536; i++) {
        memset(src[0] + SLACK, i >> 8, 256);
        memset(src[1] + SLACK, i & 255, 256);
        plain->to_rgb(to_a, from, 256);
        rows->to_rgb(to_b, from, 256);
        for (int c = 0; c < 3; c++)
            assert_memory_equal(a[c], b[c], 256);
        plain->to_ycc(to_a, from, 256);
        rows->to_ycc(to_b, from, 256);
        for (int c = 0; c < 3; c++)
            assert_memory_equal(a[c], b[c], 256);
    }
    for (size_t n = 1; n <= MOST; n++) {
        for (int c = 0; c < 3; c++)
            for (size_t i = 0; i < sizeof src[c]; i++)
                src[c][i] = (uint8_t)(n % 3                    ? random_bits(&seed)
                                      : random_bits(&seed) & 1 ? 255
                                                               : 0);
        memset(a, 1, sizeof a);
        memset(b, 1, sizeof b);
        plain->to_rgb(to_a, from, n);
        rows->to_rgb(to_b, from, n);
        assert_memory_equal(a, b, sizeof a); // nothing after n samples is written
        plain->to_ycc(to_a, from, n);
        rows->to_ycc(to_b, from, n);
        assert_memory_equal(a, b, sizeof a);
        plain->widen(a[0], from[0], n);
        rows->widen(b[0], from[0], n);
        plain->widen_between(a[1], from[0], from[1], n);
        rows->widen_between(b[1], from[0], from[1], n);
        assert_memory_equal(a[0], b[0], 2 * n);
        assert_memory_equal(a[1], b[1], 2 * n);
        plain->halve(a[0], from[0], n);
        rows->halve(b[0], from[0], n);
        plain->halve_both(a[1], from[0], from[1], n);
        rows->halve_both(b[1], from[0], from[1], n);
        assert_memory_equal(a[0], b[0], n);
        assert_memory_equal(a[1], b[1], n);
    }
}

// --- refusals ------------------------------------------------------------------------------------

static const struct jpeg_spec usual = {.width = 40, .height = 24, .channels = 3};

static size_t find_marker(int code)
{
    for (size_t i = 0; i + 1 < file.size; i++)
        if (file.data[i] == 0xFF && file.data[i + 1] == code)
            return i;
    fail_msg("no marker %x", code);
    return 0;
}

static size_t find_last_marker(int code)
{
    size_t at = file.size - 2;
    while (at > 0 && !(file.data[at] == 0xFF && file.data[at + 1] == code))
        at--;
    return at;
}

UNIT_TEST(other_kinds_are_refused)
{
    static const struct {
        int code, precision;
        const char *cause;
    } kinds[] = {{0xC3, 8, "lossless"},     {0xCB, 8, "lossless"}, {0xC5, 8, "hierarchical"},
                 {0xCF, 8, "hierarchical"}, {0xC1, 12, "12 bits"}, {0xC0, 9, "9 bits"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        jpeg_make(&file, &usual, 1);
        size_t at = find_marker(0xC0);
        file.data[at + 1] = (uint8_t)kinds[i].code;
        file.data[at + 4] = (uint8_t)kinds[i].precision;
        expect_refusal(kinds[i].precision == 9 ? CONV_ERR_FORMAT : CONV_ERR_UNSUPPORTED,
                       kinds[i].cause);
    }
    jpeg_make(&file, &(struct jpeg_spec){.width = 9, .height = 9, .channels = 4}, 1);
    expect_refusal(CONV_ERR_UNSUPPORTED, "CMYK");
}

static void patch(int code, size_t offset, int value)
{
    jpeg_make(&file, &usual, 1);
    file.data[find_marker(code) + offset] = (uint8_t)value;
}

UNIT_TEST(damaged_headers_are_refused)
{
    patch(0xC0, 5, 0);
    file.data[find_marker(0xC0) + 6] = 0;
    expect_refusal(CONV_ERR_FORMAT, "40 x 0 pixels");
    patch(0xC0, 9, 2);
    expect_refusal(CONV_ERR_FORMAT, "bad header");
    patch(0xC0, 11, 0x51);
    expect_refusal(CONV_ERR_FORMAT, "sampling factors");
    patch(0xDB, 3, 0);
    expect_refusal(CONV_ERR_FORMAT, "damaged");
    patch(0xDB, 2, 0xFF);
    expect_refusal(CONV_ERR_FORMAT, "truncated");
    patch(0xC0, 5, 0xFF); // 65304 rows in 1 kB
    expect_refusal(CONV_ERR_FORMAT, "cannot hold");
    jpeg_make(&file, &usual, 1);
    png_make_insert(&file, 2, &(struct png_file){(uint8_t[]){0xFF, 0xD8}, 2});
    expect_refusal(CONV_ERR_FORMAT, "starts twice");
    jpeg_make(&file, &usual, 1);
    png_make_insert(&file, 20, &(struct png_file){(uint8_t[]){1, 2, 3}, 3});
    expect_refusal(CONV_ERR_FORMAT, "no marker");
    jpeg_make(&file, &usual, 1);
    size_t frame = find_marker(0xC0);
    jpeg_insert(&file, frame, 0xC0, file.data + frame + 4, 15);
    expect_refusal(CONV_ERR_FORMAT, "two headers");
    png_make_free(&file);
    png_make_bytes(&file, "\xFF\xD8\xFF\xD9", 4);
    expect_refusal(CONV_ERR_FORMAT, "no image data");
}

UNIT_TEST(truncated_files_are_refused)
{
    struct png_file whole = {0};
    for (int kind = 0; kind < 4; kind++) {
        const struct jpeg_spec spec = {.width = 40,
                                       .height = 24,
                                       .channels = 3,
                                       .progressive = kind & 1,
                                       .arithmetic = kind & 2,
                                       .restart = 1};
        jpeg_make(&whole, &spec, 1);
        for (size_t size = 0; size < whole.size; size++) {
            png_make_free(&file);
            if (size > 0)
                png_make_bytes(&file, whole.data, size);
            if (try_file() != CONV_ERR_FORMAT)
                fail_msg("kind %d: %zu of %zu bytes", kind, size, whole.size);
        }
        // The same with an end, in the middle of the image data. Arithmetic data may end anywhere.
        png_make_free(&file);
        png_make_bytes(&file, whole.data, whole.size * 4 / 5);
        png_make_bytes(&file, "\xFF\xD9", 2);
        if (!spec.arithmetic && !spec.progressive)
            expect_refusal(CONV_ERR_FORMAT, "damaged image");
    }
    png_make_free(&whole);
}

UNIT_TEST(missing_data_are_refused)
{
    const struct jpeg_spec gray = {.width = 64, .height = 64, .channels = 3, .restart = 1};
    jpeg_make(&file, &gray, 3);
    size_t at = find_marker(0xD1);
    file.data[at + 1] = 0xD5;
    expect_refusal(CONV_ERR_FORMAT, "damaged image");
    jpeg_make(&file, &gray, 3);
    at = find_marker(0xD2);
    memmove(file.data + at, file.data + at + 2, file.size - at - 2);
    file.size -= 2;
    expect_refusal(CONV_ERR_FORMAT, "damaged image");
    // The scan of the last component is cut out: libjpeg decodes it to gray in silence.
    jpeg_make(&file,
              &(struct jpeg_spec){.width = 64, .height = 64, .channels = 3, .separate = true}, 3);
    at = find_last_marker(0xDA);
    file.size = at;
    png_make_bytes(&file, "\xFF\xD9", 2);
    expect_refusal(CONV_ERR_FORMAT, "a channel has no image data");
}

// 16384 x 16384 pixels in 1 kB were decoded, since arithmetic codes may be shorter than a bit, and
// since bytes of comments and restart markers counted as image data.
UNIT_TEST(sizes_beyond_the_data_are_refused)
{
    uint8_t padding[60000] = {0};
    for (int kind = 0; kind < 8; kind++) {
        const struct jpeg_spec spec = {.width = 40,
                                       .height = 24,
                                       .channels = 3,
                                       .progressive = kind & 1,
                                       .arithmetic = kind & 2};
        jpeg_make(&file, &spec, 1);
        size_t at = find_marker(kind & 2 ? (kind & 1 ? 0xCA : 0xC9) : (kind & 1 ? 0xC2 : 0xC0));
        file.data[at + 5] = file.data[at + 7] = 0x40;
        for (int i = 0; i < 60 && kind & 4; i++)
            jpeg_insert(&file, at, i < 30 ? 0xFE : 0xE5, padding, sizeof padding);
        for (int i = 0; i < 30000 && kind & 4; i += 2)
            memcpy(padding + i, "\xFF\xD0", 2);
        if (kind & 4)
            png_make_insert(&file, file.size - 2, &(struct png_file){padding, 30000});
        expect_refusal(CONV_ERR_FORMAT, "cannot hold");
    }
}

// Lengths of 0 and 1, which do not include their own bytes: libjpeg skips nothing.
UNIT_TEST(impossible_lengths_of_comments_are_accepted)
{
    static const uint8_t codes[] = {0xFE, 0xE0, 0xE1, 0xE2, 0xE7, 0xED, 0xEE, 0xEF};
    for (size_t i = 0; i < 2 * sizeof codes; i++) {
        uint8_t segment[] = {0xFF, codes[i / 2], 0, i & 1};
        struct conv_image image;
        jpeg_make(&file, &usual, 1);
        png_make_insert(&file, i & 1 ? 2 : 20, &(struct png_file){segment, sizeof segment});
        assert_int_equal(decode(&image), CONV_OK);
        uint8_t *plain = jpeg_decode_plain(&file, usual.width, usual.height, 3);
        assert_non_null(plain);
        assert_int_equal(image_sample(&image, 1, 7, 5), plain[3 * (5 * usual.width + 7) + 1]);
        free(plain);
        image_free(&image);
    }
    patch(0xDB, 3, 1); // a table cannot be skipped
    file.data[find_marker(0xDB) + 2] = 0;
    expect_refusal(CONV_ERR_FORMAT, "impossible marker");
}

UNIT_TEST(stray_bytes_before_the_end_are_accepted)
{
    uint8_t stray[100];
    memset(stray, 0x55, sizeof stray);
    jpeg_make(&file, &usual, 1);
    png_make_insert(&file, file.size - 2, &(struct png_file){stray, 64});
    assert_int_equal(try_file(), CONV_OK);
    jpeg_make(&file, &usual, 1);
    png_make_insert(&file, file.size - 2, &(struct png_file){stray, 100});
    expect_refusal(CONV_ERR_FORMAT, "extraneous");
    jpeg_make(&file, &usual, 1);
    png_make_bytes(&file, stray, sizeof stray); // after EOI
    assert_int_equal(try_file(), CONV_OK);
}

// Any verdict is accepted: the sanitizers and the padding of rows show if something was
// overwritten.
UNIT_TEST(no_damage_breaks_the_decoder)
{
    uint64_t seed = 5;
    for (int kind = 0; kind < 4; kind++) {
        const struct jpeg_spec spec = {.width = 24,
                                       .height = 17,
                                       .channels = kind == 3 ? 1 : 3,
                                       .sampling_h = 1 + (kind & 1),
                                       .progressive = kind & 1,
                                       .arithmetic = kind & 2};
        jpeg_make(&file, &spec, 1);
        for (size_t at = 2; at < file.size; at++) {
            uint8_t old = file.data[at];
            file.data[at] = (uint8_t)random_bits(&seed);
            enum conv_status status = try_file();
            assert_true(status == CONV_OK || status == CONV_ERR_FORMAT ||
                        status == CONV_ERR_UNSUPPORTED);
            file.data[at] = old;
        }
    }
}

// Each scan passes over all coefficients of a large image for a few bytes.
UNIT_TEST(too_many_scans_are_refused)
{
    const struct jpeg_spec many = {.width = 1000, .height = 1000, .channels = 3, .scans = 190};
    const struct jpeg_spec few = {.width = 100, .height = 100, .channels = 3, .scans = 100};
    jpeg_make(&file, &few, 1);
    assert_int_equal(try_file(), CONV_OK);
    jpeg_make(&file, &many, 1);
    expect_refusal(CONV_ERR_FORMAT, "far too many scans");
}

UNIT_TEST(a_signal_cancels)
{
    struct conv_image image;
    atomic_int stop = 15;
    for (int progressive = 0; progressive < 2; progressive++) {
        const struct jpeg_spec spec = {
            .width = 100, .height = 100, .channels = 3, .progressive = progressive};
        jpeg_make(&file, &spec, 1);
        assert_int_equal(decode_until(&image, &stop), CONV_ERR_CANCELLED);
        image_free(&image);
    }
}

// --- streams for a device ------------------------------------------------------------------------

static uint8_t *copy_stream(void)
{
    struct conv_image_header header;
    assert_int_equal(conv_jpeg_probe(file.data, file.size, &header, &err), CONV_OK);
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
    const uint8_t *scan = file.data + find_last_marker(0xDA);
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
    file.data[find_marker(0xD1) + 1] = 0xD2; // out of order
    expect_no_stream();
    jpeg_make(&file, &restarts, 1);
    size_t at = find_marker(0xD1);
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
        at = find_marker(0xC4);
        memset(file.data + at + 5, 0, 16);
        file.data[at + 5] = (uint8_t)(1 + table);
        file.data[at + 5 + 15] = (uint8_t)(11 - table);
        if (table)
            expect_no_stream();
        else
            check_stream();
    }
    jpeg_make(&file, &usual, 1);
    at = find_marker(0xDB);
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

// --- encoding ------------------------------------------------------------------------------------

static void fill(struct conv_image *image, int kind)
{
    uint64_t seed = 9;
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height; y++)
            for (int x = 0; x < image->width; x++)
                image_set(image, c, x, y,
                          image->alpha && c == image->channels - 1 ? 255
                          : kind == 0                              ? random_bits(&seed) & 255
                          : kind == 1                              ? (random_bits(&seed) & 1) * 255
                                      : (unsigned)(4 * x + 3 * y + 40 * c) / 4 % 256);
}

// Encodes into `file`.
static enum conv_status encode_as(const struct conv_image *image,
                                  const struct conv_codec_config *config,
                                  const struct conv_metadata *metadata, size_t *most)
{
    const struct conv_format *format = &conv_jpeg_format;
    struct conv_codec *codec;
    struct conv_encoded encoded;
    assert_int_equal(format->open(&codec, config, &err), CONV_OK);
    enum conv_status status = format->encode(codec, image, metadata, &encoded, &err);
    png_make_free(&file);
    if (!status)
        image_join(&file, &encoded);
    if (most)
        *most = format->encode_bytes(config, image, metadata);
    format->close(codec);
    return status;
}

static enum conv_status encode(const struct conv_image *image, int quality, size_t *most)
{
    const struct conv_codec_config config = {.level = -1, .quality = quality};
    return encode_as(image, &config, NULL, most);
}

UNIT_TEST(encoded_images_come_back)
{
    static const int qualities[] = {0, 100, 90, 89, 50, 1};
    for (int channels = 1; channels <= 4; channels++) {
        struct conv_image image = {.width = 100,
                                   .height = 75,
                                   .channels = channels,
                                   .depth = 8,
                                   .alpha = channels % 2 == 0};
        struct conv_image back;
        image_alloc(&image, 0);
        fill(&image, 2);
        for (size_t q = 0; q < sizeof qualities / sizeof qualities[0]; q++) {
            assert_int_equal(encode(&image, qualities[q], NULL), CONV_OK);
            assert_int_equal(decode(&back), CONV_OK);
            assert_int_equal(back.channels, channels < 3 ? 1 : 3);
            uint64_t sum = 0;
            for (int c = 0; c < back.channels; c++)
                for (int y = 0; y < 75; y++)
                    for (int x = 0; x < 100; x++)
                        sum += (uint64_t)abs((int)image_sample(&back, c, x, y) -
                                             (int)image_sample(&image, c, x, y));
            // Mean difference; a swapped channel makes 40.
            assert_true(sum / (7500 * (uint64_t)back.channels) <=
                        (uint64_t)(qualities[q] == 1 ? 25 : 3));
            image_free(&back);
        }
        image_free(&image);
    }
}

UNIT_TEST(encoded_files_are_libjpegs)
{
    for (int side = 1; side <= 70; side++)
        for (int kind = 0; kind < 6; kind++) {
            struct conv_image image = {.width = kind < 3 ? side : 71 - side / 2,
                                       .height = kind < 3 ? 71 - side / 2 : side,
                                       .channels = kind % 3 ? 3 : 1,
                                       .depth = 8};
            struct png_file ours = {0};
            image_alloc(&image, 0);
            fill(&image, side % 3);
            struct jpeg_spec spec = {.width = image.width,
                                     .height = image.height,
                                     .channels = image.channels,
                                     .quality = kind % 3 == 2 ? 90 : 80,
                                     .sampling_h = kind % 3 == 1 ? 2 : 1,
                                     .sampling_v = kind % 3 == 1 ? 2 : 1,
                                     .pixels = &image};
            assert_int_equal(encode(&image, spec.quality, NULL), CONV_OK);
            png_make_bytes(&ours, file.data, file.size);
            jpeg_make(&file, &spec, 0);
            assert_int_equal(ours.size, file.size);
            assert_memory_equal(ours.data, file.data, file.size);
            png_make_free(&ours);
            image_free(&image);
        }
}

// What an output of `file` keeps.
static struct conv_metadata keep(void)
{
    struct conv_metadata metadata = {0};
    struct conv_image_header header;
    assert_int_equal(conv_jpeg_probe(file.data, file.size, &header, &err), CONV_OK);
    conv_jpeg_format.keep(file.data, file.size, &header, &metadata.kept);
    return metadata;
}

static void expect_libjpegs(const struct conv_image *image, const struct conv_codec_config *config,
                            const struct conv_metadata *metadata, const struct jpeg_spec *spec)
{
    struct png_file ours = {0};
    struct jpeg_spec same = *spec;
    same.width = image->width;
    same.height = image->height;
    same.channels = image->channels;
    same.pixels = image;
    assert_int_equal(encode_as(image, config, metadata, NULL), CONV_OK);
    png_make_bytes(&ours, file.data, file.size);
    jpeg_make(&file, &same, 0);
    assert_int_equal(ours.size, file.size);
    assert_memory_equal(ours.data, file.data, file.size);
    png_make_free(&ours);
}

UNIT_TEST(every_quality_is_libjpegs)
{
    struct conv_image image = {.width = 23, .height = 9, .channels = 3, .depth = 8};
    image_alloc(&image, 0);
    fill(&image, 2);
    for (int quality = 1; quality <= 100; quality++) {
        int factor = quality >= 90 ? 1 : 2;
        expect_libjpegs(
            &image, &(struct conv_codec_config){.quality = quality}, NULL,
            &(struct jpeg_spec){.quality = quality, .sampling_h = factor, .sampling_v = factor});
    }
    image_free(&image);
}

// Tables, sampling and scans of an input; the size of the image is another one here.
UNIT_TEST(outputs_are_encoded_as_inputs)
{
    unsigned quant[2][64];
    uint64_t seed = 8;
    struct conv_image image = {.width = 61, .height = 43, .channels = 3, .depth = 8};
    const struct conv_codec_config usual_config = {0};
    image_alloc(&image, 0);
    fill(&image, 2);
    for (int kind = 0; kind < 40; kind++) {
        struct jpeg_spec spec = {.width = 40,
                                 .height = 24,
                                 .channels = 3,
                                 .quality = 3 + 2 * kind,
                                 .progressive = kind % 5 == 4,
                                 .quant = kind % 3 == 2 ? quant : NULL};
        for (int k = 0; k < 64; k++) {
            quant[0][k] = 1 + random_below(&seed, kind > 20 ? 1000 : 255); // 16 bits, too
            quant[1][k] = 1 + random_below(&seed, 255);
        }
        set_factors(&spec, (size_t)kind % 6);
        jpeg_make(&file, &spec, 1);
        struct conv_metadata metadata = keep();
        expect_libjpegs(&image, &usual_config, &metadata, &spec);
        spec.sampling_h = spec.sampling_v = 1;
        spec.quality = 95;
        spec.quant = NULL;
        expect_libjpegs(&image, &(struct conv_codec_config){.quality = 95}, &metadata, &spec);
        spec.optimized = !spec.progressive;
        expect_libjpegs(&image, &(struct conv_codec_config){.quality = 95, .optimize = true},
                        &metadata, &spec);
        spec.progressive = true;
        expect_libjpegs(&image, &(struct conv_codec_config){.quality = 95, .progressive = true},
                        &metadata, &spec);
    }
    image_free(&image);
}

UNIT_TEST(what_no_output_can_have_is_not_kept)
{
    struct conv_image color = {.width = 61, .height = 43, .channels = 3, .depth = 8};
    struct conv_image gray = {.width = 61, .height = 43, .channels = 1, .depth = 8};
    const struct conv_codec_config config = {0};
    image_alloc(&color, 0);
    image_alloc(&gray, 0);
    fill(&color, 2);
    fill(&gray, 2);
    // Chroma with more samples than luma, or different ones: everything at full resolution.
    for (size_t i = 7; i < FACTORS; i++) {
        struct jpeg_spec spec = {.width = 40, .height = 24, .channels = 3, .quality = 70};
        set_factors(&spec, i);
        jpeg_make(&file, &spec, 1);
        struct conv_metadata metadata = keep();
        int h = factors[i][0] / factors[i][2], v = factors[i][1] / factors[i][3];
        spec.sampling_h = h > 0 && v > 0 ? h : 1;
        spec.sampling_v = h > 0 && v > 0 ? v : 1;
        spec.chroma_h = spec.chroma_v = 1;
        expect_libjpegs(&color, &config, &metadata, &spec);
        // A gray output of a coloured input has the divisors of luma.
        spec.sampling_h = spec.sampling_v = 1;
        expect_libjpegs(&gray, &config, &metadata, &spec);
    }
    // No table before the scan, a divisor of 0, a gray input: the usual quality.
    for (int kind = 0; kind < 3; kind++) {
        jpeg_make(&file,
                  &(struct jpeg_spec){.width = 40, .height = 24, .channels = kind == 2 ? 1 : 3}, 1);
        size_t at = find_marker(0xDB);
        if (kind == 0)
            file.data[at + 1] = 0xE9;
        if (kind == 1)
            file.data[at + 9] = 0;
        struct conv_metadata metadata = keep();
        expect_libjpegs(&color, &config, &metadata, &(struct jpeg_spec){.quality = 90});
    }
    image_free(&color);
    image_free(&gray);
}

UNIT_TEST(a_device_encodes_what_it_can)
{
    struct conv_image shape = {.width = 61, .height = 43, .channels = 3, .depth = 8};
    struct conv_device_encoding device;
    struct conv_metadata metadata;
    const struct conv_codec_config usual_config = {0}, fine = {.quality = 95};
    jpeg_make(&file,
              &(struct jpeg_spec){
                  .width = 40, .height = 24, .channels = 3, .sampling_h = 2, .quality = 50},
              1);
    metadata = keep();
    conv_jpeg_choose_device(&usual_config, &shape, &metadata, &device);
    assert_int_equal(device.coder, CONV_DEVICE_JPEG);
    assert_int_equal(device.h * 10 + device.v, 21);
    assert_int_equal(device.quant[0][0] * 100 + device.quant[0][63], 1699);
    assert_int_equal(device.quant[1][0] * 100 + device.quant[1][2], 1718);
    conv_jpeg_choose_device(&fine, &shape, &metadata, &device);
    assert_int_equal(device.h * 10 + device.v, 11);
    conv_jpeg_choose_device(&(struct conv_codec_config){.progressive = true}, &shape, &metadata,
                            &device);
    assert_int_equal(device.h, 0);
    conv_jpeg_choose_device(&(struct conv_codec_config){.optimize = true}, &shape, &metadata,
                            &device);
    assert_int_equal(device.h, 0);
    metadata.kept.quant[2][5]++;
    conv_jpeg_choose_device(&usual_config, &shape, &metadata, &device);
    assert_int_equal(device.h, 0);
    metadata.kept.quant[1][5]++;
    conv_jpeg_choose_device(&usual_config, &shape, &metadata, &device);
    assert_int_equal(device.h, 2);
    metadata.kept.quant[0][7] = 256;
    conv_jpeg_choose_device(&usual_config, &shape, &metadata, &device);
    assert_int_equal(device.h, 0);
    metadata.kept = (struct conv_kept){.progressive = true};
    conv_jpeg_choose_device(&fine, &shape, &metadata, &device);
    assert_int_equal(device.h, 0);
}

UNIT_TEST(the_bound_of_encoded_files_holds)
{
    static const int qualities[] = {100, 98, 96, 95, 90, 89, 75};
    struct conv_image image = {.width = 333, .height = 250, .depth = 8};
    for (int channels = 1; channels <= 3; channels += 2) {
        image.channels = channels;
        image_alloc(&image, 0);
        for (int kind = 0; kind < 2; kind++) {
            fill(&image, kind);
            for (size_t q = 0; q < sizeof qualities / sizeof qualities[0]; q++) {
                size_t most;
                assert_int_equal(encode(&image, qualities[q], &most), CONV_OK);
                if (file.size > most - 65536)
                    fail_msg("quality %d: %zu bytes, bound %zu", qualities[q], file.size, most);
                const struct conv_codec_config progressive = {.quality = qualities[q],
                                                              .progressive = true};
                assert_int_equal(encode_as(&image, &progressive, NULL, NULL), CONV_OK);
                struct conv_jpeg_encoding encoding;
                conv_jpeg_choose(&encoding, &progressive, &image, NULL);
                assert_true(file.size <= conv_jpeg_most_bytes(&encoding, &image) - 65536);
            }
        }
        image_free(&image);
    }
}

UNIT_MAIN(NULL, forget)
