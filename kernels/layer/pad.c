// SPDX-License-Identifier: MIT
// Padding and the conversion of 8-bit samples, for variants that require their caller to do both.
#include "kernels/common/border.h"
#include "kernels/layer/layer.h"

static float read_sample(const struct conv_layer *layer, const uint8_t *row, int x)
{
    if (layer->input == CONV_ELEMENT_U8)
        return (float)row[x] / layer->input_divisor;
    return ((const float *)(const void *)row)[x];
}

static void pad_plane(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                      const uint8_t *src, int64_t src_row, float *dst)
{
    int height = shape->height + layer->pad_top + layer->pad_bottom;
    int width = shape->width + layer->pad_left + layer->pad_right;
    for (int i = 0; i < height; i++) {
        int y = conv_border_index(layer->border, i - layer->pad_top, shape->height);
        for (int j = 0; j < width; j++) {
            int x = conv_border_index(layer->border, j - layer->pad_left, shape->width);
            *dst++ =
                x < 0 || y < 0 ? layer->border_value : read_sample(layer, src + y * src_row, x);
        }
    }
}

void conv_layer_pad(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                    const struct conv_layer_batch *batch, float *dst)
{
    size_t plane = (size_t)(shape->height + layer->pad_top + layer->pad_bottom) *
                   (size_t)(shape->width + layer->pad_left + layer->pad_right);
    for (int64_t b = 0; b < batch->images; b++) {
        for (int c = 0; c < layer->channels; c++) {
            const uint8_t *src =
                (const uint8_t *)batch->src + b * batch->src_image + c * batch->src_plane;
            pad_plane(layer, shape, src, batch->src_row, dst);
            dst += plane;
        }
    }
}
