// SPDX-License-Identifier: MIT
#include "support/test_image.h"

#include <stdlib.h>
#include <string.h>

static size_t row_bytes(const struct conv_image *image)
{
    return (size_t)image->width * (size_t)(image->depth / 8);
}

void image_alloc(struct conv_image *image, int fill)
{
    for (int c = 0; c < image->channels; c++) {
        size_t stride =
            conv_image_stride(image->width, image->depth) + (size_t)(c + 1) * CONV_IMAGE_ROW_ALIGN;
        size_t size = conv_image_align(stride * (size_t)image->height, CONV_IMAGE_PLANE_ALIGN);
        image->plane[c].stride = (ptrdiff_t)stride;
        image->plane[c].data = aligned_alloc(CONV_IMAGE_PLANE_ALIGN, size);
        if (!image->plane[c].data)
            abort();
        memset(image->plane[c].data, fill, size);
    }
}

void image_free(struct conv_image *image)
{
    for (int c = 0; c < CONV_IMAGE_MAX_CHANNELS; c++) {
        free(image->plane[c].data);
        image->plane[c].data = NULL;
    }
}

static uint8_t *sample_at(const struct conv_image *image, int channel, int x, int y)
{
    const struct conv_plane *plane = &image->plane[channel];
    return plane->data + y * plane->stride + (ptrdiff_t)x * (image->depth / 8);
}

unsigned image_sample(const struct conv_image *image, int channel, int x, int y)
{
    const uint8_t *p = sample_at(image, channel, x, y);
    uint16_t wide;
    if (image->depth == 8)
        return *p;
    memcpy(&wide, p, sizeof wide);
    return wide;
}

void image_set(const struct conv_image *image, int channel, int x, int y, unsigned sample)
{
    uint8_t *p = sample_at(image, channel, x, y);
    uint16_t wide = (uint16_t)sample;
    if (image->depth == 8)
        *p = (uint8_t)sample;
    else
        memcpy(p, &wide, sizeof wide);
}

bool image_padding_is(const struct conv_image *image, int fill)
{
    for (int c = 0; c < image->channels; c++) {
        const struct conv_plane *plane = &image->plane[c];
        for (int y = 0; y < image->height; y++) {
            for (ptrdiff_t i = (ptrdiff_t)row_bytes(image); i < plane->stride; i++) {
                if (plane->data[y * plane->stride + i] != fill)
                    return false;
            }
        }
    }
    return true;
}

bool image_equal(const struct conv_image *a, const struct conv_image *b)
{
    if (a->width != b->width || a->height != b->height || a->channels != b->channels ||
        a->depth != b->depth || a->alpha != b->alpha)
        return false;
    for (int c = 0; c < a->channels; c++)
        for (int y = 0; y < a->height; y++)
            if (memcmp(sample_at(a, c, 0, y), sample_at(b, c, 0, y), row_bytes(a)) != 0)
                return false;
    return true;
}

void image_join(struct png_file *file, const struct conv_encoded *parts)
{
    size_t before = file->size;
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        png_make_bytes(file, parts->part[i].data, parts->part[i].size);
    if (file->size - before != parts->size)
        abort();
}

struct conv_codec *image_codec(const struct conv_png_encoder *encoder, int level)
{
    const struct conv_codec_config config = {.encoder = encoder, .level = level};
    struct conv_codec *codec;
    if (conv_codec_open(&codec, &conv_png_format, &config, NULL))
        abort();
    return codec;
}

enum conv_status image_decode(struct conv_image *image, const uint8_t *data, size_t size,
                              struct conv_err *err)
{
    struct conv_image_header header;
    *image = (struct conv_image){0};
    enum conv_status status = conv_png_format.probe(data, size, &header, err);
    if (!status)
        status = conv_png_format.check_size(data, size, &header, err);
    if (status)
        return status;
    *image = header.shape;
    image_alloc(image, 0xa5);
    struct conv_codec *codec = image_codec(NULL, -1);
    status = conv_png_format.decode(codec, data, size, &header, image, NULL, err);
    conv_codec_close(codec);
    return status;
}
