// SPDX-License-Identifier: MIT
// Converts conv_layer_options to a layer.
#ifndef CONV_API_LAYER_OPTIONS_H
#define CONV_API_LAYER_OPTIONS_H

#include "base/err.h"
#include "conv.h"
#include "kernels/layer/layer.h"

// Checks the options and sets *layer, except its weights and bias. The texts of the options are not
// kept. CONV_ERR_USAGE: an option is unknown or out of range; CONV_ERR_UNSUPPORTED.
enum conv_status conv_api_layer_read(struct conv_layer *layer, const conv_layer_options *options,
                                     struct conv_err *err);

#endif
