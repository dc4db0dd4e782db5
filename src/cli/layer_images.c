// SPDX-License-Identifier: MIT
#include "cli/layer_command.h"

enum conv_status conv_layer_run_images(const struct conv_options *options,
                                       struct conv_layer_setup *setup, atomic_int *stop, int *code,
                                       struct conv_err *err)
{
    (void)setup;
    (void)stop;
    (void)code;
    return conv_err_set(err, CONV_ERR_USAGE, "%s is no .npy file", options->operands[1]);
}
