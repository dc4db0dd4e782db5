// SPDX-License-Identifier: MIT
// Images for check_codec: all shapes and depths, and samples that compress well, badly or not at
// all.
#include <stdio.h>
#include <stdlib.h>

#include "check_codec.h"
#include "support/test_image.h"

int check_draw_int(uint64_t *state, int low, int high)
{
    return low + (int)(random_bits(state) % (uint64_t)(high - low + 1));
}

const char *check_kind_name(enum check_kind kind)
{
    static const char *const names[CHECK_KINDS] = {
        [CHECK_NOISE] = "noise",   [CHECK_FLAT] = "flat",       [CHECK_GRADIENT] = "gradient",
        [CHECK_PHOTO] = "photo",   [CHECK_DRAWING] = "drawing", [CHECK_SPARSE] = "sparse",
        [CHECK_SKEWED] = "skewed", [CHECK_EVEN] = "even",
    };
    return names[kind];
}

// --- shapes --------------------------------------------------------------------------------------

void check_draw_shape(struct conv_image *image, uint64_t *state)
{
    int long_side = check_draw_int(state, 1, 2000), width = 0, height = 0;
    switch (check_draw_int(state, 0, 7)) {
    case 0:
        width = height = 1;
        break;
    case 1:
        width = long_side;
        height = 1;
        break;
    case 2:
        width = 1;
        height = long_side;
        break;
    case 3:
        width = long_side;
        height = check_draw_int(state, 1, 20);
        break;
    case 4:
        width = check_draw_int(state, 1, 20);
        height = long_side;
        break;
    default:
        width = check_draw_int(state, 1, 200);
        height = check_draw_int(state, 1, 200);
        break;
    }
    *image = (struct conv_image){
        .width = width,
        .height = height,
        .channels = check_draw_int(state, 1, 4),
        .depth = check_draw_int(state, 0, 2) ? 8 : 16,
    };
}

// --- samples -------------------------------------------------------------------------------------

struct painter {
    enum check_kind kind;
    uint64_t *state;
    int max;
    int colour[CONV_IMAGE_MAX_CHANNELS][4];
    int slope[CONV_IMAGE_MAX_CHANNELS][2];
    int cell;
};

static int draw_skewed(uint64_t *state)
{
    uint64_t bits = random_bits(state);
    int s = 0;
    while (s < 60 && bits & 1) {
        bits >>= 1;
        s++;
    }
    return s;
}

static int draw_sample(const struct painter *painter, int c, int x, int y)
{
    int level;
    switch (painter->kind) {
    case CHECK_FLAT:
        return painter->colour[c][0];
    case CHECK_GRADIENT:
        return painter->colour[c][0] + painter->slope[c][0] * x + painter->slope[c][1] * y;
    case CHECK_PHOTO:
        level = painter->colour[c][0] + painter->slope[c][0] * x / 4 + painter->slope[c][1] * y / 3;
        return level + check_draw_int(painter->state, 0, 7) * check_draw_int(painter->state, 0, 3);
    case CHECK_DRAWING:
        return painter->colour[c][(x / painter->cell + y / (painter->cell + 3) * 3) & 3];
    case CHECK_SPARSE:
        return check_draw_int(painter->state, 0, 15)
                   ? 0
                   : check_draw_int(painter->state, 0, painter->max);
    case CHECK_SKEWED:
        return draw_skewed(painter->state);
    case CHECK_EVEN:
        return check_draw_int(painter->state, 0, 126) * 256 +
               check_draw_int(painter->state, 0, 126);
    default:
        return check_draw_int(painter->state, 0, painter->max);
    }
}

static void draw_plane(const struct conv_image *image, int c, const struct painter *painter)
{
    const struct conv_plane *plane = &image->plane[c];
    for (int y = 0; y < image->height; y++) {
        uint8_t *row = plane->data + y * plane->stride;
        for (ptrdiff_t i = 0; i < plane->stride; i++)
            row[i] = (uint8_t)random_bits(painter->state);
        for (int x = 0; x < image->width; x++)
            image_set(image, c, x, y, (unsigned)(draw_sample(painter, c, x, y) & painter->max));
    }
}

void check_draw_image(struct conv_image *image, enum check_kind kind, uint64_t *state)
{
    struct painter painter = {
        .kind = kind,
        .state = state,
        .max = image->depth == 8 ? 255 : 65535,
        .cell = check_draw_int(state, 1, 40),
    };
    image->alpha = image->channels % 2 == 0;
    for (int c = 0; c < image->channels; c++) {
        for (int i = 0; i < 4; i++)
            painter.colour[c][i] = check_draw_int(state, 0, painter.max);
        for (int i = 0; i < 2; i++)
            painter.slope[c][i] = check_draw_int(state, -3, 3);
    }
    // One stride for all planes, as in a stream's memory, with some extra bytes.
    size_t stride = conv_image_stride(image->width, image->depth) +
                    (size_t)check_draw_int(state, 0, 2) * CONV_IMAGE_ROW_ALIGN;
    for (int c = 0; c < image->channels; c++) {
        size_t size = conv_image_align(stride * (size_t)image->height, CONV_IMAGE_PLANE_ALIGN);
        image->plane[c].stride = (ptrdiff_t)stride;
        image->plane[c].data = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, size);
        if (!image->plane[c].data) {
            perror("check_codec: aligned_alloc");
            exit(1);
        }
        draw_plane(image, c, &painter);
    }
}
