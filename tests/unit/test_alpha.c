// SPDX-License-Identifier: MIT
// Premultiplication against the definition in floating point, for every pair of 8-bit values and
// for edges and noise at 16 bits.
#include "kernels/stencil/alpha.h"
#include "support/random.h"
#include "support/unit.h"

#define SIDE 256

static double define(double colour, double alpha, double max, bool divide)
{
    if (divide && alpha == 0)
        return 0;
    double value = divide ? colour * max / alpha : colour * alpha / max;
    return value > max ? max : value;
}

// floor(value + 1/2), where the error of `value` is far below its distance from the nearest half.
static int round_half_up(double value)
{
    return (int)(value + 0.5);
}

static void scale(const struct conv_image *image, enum conv_alpha_step step)
{
    for (int c = 0; c < image->channels - 1; c++) {
        struct conv_stencil_plane plane = {
            .dst = image->plane[c].data,
            .dst_stride = image->plane[c].stride,
            .width = image->width,
            .height = image->height,
            .alpha = image->alpha ? image->plane[image->channels - 1].data : NULL,
        };
        conv_alpha_run(step, &plane, image->depth);
    }
}

UNIT_TEST(eight_bits_all_pairs)
{
    static uint8_t colour[SIDE * SIDE], other[SIDE * SIDE], alpha[SIDE * SIDE];
    for (int divide = 0; divide < 2; divide++) {
        for (int i = 0; i < SIDE * SIDE; i++) {
            colour[i] = (uint8_t)(i % SIDE);
            other[i] = (uint8_t)(255 - i % SIDE);
            alpha[i] = (uint8_t)(i / SIDE);
        }
        struct conv_image image = {.width = SIDE,
                                   .height = SIDE,
                                   .channels = 3,
                                   .depth = 8,
                                   .alpha = true,
                                   .plane = {{colour, SIDE}, {other, SIDE}, {alpha, SIDE}}};
        scale(&image, divide ? CONV_ALPHA_DIVIDE : CONV_ALPHA_MULTIPLY);
        for (int i = 0; i < SIDE * SIDE; i++) {
            int c = i % SIDE, a = i / SIDE;
            assert_int_equal(colour[i], round_half_up(define(c, a, 255, divide)));
            assert_int_equal(other[i], round_half_up(define(255 - c, a, 255, divide)));
            assert_int_equal(alpha[i], a);
        }
    }
}

UNIT_TEST(sixteen_bits)
{
    static const uint16_t edges[] = {0, 1, 2, 127, 128, 255, 256, 257, 32767, 32768, 65534, 65535};
    enum { EDGES = sizeof edges / sizeof edges[0], COUNT = EDGES * EDGES + 10000 };
    static uint16_t before[COUNT], colour[COUNT], alpha[COUNT];
    uint64_t noise = 1;
    for (int i = 0; i < COUNT; i++) {
        before[i] = i < EDGES * EDGES ? edges[i / EDGES] : (uint16_t)random_bits(&noise);
        alpha[i] = i < EDGES * EDGES ? edges[i % EDGES] : (uint16_t)random_bits(&noise);
    }
    for (int divide = 0; divide < 2; divide++) {
        memcpy(colour, before, sizeof colour);
        struct conv_image image = {
            .width = COUNT,
            .height = 1,
            .channels = 2,
            .depth = 16,
            .alpha = true,
            .plane = {{(uint8_t *)colour, sizeof colour}, {(uint8_t *)alpha, sizeof alpha}}};
        scale(&image, divide ? CONV_ALPHA_DIVIDE : CONV_ALPHA_MULTIPLY);
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(colour[i], round_half_up(define(before[i], alpha[i], 65535, divide)));
    }
}

UNIT_TEST(without_alpha_nothing_happens)
{
    uint8_t samples[2] = {10, 200};
    struct conv_image image = {.width = 1,
                               .height = 1,
                               .channels = 2,
                               .depth = 8,
                               .plane = {{samples, 1}, {samples + 1, 1}}};
    scale(&image, CONV_ALPHA_MULTIPLY);
    scale(&image, CONV_ALPHA_DIVIDE);
    scale(&image, CONV_ALPHA_RESTORE);
    assert_int_equal(samples[0], 10);
    assert_int_equal(samples[1], 200);
}

UNIT_MAIN(NULL, NULL)
