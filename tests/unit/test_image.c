// SPDX-License-Identifier: MIT
// The places of planes in memory.
#include "engine/group.h"
#include "image/image.h"
#include "support/unit.h"

// Bytes by which samples of one position in different planes must differ modulo a page.
#define APART 512

static void check_places(const uint8_t *const *plane, const struct conv_image *image)
{
    size_t bytes = (size_t)image->plane[0].stride * (size_t)image->height;
    for (int a = 0; a < image->channels; a++)
        for (int b = 0; b < a; b++) {
            size_t distance = (size_t)(plane[a] - plane[b]), rest = distance % CONV_IMAGE_PAGE;
            assert_int_equal(distance % CONV_IMAGE_PLANE_ALIGN, 0);
            assert_true(distance >= (size_t)(a - b) * bytes);
            assert_true(distance <= (size_t)(a - b) * (bytes + bytes / 128 + 127));
            if (bytes >= CONV_IMAGE_SPREAD_FROM && (rest < APART || rest > CONV_IMAGE_PAGE - APART))
                fail_msg("%d x %d, %d bits: planes %d and %d are %zu bytes apart", image->width,
                         image->height, image->depth, a, b, distance);
        }
}

// Planes 2^28 bytes apart made the decoding of a JPEG four times slower.
UNIT_TEST(planes_do_not_share_cache_sets)
{
    static const int sides[] = {1,    31,   511,  1024,  1090,  2048,
                                4095, 4096, 8192, 16352, 16384, 16416};
    enum { SIDES = sizeof sides / sizeof sides[0] };
    for (int i = 0; i < SIDES * SIDES * 3; i++) {
        struct conv_image shape = {.width = sides[i % SIDES],
                                   .height = sides[i / SIDES % SIDES],
                                   .channels = 4,
                                   .depth = 8 << i / SIDES / SIDES};
        struct conv_image image;
        const uint8_t *plane[CONV_IMAGE_MAX_CHANNELS];
        conv_image_lay_out(&image, &shape, (uint8_t *)(uintptr_t)(1 << 20)); // only addresses
        assert_true(image.plane[0].stride % (image.plane[0].stride < 1024 ? 16 : 64) == 0);
        for (int c = 0; c < shape.channels; c++)
            plane[c] = image.plane[c].data;
        check_places(plane, &image);
        assert_true((size_t)(plane[3] - plane[0]) / 3 * 4 == conv_image_bytes(&shape));
    }
}

// The same of the planes of a group.
UNIT_TEST(planes_of_groups_do_not_either)
{
    enum { PLANES = 4 };
    struct conv_group_plane planes[PLANES];
    for (int alpha = 0; alpha < 2; alpha++) {
        struct conv_image shape = {
            .width = 16384, .height = 16384, .channels = 4, .depth = 8, .alpha = true};
        struct conv_group group = {.h_in = (uint8_t *)(uintptr_t)(1 << 20),
                                   .capacity = (size_t)2 << 30,
                                   .planes = planes,
                                   .plane_capacity = PLANES};
        struct conv_placed placed;
        const uint8_t *plane[CONV_IMAGE_MAX_CHANNELS];
        assert_true(conv_group_place(&group, &shape, alpha, 0, &placed));
        shape.channels = alpha ? 4 : 3; // alpha that is not filtered lies at the other end
        for (int c = 0; c < shape.channels; c++)
            plane[c] = placed.in.plane[c].data;
        shape.plane[0].stride = placed.in.plane[0].stride;
        check_places(plane, &shape);
    }
}

UNIT_MAIN(NULL, NULL)
