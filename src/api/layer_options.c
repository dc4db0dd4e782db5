// SPDX-License-Identifier: MIT
#include "api/layer_options.h"

#include <stdio.h>
#include <string.h>

#include "engine/layer_context.h"

// The index of `text` among the names, or 0 without a text.
static enum conv_status parse_name(int *index, const char *text, const char *const *names,
                                   const char *what, struct conv_err *err)
{
    char all[64] = "";
    *index = 0;
    for (int i = 0; text && names[i]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *index = i;
            return CONV_OK;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    }
    return text ? conv_err_set(err, CONV_ERR_USAGE, "unknown %s '%.32s' (there are %s)", what, text,
                               all)
                : CONV_OK;
}

static enum conv_status parse_elements(struct conv_layer *layer, const conv_layer_options *options,
                                       struct conv_err *err)
{
    conv_sample input = options->input ? options->input : CONV_SAMPLE_F32;
    conv_sample output = options->output ? options->output : CONV_SAMPLE_F32;
    if (input != CONV_SAMPLE_F32 && input != CONV_SAMPLE_U8)
        return conv_err_set(err, CONV_ERR_USAGE, "input samples must be float32 or uint8");
    if (output != CONV_SAMPLE_F32 && output != CONV_SAMPLE_F16)
        return conv_err_set(err, CONV_ERR_USAGE, "results must be float32 or float16");
    layer->input = input == CONV_SAMPLE_U8 ? CONV_ELEMENT_U8 : CONV_ELEMENT_F32;
    layer->output = output == CONV_SAMPLE_F16 ? CONV_ELEMENT_F16 : CONV_ELEMENT_F32;
    layer->input_divisor = options->input_divisor != 0 ? options->input_divisor : 1;
    bool by_255 = input == CONV_SAMPLE_U8 && layer->input_divisor == 255;
    return layer->input_divisor == 1 || by_255
               ? CONV_OK
               : conv_err_set(err, CONV_ERR_USAGE,
                              "input_divisor must be 1, or 255 with uint8 samples");
}

enum conv_status conv_api_layer_read(struct conv_layer *layer, const conv_layer_options *options,
                                     struct conv_err *err)
{
    static const char *const activations[] = {"none", "relu", "tanh", "abs", NULL};
    static const char *const precisions[] = {"exact", "fast", "tf32", "fp16", NULL};
    int activation, precision;
    if (options->maps < 1 || options->channels < 1)
        return conv_err_set(err, CONV_ERR_USAGE, "%d maps and %d channels; both must be at least 1",
                            options->maps, options->channels);
    if (options->kernel_height < 1 || options->kernel_width < 1 ||
        options->kernel_height > CONV_LAYER_MAX_SIDE || options->kernel_width > CONV_LAYER_MAX_SIDE)
        return conv_err_set(err, CONV_ERR_USAGE, "a kernel of %d x %d; sides must be 1 to %d",
                            options->kernel_height, options->kernel_width, CONV_LAYER_MAX_SIDE);
    if (options->stride < 0 || options->stride > CONV_LAYER_MAX_STRIDE)
        return conv_err_set(err, CONV_ERR_USAGE, "a stride of %d; it must be 1 to %d, or 0 for 1",
                            options->stride, CONV_LAYER_MAX_STRIDE);
    *layer = (struct conv_layer){
        .maps = options->maps,
        .channels = options->channels,
        .kernel_height = options->kernel_height,
        .kernel_width = options->kernel_width,
        .stride = options->stride ? options->stride : 1,
    };
    enum conv_status status = parse_elements(layer, options, err);
    if (!status)
        status = conv_layer_context_parse_padding(layer, options->padding, err);
    if (!status)
        status = conv_layer_context_parse_border(layer, options->border, err);
    if (!status)
        status = parse_name(&activation, options->activation, activations, "activation", err);
    if (!status)
        status = parse_name(&precision, options->precision, precisions, "precision", err);
    if (status)
        return status;
    layer->activation = (enum conv_activation)activation;
    layer->precision = (enum conv_precision)precision;
    return CONV_OK;
}
