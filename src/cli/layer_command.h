// SPDX-License-Identifier: MIT
// What the files of `conv layer` share: layer.c (the command), layer_tensor.c (one tensor to
// another), layer_files.c (which files that may read and write), layer_images.c (images as input).
#ifndef CONV_CLI_LAYER_COMMAND_H
#define CONV_CLI_LAYER_COMMAND_H

#include <stdatomic.h>

#include "cli/layer_setup.h"
#include "cli/places.h"

// Each prints its messages except that of the returned error, and sets *code, the exit code without
// an error.
enum conv_status conv_layer_run_tensor(const struct conv_options *options,
                                       const struct conv_places *places,
                                       struct conv_layer_setup *setup, atomic_int *stop, int *code,
                                       struct conv_err *err);
enum conv_status conv_layer_run_images(const struct conv_options *options,
                                       const struct conv_places *places,
                                       struct conv_layer_setup *setup, atomic_int *stop, int *code,
                                       struct conv_err *err);

// Checks whether `output` may be written: CONV_ERR_USAGE if that would overwrite a file that is
// read, or the options do not allow it.
enum conv_status conv_layer_check_files(const struct conv_options *options, const char *input,
                                        const char *output, struct conv_err *err);
// Why --skip-existing or --update skips the output; NULL if it is to be written.
const char *conv_layer_skip_reason(const struct conv_output_options *outputs, const char *input,
                                   const char *output);

#endif
