// SPDX-License-Identifier: MIT
// Groups on the CPU against the definition, computed here sample by sample: all channels and
// depths, alpha modes, chains, several images at once.
#include "support/filter_group.h"
#include "support/random.h"
#include "support/test_image.h"
#include "support/unit.h"

#define FILL 0xa5

static uint64_t noise = 1;

static const struct conv_filter blur = {
    .name = "blur", .width = 3, .height = 3, .coef = {1, 2, 1, 2, 4, 2, 1, 2, 1}, .scale = 16};
static const struct conv_filter edge = {
    .name = "edge", .width = 3, .height = 1, .coef = {-1, 0, 1}, .scale = 2, .offset = 100};

static int clamp(int x, int most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

// round_half_even(sum / scale + offset), clamped.
static unsigned define(const struct conv_image *image, int c, int x, int y,
                       const struct conv_filter *filter)
{
    int max = image->depth == 8 ? 255 : 65535, sum = 0, scale = (int)filter->scale;
    for (int j = 0; j < filter->height; j++)
        for (int i = 0; i < filter->width; i++)
            sum += (int)filter->coef[j * filter->width + i] *
                   (int)image_sample(image, c, clamp(x + i - filter->width / 2, image->width - 1),
                                     clamp(y + j - filter->height / 2, image->height - 1));
    sum += (int)filter->offset * (max / 255) * scale;
    int down = sum >= 0 ? sum / scale : -((-sum + scale - 1) / scale); // rounded down
    int rest = 2 * (sum - down * scale);
    return (unsigned)clamp(down + (rest > scale || (rest == scale && down % 2 != 0)), max);
}

// round(colour * alpha / max), or the inverse, of all colours.
static void scale_colours(struct conv_image *image, bool divide)
{
    uint64_t max = image->depth == 8 ? 255 : 65535;
    for (int c = 0; c < image->channels - 1; c++)
        for (int y = 0; y < image->height; y++)
            for (int x = 0; x < image->width; x++) {
                uint64_t value = image_sample(image, c, x, y);
                uint64_t alpha = image_sample(image, image->channels - 1, x, y);
                if (divide)
                    value = alpha ? (2 * value * max + alpha) / (2 * alpha) : 0;
                else
                    value = (2 * value * alpha + max) / (2 * max);
                image_set(image, c, x, y, (unsigned)(value < max ? value : max));
            }
}

static void define_image(struct conv_image *image, const struct conv_filter *filter,
                         enum conv_alpha_mode alpha)
{
    struct conv_image before = *image;
    bool premultiply = image->alpha && alpha == CONV_ALPHA_PREMULTIPLY;
    image_alloc(&before, FILL);
    conv_image_copy(&before, image);
    if (premultiply)
        scale_colours(&before, false);
    int filtered = image->channels - (image->alpha && alpha == CONV_ALPHA_KEEP);
    for (int c = 0; c < filtered; c++)
        for (int y = 0; y < image->height; y++)
            for (int x = 0; x < image->width; x++)
                image_set(image, c, x, y, define(&before, c, x, y, filter));
    if (premultiply)
        scale_colours(image, true);
    image_free(&before);
}

static void fill_with_noise(struct conv_image *image)
{
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height; y++)
            for (int x = 0; x < image->width; x++)
                image_set(image, c, x, y,
                          (unsigned)random_bits(&noise) & (image->depth == 8 ? 255 : 65535));
}

static void assert_same(const struct conv_image *got, const struct conv_image *expected)
{
    struct conv_image_difference first;
    if (conv_image_differ(got, expected, &first))
        fail_msg("%d channels, %d bits: channel %d, x %d, y %d: %u, not %u", got->channels,
                 got->depth, first.channel, first.x, first.y, first.a, first.b);
}

static struct conv_backend *open_backend(const struct conv_filter *filters, int count,
                                         enum conv_alpha_mode alpha)
{
    struct conv_err err = {0};
    struct conv_backend *backend = NULL;
    struct conv_backend_config config = {.filters = filters, .filter_count = count, .alpha = alpha};
    assert_int_equal(conv_device_cpu.open(&backend, &config, &err), CONV_OK);
    return backend;
}

static void filter_images(struct conv_backend *backend, const struct conv_image *shapes, int images,
                          const struct conv_filter *filters, int count, enum conv_alpha_mode alpha)
{
    struct filter_group filter;
    struct conv_image expected[FILTER_GROUP_MOST], results[FILTER_GROUP_MOST];
    struct conv_err err = {0};
    filter_group_open(&filter, backend, alpha, shapes, images);
    for (int i = 0; i < images; i++) {
        expected[i] = shapes[i];
        image_alloc(&expected[i], FILL);
        fill_with_noise(&expected[i]);
        conv_image_copy(&filter.placed[i].in, &expected[i]);
        for (int k = 0; k < count; k++)
            define_image(&expected[i], &filters[k], alpha);
    }
    assert_int_equal(filter_group_run(&filter, results, &err), CONV_OK);
    for (int i = 0; i < images; i++) {
        assert_same(&results[i], &expected[i]);
        image_free(&expected[i]);
    }
    filter_group_close(&filter);
}

UNIT_TEST(images_of_all_kinds)
{
    struct conv_filter chain[2] = {blur, edge};
    static const int sizes[][2] = {{1, 1}, {33, 7}, {5, 20}};
    for (int alpha = CONV_ALPHA_KEEP; alpha <= CONV_ALPHA_PREMULTIPLY; alpha++)
        for (int count = 1; count <= 2; count++) {
            struct conv_backend *backend = open_backend(chain, count, (enum conv_alpha_mode)alpha);
            for (int i = 0; i < 3; i++)
                for (int kind = 0; kind < 8; kind++) {
                    struct conv_image shape = {.width = sizes[i][0],
                                               .height = sizes[i][1],
                                               .channels = 1 + kind % 4,
                                               .alpha = kind % 2 == 1,
                                               .depth = kind < 4 ? 8 : 16};
                    filter_images(backend, &shape, 1, chain, count, (enum conv_alpha_mode)alpha);
                }
            conv_device_cpu.close(backend);
        }
}

UNIT_TEST(several_images_at_once)
{
    enum { COUNT = 3 };
    struct conv_image shapes[COUNT] = {
        {.width = 40, .height = 3, .channels = 4, .alpha = true, .depth = 8},
        {.width = 2, .height = 50, .channels = 1, .depth = 16},
        {.width = 9, .height = 9, .channels = 2, .alpha = true, .depth = 16},
    };
    struct conv_backend *backend = open_backend(&edge, 1, CONV_ALPHA_KEEP);
    for (int round = 0; round < 2; round++)
        filter_images(backend, shapes, COUNT, &edge, 1, CONV_ALPHA_KEEP);
    conv_device_cpu.close(backend);
}

UNIT_TEST(forced_kernels)
{
    struct conv_err err = {0};
    struct conv_backend *backend = NULL;
    struct conv_backend_config config = {
        .filters = &blur, .filter_count = 1, .variant = "cpu_reference"};
    assert_int_equal(conv_device_cpu.open(&backend, &config, &err), CONV_OK);
    assert_string_equal(conv_device_cpu.variant(backend, 0, 16), "cpu_reference");
    conv_device_cpu.close(backend);
    backend = NULL;
    config.variant = "cpu_none";
    assert_int_equal(conv_device_cpu.open(&backend, &config, &err), CONV_ERR_USAGE);
    assert_null(backend);
}

UNIT_MAIN(NULL, NULL)
