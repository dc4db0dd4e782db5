// SPDX-License-Identifier: MIT
#include "backend/layer_padding.h"

#include <stdlib.h>
#include <string.h>

#include "filter/filter.h"
#include "filter/number.h"

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
    static const char prefix[] = "constant:";
    double number = 0;
    int value;
    layer->border = CONV_BORDER_CONSTANT;
    layer->border_value = 0;
    if (!text)
        return CONV_OK;
    if (strncmp(text, prefix, sizeof prefix - 1) != 0)
        return conv_filter_parse_border(&layer->border, &value, text, err);
    const char *digits = text + sizeof prefix - 1;
    if (conv_number_parse(&number, 1e30, digits, strlen(digits), NULL))
        return conv_err_hint(
            err, CONV_HINT_BORDER_CONSTANT, 0,
            conv_err_set(err, CONV_ERR_USAGE, "takes a number, not '%.32s'", digits));
    layer->border_value = (float)number;
    return CONV_OK;
}
