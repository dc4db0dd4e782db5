// SPDX-License-Identifier: MIT
// Decoded pixels against the definition: files of every kind, made here.
#include <stdio.h>

#include "support/png_make.h"
#include "support/random.h"
#include "support/test_image.h"
#include "support/unit.h"

static uint64_t seed;

static int palette_size_for(int depth)
{
    return depth == 8 ? 200 : (1 << depth) - (depth > 1);
}

// The expected value of channel c of a pixel, from the samples in the file and the rules of the
// standard.
static unsigned expect_sample(const struct png_spec *spec, const uint16_t *pixel, int c)
{
    bool is_color = spec->color_type & 2;
    bool is_alpha = c == (is_color ? 3 : 1);
    unsigned max = spec->depth == 16 ? 65535 : 255;
    if (spec->color_type == 3) {
        uint8_t rgba[4] = {0, 0, 0, 255}; // out of range: opaque black
        if (pixel[0] < spec->palette_size) {
            png_make_palette(pixel[0], rgba);
            if (pixel[0] >= (spec->palette_size + 1) / 2)
                rgba[3] = 255;
        }
        return rgba[c];
    }
    if (is_alpha && spec->transparency) {
        int n = png_make_channels(spec->color_type);
        return memcmp(pixel, spec->samples, (size_t)n * sizeof *pixel) == 0 ? 0 : max;
    }
    return spec->depth < 8 ? pixel[c] * 255u / ((1u << spec->depth) - 1) : pixel[c];
}

static void check_image(const struct png_spec *spec)
{
    struct png_file file;
    struct conv_image image;
    struct conv_err err = {0};
    png_make_image(&file, spec);
    if (image_decode(&image, file.data, file.size, &err) != CONV_OK)
        fail_msg("type %d depth %d %dx%d: %s", spec->color_type, spec->depth, spec->width,
                 spec->height, err.text);
    int n = png_make_channels(spec->color_type);
    int channels = (spec->color_type & 2 ? 3 : 1) + (spec->color_type & 4 || spec->transparency);
    assert_int_equal(image.channels, channels);
    assert_int_equal(image.depth, spec->depth == 16 ? 16 : 8);
    assert_int_equal(image.alpha, channels % 2 == 0);
    for (int y = 0; y < spec->height; y++) {
        for (int x = 0; x < spec->width; x++) {
            const uint16_t *pixel = spec->samples + (size_t)(y * spec->width + x) * (size_t)n;
            for (int c = 0; c < channels; c++) {
                unsigned got = image_sample(&image, c, x, y);
                unsigned want = expect_sample(spec, pixel, c);
                if (got != want)
                    fail_msg("type %d depth %d interlaced %d tRNS %d, %dx%d, channel %d at %d,%d: "
                             "%u instead of %u",
                             spec->color_type, spec->depth, spec->interlaced, spec->transparency,
                             spec->width, spec->height, c, x, y, got, want);
            }
        }
    }
    assert_true(image_padding_is(&image, 0xa5));
    image_free(&image);
    png_make_free(&file);
}

static void check_sizes(struct png_spec *spec)
{
    static const int sizes[][2] = {{1, 1}, {1, 9}, {9, 1}, {2, 3}, {5, 5}, {8, 8}, {33, 17}};
    static uint16_t samples[33 * 17 * 4];
    spec->samples = samples;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        spec->width = sizes[s][0];
        spec->height = sizes[s][1];
        int n = spec->width * spec->height * png_make_channels(spec->color_type);
        // Palette indices exceed the palette if the depth allows it.
        for (int i = 0; i < n; i++)
            samples[i] = (uint16_t)random_below(&seed, 1u << spec->depth);
        check_image(spec);
    }
}

UNIT_TEST(every_kind_of_file)
{
    static const int kinds[][2] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                                   {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};
    seed = 20;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int flags = 0; flags < 4; flags++) {
            struct png_spec spec = {
                .color_type = kinds[k][0],
                .depth = kinds[k][1],
                .interlaced = flags & 1,
                .transparency = flags & 2,
                .palette_size = kinds[k][0] == 3 ? palette_size_for(kinds[k][1]) : 0,
            };
            if (!(spec.transparency && spec.color_type & 4))
                check_sizes(&spec);
        }
    }
}

// libpng refuses more than 1,000,000 columns or rows unless told otherwise.
UNIT_TEST(very_wide_and_very_high)
{
    enum { LONG = 1000003 };
    uint16_t *samples = calloc(LONG, sizeof *samples);
    assert_non_null(samples);
    samples[LONG - 1] = 200;
    check_image(&(struct png_spec){.width = LONG, .height = 1, .depth = 8, .samples = samples});
    free(samples);

    struct png_file file = {0}, pixels;
    uint8_t *rows = calloc(LONG, 2);
    assert_non_null(rows);
    rows[2 * LONG - 1] = 200;
    pixels = png_make_zlib(rows, 2 * LONG);
    png_make_head(&file, 1, LONG, 8, 0);
    png_make_chunk(&file, "IDAT", pixels.data, pixels.size);
    png_make_chunk(&file, "IEND", "", 0);
    struct conv_image image;
    struct conv_err err = {0};
    if (image_decode(&image, file.data, file.size, &err) != CONV_OK)
        fail_msg("%s", err.text);
    assert_int_equal(image_sample(&image, 0, 0, LONG - 1), 200);
    image_free(&image);
    png_make_free(&pixels);
    png_make_free(&file);
    free(rows);
}

UNIT_MAIN(NULL, NULL)
