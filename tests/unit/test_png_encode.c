// SPDX-License-Identifier: MIT
// Images are the same after encoding and decoding, for every shape, depth and effort.

#include "support/png_make.h"
#include "support/random.h"
#include "support/test_image.h"
#include "support/unit.h"

enum content { NOISE, FLAT, RAMP, CONTENT_COUNT };

static uint64_t seed = 1;

static void paint(struct conv_image *image, enum content content)
{
    unsigned max = image->depth == 16 ? 65535 : 255, flat = random_bits(&seed);
    for (int c = 0; c < image->channels; c++) {
        for (int y = 0; y < image->height; y++) {
            for (int x = 0; x < image->width; x++) {
                unsigned ramp = (unsigned)(x * 7 + y * 300 + c * 40);
                unsigned sample = content == NOISE  ? random_bits(&seed)
                                  : content == FLAT ? flat
                                                    : ramp;
                image_set(image, c, x, y, sample & max);
            }
        }
    }
}

static void check_round_trip(struct conv_codec *codec, struct conv_image *image,
                             enum content content)
{
    struct conv_encoded bytes;
    struct png_file file = {0};
    struct conv_image back;
    struct conv_err err = {0};
    image_alloc(image, 0x5a);
    paint(image, content);
    if (conv_png_format.encode(codec, image, NULL, 0, image->height, &bytes, &err) != CONV_OK)
        fail_msg("%s", err.text);
    assert_int_equal(bytes.part[0].size, 33);
    assert_int_equal(bytes.part[1].size, 0);
    image_join(&file, &bytes);
    if (image_decode(&back, file.data, file.size, &err) != CONV_OK)
        fail_msg("%s", err.text);
    if (!image_equal(image, &back))
        fail_msg("%d channels, %d bits, %dx%d, content %d: another image", image->channels,
                 image->depth, image->width, image->height, content);
    png_make_free(&file);
    image_free(&back);
    image_free(image);
}

static void check_shapes(const struct conv_png_encoder *encoder, int level)
{
    static const int sizes[][2] = {{1, 1}, {1, 40}, {40, 1}, {2, 2}, {67, 35}, {131, 257}};
    struct conv_codec *codec = image_codec(encoder, level);
    for (int depth = 8; depth <= (encoder == &conv_png_stb ? 8 : 16); depth += 8) {
        for (int channels = 1; channels <= 4; channels++) {
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
                for (int content = 0; content < CONTENT_COUNT; content++) {
                    struct conv_image image = {
                        .width = sizes[s][0],
                        .height = sizes[s][1],
                        .channels = channels,
                        .depth = depth,
                        .alpha = channels % 2 == 0,
                    };
                    check_round_trip(codec, &image, (enum content)content);
                }
            }
        }
    }
    conv_codec_close(codec);
}

UNIT_TEST(round_trips)
{
    static const int levels[] = {-1, 0, 1, 6, 9};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        check_shapes(&conv_png_libpng, levels[i]);
        check_shapes(&conv_png_stb, levels[i]);
    }
}

UNIT_TEST(more_columns_than_libpng_takes_by_itself)
{
    struct conv_codec *codec = image_codec(&conv_png_libpng, -1);
    struct conv_image image = {.width = 1000003, .height = 1, .channels = 3, .depth = 8};
    check_round_trip(codec, &image, RAMP);
    conv_codec_close(codec);
}

UNIT_TEST(stb_says_what_it_cannot)
{
    struct conv_codec *codec = image_codec(&conv_png_stb, -1);
    struct conv_encoded bytes;
    struct conv_err err = {0};
    struct conv_image deep = {.width = 1, .height = 1, .channels = 1, .depth = 16};
    assert_int_equal(conv_png_format.encode(codec, &deep, NULL, 0, deep.height, &bytes, &err),
                     CONV_ERR_UNSUPPORTED);
    assert_int_equal(err.hint, CONV_HINT_OTHER_ENCODER);
    // Refused before the planes are looked at.
    struct conv_image large = {.width = 30000, .height = 30000, .channels = 3, .depth = 8};
    assert_int_equal(conv_png_format.encode(codec, &large, NULL, 0, large.height, &bytes, &err),
                     CONV_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "30000 x 30000"));
    struct conv_image wide = {.width = 1 << 24, .height = 1, .channels = 1, .depth = 8};
    assert_int_equal(conv_png_format.encode(codec, &wide, NULL, 0, wide.height, &bytes, &err),
                     CONV_ERR_UNSUPPORTED);
    conv_codec_close(codec);
}

// A signal has come, or --fail-fast has ended the run.
UNIT_TEST(a_signal_ends_the_work_on_an_image)
{
    static const struct conv_codec_config configs[] = {
        {.level = 0},
        {.level = 1},
        {.level = 6},
        {.level = 12},
        {.encoder = &conv_png_libpng, .level = 1},
    };
    static uint16_t samples[300 * 300];
    for (size_t i = 0; i < 2 * sizeof configs / sizeof configs[0]; i++) {
        atomic_int stop = 2;
        struct conv_codec_config config = configs[i / 2];
        struct png_file file;
        struct png_spec spec = {
            .width = 300, .height = 300, .depth = 8, .interlaced = i % 2, .samples = samples};
        struct conv_image_header header;
        struct conv_encoded bytes;
        struct conv_codec *codec;
        struct conv_err err = {0};
        png_make_image(&file, &spec);
        assert_int_equal(conv_png_format.probe(file.data, file.size, &header, NULL), CONV_OK);
        struct conv_image image = header.shape;
        image_alloc(&image, 0);
        config.stop = &stop;
        assert_int_equal(conv_codec_open(&codec, &conv_png_format, &config, NULL), CONV_OK);
        for (int turn = 0; turn < 2; turn++) {
            enum conv_status expected = turn ? CONV_OK : CONV_ERR_CANCELLED;
            assert_int_equal(
                conv_png_format.decode(codec, file.data, file.size, &header, &image, NULL, &err),
                expected);
            assert_int_equal(
                conv_png_format.encode(codec, &image, NULL, 0, image.height, &bytes, &err),
                expected);
            atomic_store(&stop, -1);
        }
        conv_codec_close(codec);
        image_free(&image);
        png_make_free(&file);
    }
}

UNIT_MAIN(NULL, NULL)
