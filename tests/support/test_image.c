// SPDX-License-Identifier: MIT
#include "support/test_image.h"

#include <stdlib.h>
#include <string.h>

static size_t row_bytes(const struct conv_image *picture)
{
    return (size_t)picture->width * (size_t)(picture->depth / 8);
}

void picture_alloc(struct conv_image *picture, int fill)
{
    for (int c = 0; c < picture->channels; c++) {
        size_t stride = conv_image_stride(picture->width, picture->depth) +
                        (size_t)(c + 1) * CONV_IMAGE_ROW_ALIGN;
        size_t size = conv_image_align(stride * (size_t)picture->height, CONV_IMAGE_PLANE_ALIGN);
        picture->plane[c].stride = (ptrdiff_t)stride;
        picture->plane[c].data = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, size);
        if (!picture->plane[c].data)
            abort();
        memset(picture->plane[c].data, fill, size);
    }
}

void picture_free(struct conv_image *picture)
{
    for (int c = 0; c < CONV_IMAGE_MAX_CHANNELS; c++) {
        free(picture->plane[c].data);
        picture->plane[c].data = NULL;
    }
}

static uint8_t *sample_at(const struct conv_image *picture, int channel, int x, int y)
{
    const struct conv_plane *plane = &picture->plane[channel];
    return plane->data + y * plane->stride + (ptrdiff_t)x * (picture->depth / 8);
}

unsigned picture_sample(const struct conv_image *picture, int channel, int x, int y)
{
    const uint8_t *p = sample_at(picture, channel, x, y);
    uint16_t wide;
    if (picture->depth == 8)
        return *p;
    memcpy(&wide, p, sizeof wide);
    return wide;
}

void picture_set(struct conv_image *picture, int channel, int x, int y, unsigned sample)
{
    uint8_t *p = sample_at(picture, channel, x, y);
    uint16_t wide = (uint16_t)sample;
    if (picture->depth == 8)
        *p = (uint8_t)sample;
    else
        memcpy(p, &wide, sizeof wide);
}

bool picture_padding_is(const struct conv_image *picture, int fill)
{
    for (int c = 0; c < picture->channels; c++) {
        const struct conv_plane *plane = &picture->plane[c];
        for (int y = 0; y < picture->height; y++) {
            for (ptrdiff_t i = (ptrdiff_t)row_bytes(picture); i < plane->stride; i++) {
                if (plane->data[y * plane->stride + i] != fill)
                    return false;
            }
        }
    }
    return true;
}

enum conv_status picture_decode(struct conv_image *picture, const uint8_t *data, size_t size,
                                struct conv_err *err)
{
    struct conv_png_header header;
    struct conv_png_codec *codec = NULL;
    *picture = (struct conv_image){0};
    enum conv_status status = conv_png_probe(data, size, &header, err);
    if (!status)
        status = conv_png_check_promise(data, size, &header, err);
    if (status)
        return status;
    *picture = header.shape;
    picture_alloc(picture, 0xa5);
    status = conv_png_codec_open(&codec, &(struct conv_png_config){.level = -1}, err);
    if (!status)
        status = conv_png_decode(codec, data, size, &header, picture, err);
    conv_png_codec_close(codec);
    return status;
}
