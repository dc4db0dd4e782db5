// SPDX-License-Identifier: MIT
// Parses a layer's padding and border from the texts that the command line and the library accept.
#ifndef CONV_ENGINE_LAYER_PADDING_H
#define CONV_ENGINE_LAYER_PADDING_H

#include "base/err.h"
#include "kernels/layer/layer.h"

// Sets the four pads of a layer, whose kernel sizes are set, from "valid", "same" or a number of
// samples on every side. NULL is "valid". CONV_ERR_USAGE with CONV_HINT_PADDING. Any thread.
enum conv_status conv_layer_padding_parse(struct conv_layer *layer, const char *text,
                                          struct conv_err *err);

// Sets the border that the pads are filled with: "replicate" and the other names of
// conv_filter_parse_border, or "constant:V" with any number V up to 1e30 in magnitude. NULL is
// "constant:0". CONV_ERR_USAGE, with CONV_HINT_BORDER_CONSTANT if V is not a number. Any thread.
enum conv_status conv_layer_padding_parse_border(struct conv_layer *layer, const char *text,
                                                 struct conv_err *err);

#endif
