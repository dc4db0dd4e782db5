// SPDX-License-Identifier: MIT
// Encoding JPEG: files are libjpeg-turbo's for the same settings, which are those of the input
// where none are given; their bound holds.
#include "jpeg/jpeg.h"
#include "support/jpeg_make.h"
#include "support/random.h"
#include "support/test_image.h"
#include "support/unit.h"

static struct png_file file; // of the test in progress
static struct conv_err err;

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
    assert_ok(conv_codec_open(&codec, format, config, &err));
    enum conv_status status =
        format->encode(codec, image, metadata, 0, image->height, &encoded, &err);
    png_make_free(&file);
    if (!status)
        image_join(&file, &encoded);
    if (most)
        *most = format->encode_bytes(config, image, metadata);
    conv_codec_close(codec);
    return status;
}

static enum conv_status encode(const struct conv_image *image, int quality, size_t *most)
{
    const struct conv_codec_config config = {.level = -1, .quality = quality};
    return encode_as(image, &config, NULL, most);
}

// What an output of `file` keeps.
static struct conv_metadata keep(void)
{
    struct conv_metadata metadata = {0};
    struct conv_image_header header;
    assert_ok(conv_jpeg_probe(file.data, file.size, &header, &err));
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
    same.channels = image->channels < 3 ? 1 : 3; // alpha, which is opaque, is not encoded
    same.pixels = image;
    assert_ok(encode_as(image, config, metadata, NULL));
    png_make_bytes(&ours, file.data, file.size);
    jpeg_make(&file, &same, 0);
    assert_int_equal(ours.size, file.size);
    assert_memory_equal(ours.data, file.data, file.size);
    png_make_free(&ours);
}

UNIT_TEST(encoded_files_are_libjpegs)
{
    for (int side = 1; side <= 70; side++)
        for (int kind = 0; kind < 6; kind++) {
            int other = 71 - side / 2, factor = kind % 3 == 1 ? 2 : 1;
            int quality = kind % 3 == 2 ? 90 : 80;
            struct conv_image image = {.width = kind < 3 ? side : other,
                                       .height = kind < 3 ? other : side,
                                       .channels = (kind % 3 ? 3 : 1) + side % 2,
                                       .depth = 8,
                                       .alpha = side % 2};
            image_alloc(&image, 0);
            fill(&image, side / 2 % 3);
            expect_libjpegs(&image, &(struct conv_codec_config){.quality = quality}, NULL,
                            &(struct jpeg_spec){
                                .quality = quality, .sampling_h = factor, .sampling_v = factor});
            image_free(&image);
        }
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
        jpeg_set_factors(&spec, (size_t)kind % 6);
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
    for (size_t i = 7; i < JPEG_FACTORS; i++) {
        struct jpeg_spec spec = {.width = 40, .height = 24, .channels = 3, .quality = 70};
        jpeg_set_factors(&spec, i);
        jpeg_make(&file, &spec, 1);
        struct conv_metadata metadata = keep();
        int h = spec.sampling_h / spec.chroma_h, v = spec.sampling_v / spec.chroma_v;
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
        size_t at = jpeg_find(&file, 0xDB);
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
                assert_ok(encode(&image, qualities[q], &most));
                if (file.size > most - 65536)
                    fail_msg("quality %d: %zu bytes, bound %zu", qualities[q], file.size, most);
                const struct conv_codec_config progressive = {.quality = qualities[q],
                                                              .progressive = true};
                assert_ok(encode_as(&image, &progressive, NULL, NULL));
                struct conv_jpeg_encoding encoding;
                conv_jpeg_choose(&encoding, &progressive, &image, NULL);
                assert_true(file.size <= conv_jpeg_most_bytes(&encoding, &image) - 65536);
            }
        }
        image_free(&image);
    }
}

UNIT_MAIN(NULL, NULL)
