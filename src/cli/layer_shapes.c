// SPDX-License-Identifier: MIT
#include "cli/layer_shapes.h"

#include <limits.h>

static enum conv_status fit_layer(struct conv_layer_shapes *shapes,
                                  const struct conv_layer_setup *setup, const char *name,
                                  const struct conv_tensor_shape *in, struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE], weights[CONV_TENSOR_TEXT_SIZE];
    const struct conv_layer *layer = &setup->layer;
    conv_tensor_shape_text(text, in);
    conv_tensor_shape_text(weights, &setup->weights.shape);
    const int64_t *side = in->side + in->axes - 3;
    if (in->axes < 3 || in->axes > 4 || side[0] != layer->channels)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: shape %s does not fit weights of shape %s; expected (images, %d, "
                            "height, width) or (%d, height, width)",
                            name, text, weights, layer->channels, layer->channels);
    int64_t tall = side[1] + layer->pad_top + layer->pad_bottom;
    int64_t wide = side[2] + layer->pad_left + layer->pad_right;
    if (side[1] < 1 || side[2] < 1 || tall > INT_MAX || wide > INT_MAX ||
        tall < layer->kernel_height || wide < layer->kernel_width)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: shape %s does not fit weights of shape %s; expected planes of at "
                            "least %d x %d samples, padding included",
                            name, text, weights, layer->kernel_height, layer->kernel_width);
    shapes->images = in->axes == 4 ? in->side[0] : 1;
    shapes->height = (int)side[1];
    shapes->width = (int)side[2];
    int64_t *out = shapes->out.side + in->axes - 3;
    out[0] = layer->maps;
    out[1] = conv_layer_out_height(layer, shapes->height);
    out[2] = conv_layer_out_width(layer, shapes->width);
    shapes->flops = 2.0 * (double)shapes->images * (double)out[0] * (double)out[1] *
                    (double)out[2] * layer->channels * layer->kernel_height * layer->kernel_width;
    return CONV_OK;
}

// The maps of a plane take its place among the channels; pooled, (kinds[, grid, grid]) takes the
// place of (height, width).
static enum conv_status fit_bank(struct conv_layer_shapes *shapes,
                                 const struct conv_layer_setup *setup, const char *name,
                                 const struct conv_tensor_shape *in, struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE];
    const struct conv_pooling *pool = &setup->pool;
    int axes = in->axes, grid = pool->count ? pool->grid : 1;
    const int64_t *plane = in->side + axes - 2;
    if (axes < 2 || axes > 4)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: shape %s; a filter bank takes (images, channels, height, width), "
                            "(channels, height, width) or (height, width)",
                            name, conv_tensor_shape_text(text, in));
    if (plane[0] < grid || plane[1] < grid || plane[0] > INT_MAX || plane[1] > INT_MAX)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "%s: shape %s; expected planes of %d x %d to %d x %d samples", name,
                            conv_tensor_shape_text(text, in), grid, grid, INT_MAX, INT_MAX);
    struct conv_tensor_shape *out = &shapes->out;
    int64_t channels = axes > 2 ? plane[-1] : 1;
    shapes->images = axes == 4 ? in->side[0] * channels : channels;
    shapes->height = (int)plane[0];
    shapes->width = (int)plane[1];
    shapes->flops = 2 * conv_bank_cost(&setup->bank) * (double)shapes->images * (double)plane[0] *
                    (double)plane[1];
    int at = axes == 4; // of the maps
    if (__builtin_mul_overflow(channels, (int64_t)setup->bank.map_count, &out->side[at++]))
        return conv_err_set(err, CONV_ERR_LIMIT, "%s: shape %s has too many channels", name,
                            conv_tensor_shape_text(text, in));
    int64_t maps[] = {plane[0], plane[1]}, features[] = {pool->count, pool->grid, pool->grid};
    int sides = !pool->count ? 2 : pool->grid > 1 ? 3 : 1;
    for (int i = 0; i < sides; i++)
        out->side[at++] = pool->count ? features[i] : maps[i];
    out->axes = at;
    return CONV_OK;
}

enum conv_status conv_layer_shapes_fit(struct conv_layer_shapes *shapes,
                                       const struct conv_layer_setup *setup, const char *name,
                                       const struct conv_tensor_shape *in, struct conv_err *err)
{
    char text[CONV_TENSOR_TEXT_SIZE];
    uint64_t bytes;
    *shapes = (struct conv_layer_shapes){.out = *in};
    enum conv_status status = setup->bank.map_count ? fit_bank(shapes, setup, name, in, err)
                                                    : fit_layer(shapes, setup, name, in, err);
    if (status)
        return status;
    return conv_tensor_shape_bytes(&shapes->out, conv_element_size(setup->layer.output), &bytes)
               ? CONV_OK
               : conv_err_set(err, CONV_ERR_LIMIT, "the result would have shape %s",
                              conv_tensor_shape_text(text, &shapes->out));
}
