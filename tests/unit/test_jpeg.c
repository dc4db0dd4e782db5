// SPDX-License-Identifier: MIT
// JPEG: pixels are those of libjpeg-turbo's defaults for every kind of file; damaged files and
// other kinds are refused with the cause; work and memory are bounded by the image.
#include <stdlib.h>

#include "base/features.h"
#include "jpeg/cpu/cpu_jpeg.h"
#include "jpeg/jpeg.h"
#include "support/jpeg_make.h"
#include "support/random.h"
#include "support/test_image.h"
#include "support/unit.h"

static struct png_file file; // of the test in progress
static struct conv_err err;

// As a worker does it. The planes are freed by the caller in any case.
static enum conv_status decode_until(struct conv_image *image, const atomic_int *stop)
{
    const struct conv_format *format = &conv_jpeg_format;
    struct conv_image_header header;
    struct conv_codec *codec;
    err.text[0] = '\0';
    *image = (struct conv_image){0};
    enum conv_status status = conv_format_check_head(format, file.data, file.size, &err);
    if (!status)
        status = format->probe(file.data, file.size, &header, &err);
    if (!status)
        status = format->check_size(file.data, file.size, &header, &err);
    if (status)
        return status;
    *image = header.shape;
    image_alloc(image, 0xa5);
    const struct conv_codec_config config = {.level = -1, .stop = stop};
    assert_ok(conv_codec_open(&codec, format, &config, &err));
    status = format->decode(codec, file.data, file.size, &header, image, NULL, &err);
    conv_codec_close(codec);
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
    assert_ok(decode(&image));
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
UNIT_TEST(chroma_of_any_size_is_enlarged_as_by_libjpeg)
{
    uint64_t seed = 11;
    for (int side = 1; side <= 70; side++)
        for (size_t i = 0; i < JPEG_FACTORS; i++) {
            int other = 1 + (int)random_below(&seed, 70);
            struct jpeg_spec spec = {.width = side, .height = other, .channels = 3, .quality = 95};
            jpeg_set_factors(&spec, i);
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
    int in_range = 0;
    for (int i = 0; i < 20000; i++) {
        int16_t blocks[2 * 64], steps[64];
        unsigned most = 1u << i % 14;
        for (int k = 0; k < 64; k++)
            steps[k] = (int16_t)(1 + random_below(&seed, 1u << i % 9));
        for (int k = 0; k < 128; k++) {
            int limit = CONV_JPEG_ROW_MOST / steps[k % 64];
            int value = (int)random_below(&seed, most + 1) - (int)(most / 2);
            blocks[k] = (int16_t)(value > limit ? limit : value < -limit ? -limit : value);
        }
        memset(a, 1, sizeof a);
        memset(b, 1, sizeof b);
        bool right = plain->idct(a[0], 20, blocks, steps);
        assert_int_equal(rows->idct(b[0], 20, blocks, steps), right);
        in_range += right;
        if (right)
            assert_memory_equal(a, b, sizeof a);
    }
    assert_in_range(in_range, 5000, 15000);
}

// Random files and damaged copies: what our decoder decodes, libjpeg decodes to the same pixels.
// CONV_ROUNDS=5000 tests 100,000 of them.
UNIT_TEST(our_decoder_agrees_with_libjpeg)
{
    enum { COPIES = 20 };
#ifdef __x86_64__
    if (!(conv_cpu_features() & CONV_CPU_AVX2))
        skip();
#endif
    const char *given = getenv("CONV_ROUNDS");
    int rounds = given ? atoi(given) : 100;
    uint64_t seed = (uint64_t)rounds;
    struct conv_buffer scratch = {0};
    struct png_file whole = {0};
    for (int i = 0; i < COPIES * rounds; i++) {
        struct jpeg_spec spec = {0};
        struct conv_image_header header;
        struct conv_image images[2];
        if (i % COPIES == 0) {
            spec = jpeg_draw(&seed);
            jpeg_make(&whole, &spec, seed);
        }
        png_make_free(&file);
        png_make_bytes(&file, whole.data, whole.size);
        if (i % COPIES > 0)
            jpeg_mutate(&file, &seed);
        if (conv_jpeg_probe(file.data, file.size, &header, &err) ||
            conv_jpeg_check_size(file.data, file.size, &header, &err) ||
            (uint64_t)header.shape.width * (uint64_t)header.shape.height > 1 << 20)
            continue;
        if (header.shape.channels == 3 && i % 3 == 0)
            conv_jpeg_format.take_luma(&header);
        for (int k = 0; k < 2; k++) {
            images[k] = header.shape;
            image_alloc(&images[k], 0xa5);
        }
        bool ours =
            conv_jpeg_decode(&scratch, file.data, file.size, &header, &images[0], NULL, NULL);
        enum conv_status status = conv_libjpeg_decode(&scratch, file.data, file.size, &header,
                                                      &images[1], NULL, NULL, &err);
        if ((ours && (status || !image_equal(&images[0], &images[1]))) ||
            (!ours && spec.quality >= 20) || !image_padding_is(&images[0], 0xa5))
            fail_msg("file %d of %d rounds: %d and %d", i, rounds, ours, status);
        image_free(&images[0]);
        image_free(&images[1]);
    }
    png_make_free(&whole);
    conv_buffer_free(&scratch);
}

// --- refusals ------------------------------------------------------------------------------------

static const struct jpeg_spec usual = {.width = 40, .height = 24, .channels = 3};

UNIT_TEST(other_kinds_are_refused)
{
    static const struct {
        int code, precision;
        const char *cause;
    } kinds[] = {{0xC3, 8, "lossless"},     {0xCB, 8, "lossless"}, {0xC5, 8, "hierarchical"},
                 {0xCF, 8, "hierarchical"}, {0xC1, 12, "12 bits"}, {0xC0, 9, "9 bits"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        jpeg_make(&file, &usual, 1);
        size_t at = jpeg_find(&file, 0xC0);
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
    file.data[jpeg_find(&file, code) + offset] = (uint8_t)value;
}

UNIT_TEST(damaged_headers_are_refused)
{
    patch(0xC0, 5, 0);
    file.data[jpeg_find(&file, 0xC0) + 6] = 0;
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
    size_t frame = jpeg_find(&file, 0xC0);
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
    size_t at = jpeg_find(&file, 0xD1);
    file.data[at + 1] = 0xD5;
    expect_refusal(CONV_ERR_FORMAT, "damaged image");
    jpeg_make(&file, &gray, 3);
    at = jpeg_find(&file, 0xD2);
    memmove(file.data + at, file.data + at + 2, file.size - at - 2);
    file.size -= 2;
    expect_refusal(CONV_ERR_FORMAT, "damaged image");
    // The scan of the last component is cut out: libjpeg decodes it to gray in silence.
    jpeg_make(&file,
              &(struct jpeg_spec){.width = 64, .height = 64, .channels = 3, .separate = true}, 3);
    at = jpeg_find_last(&file, 0xDA);
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
        size_t at =
            jpeg_find(&file, kind & 2 ? (kind & 1 ? 0xCA : 0xC9) : (kind & 1 ? 0xC2 : 0xC0));
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
        assert_ok(decode(&image));
        uint8_t *plain = jpeg_decode_plain(&file, usual.width, usual.height, 3);
        assert_non_null(plain);
        assert_int_equal(image_sample(&image, 1, 7, 5), plain[3 * (5 * usual.width + 7) + 1]);
        free(plain);
        image_free(&image);
    }
    patch(0xDB, 3, 1); // a table cannot be skipped
    file.data[jpeg_find(&file, 0xDB) + 2] = 0;
    expect_refusal(CONV_ERR_FORMAT, "impossible marker");
}

UNIT_TEST(stray_bytes_before_the_end_are_accepted)
{
    uint8_t stray[100];
    memset(stray, 0x55, sizeof stray);
    jpeg_make(&file, &usual, 1);
    png_make_insert(&file, file.size - 2, &(struct png_file){stray, 64});
    assert_ok(try_file());
    jpeg_make(&file, &usual, 1);
    png_make_insert(&file, file.size - 2, &(struct png_file){stray, 100});
    expect_refusal(CONV_ERR_FORMAT, "extraneous");
    jpeg_make(&file, &usual, 1);
    png_make_bytes(&file, stray, sizeof stray); // after EOI
    assert_ok(try_file());
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
    assert_ok(try_file());
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

UNIT_MAIN(NULL, NULL)
