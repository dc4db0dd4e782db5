// SPDX-License-Identifier: MIT
#include "support/api_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/random.h"

void api_image_make(struct api_image *image, enum api_layout layout, int width, int height,
                    int channels, conv_sample sample, int fill)
{
    int64_t size = conv_sample_bytes(sample);
    conv_image view =
        layout == API_PLANAR
            ? conv_image_planar(NULL, width, height, channels, sample, CONV_HOST)
            : conv_image_interleaved(NULL, width, height, channels, sample, CONV_HOST);
    int64_t before = 0, after = 0;
    switch (layout) {
    case API_PADDED:
        view.column_stride = size;
        view.row_stride = size * (width + 3);
        view.channel_stride = view.row_stride * height + 5 * size;
        before = 3 * size;
        after = 7;
        break;
    case API_CROPPED:
        view.channel_stride = size;
        view.column_stride = size * (channels + 2);
        view.row_stride = view.column_stride * width + 9 * size;
        before = 5 * size;
        after = 3;
        break;
    case API_COLUMNS:
        view.channel_stride = size;
        view.row_stride = size * channels;
        view.column_stride = view.row_stride * height + size;
        after = 1;
        break;
    default:
        break;
    }
    int64_t extent = (channels - 1) * view.channel_stride + (width - 1) * view.column_stride +
                     (height - 1) * view.row_stride + size;
    image->size = (size_t)(before + extent + after);
    image->memory = malloc(image->size);
    memset(image->memory, fill, image->size);
    view.data = image->memory + before;
    image->view = view;
}

void api_image_free(struct api_image *image)
{
    free(image->memory);
    image->memory = NULL;
}

static uint8_t *place(const conv_image *view, int c, int x, int y)
{
    return (uint8_t *)view->data + c * view->channel_stride + x * view->column_stride +
           y * view->row_stride;
}

uint32_t api_image_get(const conv_image *view, int c, int x, int y)
{
    const uint8_t *at = place(view, c, x, y);
    uint32_t bits = *at;
    uint16_t wide;
    if (view->sample == CONV_SAMPLE_F32) {
        memcpy(&bits, at, sizeof bits);
    } else if (view->sample != CONV_SAMPLE_U8) {
        memcpy(&wide, at, sizeof wide);
        bits = wide;
    }
    return bits;
}

void api_image_set(const conv_image *view, int c, int x, int y, uint32_t sample)
{
    uint16_t wide = (uint16_t)sample;
    uint8_t *at = place(view, c, x, y);
    if (view->sample == CONV_SAMPLE_F32)
        memcpy(at, &sample, sizeof sample);
    else if (view->sample != CONV_SAMPLE_U8)
        memcpy(at, &wide, sizeof wide);
    else
        *at = (uint8_t)sample;
}

bool api_image_gaps_are(const struct api_image *image, int fill)
{
    const conv_image *view = &image->view;
    uint8_t *used = calloc(image->size, 1);
    int bytes = (int)conv_sample_bytes(view->sample);
    for (int c = 0; c < view->channels; c++)
        for (int y = 0; y < view->height; y++)
            for (int x = 0; x < view->width; x++) {
                uint8_t *at = used + (place(view, c, x, y) - image->memory);
                for (int i = 0; i < bytes; i++) // memset would be a call under a sanitizer
                    at[i] = 1;
            }
    bool good = true;
    for (size_t i = 0; i < image->size && good; i++)
        good = used[i] || image->memory[i] == fill;
    free(used);
    return good;
}

bool api_image_equal(const conv_image *a, const conv_image *b)
{
    for (int c = 0; c < a->channels; c++)
        for (int y = 0; y < a->height; y++)
            for (int x = 0; x < a->width; x++)
                if (api_image_get(a, c, x, y) != api_image_get(b, c, x, y)) {
                    printf("%d x %d x %d, channel %d, x %d, y %d: %u, not %u\n", a->width,
                           a->height, a->channels, c, x, y, api_image_get(a, c, x, y),
                           api_image_get(b, c, x, y));
                    return false;
                }
    return true;
}

void api_image_fill(const conv_image *view, uint64_t *random)
{
    uint32_t sample = 0;
    for (int y = 0; y < view->height; y++)
        for (int x = 0; x < view->width; x++)
            for (int c = 0; c < view->channels; c++) {
                if (random_below(random, 4))
                    sample = (uint32_t)random_bits(random);
                uint32_t value = view->sample == CONV_SAMPLE_U8 ? sample & 255 : sample & 65535;
                if (view->sample == CONV_SAMPLE_F32) {
                    float number = (float)(int32_t)sample * 0x1p-22f;
                    memcpy(&value, &number, sizeof value);
                }
                api_image_set(view, c, x, y, value);
            }
}
