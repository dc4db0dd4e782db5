// SPDX-License-Identifier: MIT
// The definition of a layer, one output after the other, without optimisations. Every other variant
// is compared with this one, bit for bit or within its bound. And padding, with the conversion of
// samples, for variants that require their caller to do both.
#include <math.h>

#include "kernels/common/border.h"
#include "kernels/layer/layer.h"
#include "tensor/element.h"

static float convert(const struct conv_layer *layer, const uint8_t *row, int x)
{
    if (layer->input == CONV_ELEMENT_U8)
        return (float)row[x] / layer->input_divisor;
    if (layer->input == CONV_ELEMENT_F32)
        return ((const float *)(const void *)row)[x];
    uint16_t sample = ((const uint16_t *)(const void *)row)[x];
    return layer->input == CONV_ELEMENT_F16 ? conv_half_to_float(sample)
                                            : conv_bfloat_to_float(sample);
}

// The sample at row y, column x of a plane; both may lie in the padding.
static float read_sample(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                         const uint8_t *src, int64_t row, int y, int x)
{
    y = conv_border_index(layer->border, y, shape->height);
    x = conv_border_index(layer->border, x, shape->width);
    return x < 0 || y < 0 ? layer->border_value : convert(layer, src + y * row, x);
}

static float compute(const struct conv_layer_plan *plan, const uint8_t *image,
                     const struct conv_layer_batch *batch, int m, int i, int j)
{
    const struct conv_layer *layer = &plan->layer;
    int top = i * layer->stride_y - layer->pad_top, left = j * layer->stride_x - layer->pad_left;
    int channels = layer->channels / layer->groups, group = m / (layer->maps / layer->groups);
    const float *weight = layer->weights + (size_t)m * conv_layer_taps(layer);
    image += group * channels * batch->src_plane;
    float sum = layer->bias ? layer->bias[m] : 0;
    for (int c = 0; c < channels; c++)
        for (int u = 0; u < layer->kernel_height; u++)
            for (int v = 0; v < layer->kernel_width; v++)
                sum = fmaf(*weight++,
                           read_sample(layer, &plan->shape, image + c * batch->src_plane,
                                       batch->src_row, top + u * layer->dilation_y,
                                       left + v * layer->dilation_x),
                           sum);
    return conv_layer_activate(layer->activation, sum);
}

static int score_reference(const struct conv_layer_plan *)
{
    return CONV_LAYER_SCORE_LAST;
}

static enum conv_status run_reference(const struct conv_layer_plan *plan,
                                      const struct conv_layer_batch *batch)
{
    const struct conv_layer *layer = &plan->layer;
    int height = conv_layer_out_height(layer, plan->shape.height);
    int width = conv_layer_out_width(layer, plan->shape.width);
    for (int64_t b = 0; b < batch->images; b++) {
        const uint8_t *image = (const uint8_t *)batch->src + b * batch->src_image;
        for (int m = 0; m < layer->maps; m++) {
            size_t map = ((size_t)b * (size_t)layer->maps + (size_t)m) * (size_t)height;
            for (int i = batch->first_row; i < batch->first_row + batch->rows; i++) {
                for (int j = 0; j < width; j++) {
                    float value = compute(plan, image, batch, m, i, j);
                    size_t at = (map + (size_t)i) * (size_t)width + (size_t)j;
                    if (layer->output == CONV_ELEMENT_F32)
                        ((float *)batch->dst)[at] = value;
                    else
                        ((uint16_t *)batch->dst)[at] = conv_tensor_from_float(layer->output, value);
                }
            }
        }
    }
    return CONV_OK;
}

const struct conv_layer_variant conv_cpu_layer_reference = {
    .name = "cpu_layer_reference",
    .summary = "the definition, one output after the other",
    .place = CONV_ON_CPU,
    .precision = CONV_PRECISION_EXACT,
    .handles = CONV_LAYER_ANY,
    .score = score_reference,
    .run = run_reference,
};

// --- padding -------------------------------------------------------------------------------------

void conv_layer_pad(const struct conv_layer *layer, const struct conv_layer_shape *shape,
                    const struct conv_layer_batch *batch, float *dst)
{
    int bottom = shape->height + layer->pad_bottom, right = shape->width + layer->pad_right;
    for (int64_t plane = 0; plane < batch->images * layer->channels; plane++) {
        const uint8_t *src = (const uint8_t *)batch->src +
                             plane / layer->channels * batch->src_image +
                             plane % layer->channels * batch->src_plane;
        for (int y = -layer->pad_top; y < bottom; y++)
            for (int x = -layer->pad_left; x < right; x++)
                *dst++ = read_sample(layer, shape, src, batch->src_row, y, x);
    }
}
