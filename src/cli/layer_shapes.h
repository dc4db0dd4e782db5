// SPDX-License-Identifier: MIT
// How conv layer interprets the shape of a tensor.
#ifndef CONV_CLI_LAYER_SHAPES_H
#define CONV_CLI_LAYER_SHAPES_H

#include "cli/layer_setup.h"

struct conv_layer_shapes {
    int64_t images; // of a bank: planes
    int height, width;
    struct conv_tensor_shape out;
    double flops; // multiplications and additions
};

// For a layer (images, channels, height, width) or (channels, height, width); for a bank also
// (height, width): it filters every plane. CONV_ERR_USAGE with `name` and both shapes if they do
// not fit; CONV_ERR_LIMIT if the result is beyond any memory.
enum conv_status conv_layer_shapes_fit(struct conv_layer_shapes *shapes,
                                       const struct conv_layer_setup *setup, const char *name,
                                       const struct conv_tensor_shape *in, struct conv_err *err);

#endif
