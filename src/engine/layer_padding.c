// SPDX-License-Identifier: MIT
#include "engine/layer_padding.h"

#include <stdlib.h>
#include <string.h>

#include "filter/filter.h"

#define MOST_PADDING 65536

enum conv_status conv_layer_padding_parse(struct conv_layer *layer, const char *text,
                                          struct conv_err *err)
{
    char *end;
    if (!text || strcmp(text, "valid") == 0)
        return CONV_OK;
    if (strcmp(text, "same") == 0) {
        // As PyTorch: the extra sample of an even kernel is at the bottom and right.
        layer->pad_top = (layer->kernel_height - 1) / 2;
        layer->pad_bottom = layer->kernel_height / 2;
        layer->pad_left = (layer->kernel_width - 1) / 2;
        layer->pad_right = layer->kernel_width / 2;
        return CONV_OK;
    }
    long number = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
    if (number < 0 || *end || number > MOST_PADDING)
        return conv_err_hint(err, CONV_HINT_PADDING, 0,
                             conv_err_set(err, CONV_ERR_USAGE,
                                          "takes valid, same or a number from 0 to %d, not '%.32s'",
                                          MOST_PADDING, text));
    layer->pad_top = layer->pad_bottom = layer->pad_left = layer->pad_right = (int)number;
    return CONV_OK;
}

enum conv_status conv_layer_padding_parse_border(struct conv_layer *layer, const char *text,
                                                 struct conv_err *err)
{
    return conv_filter_parse_border(&layer->border, &layer->border_value,
                                    text ? text : "constant:0", err);
}
