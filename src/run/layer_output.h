// SPDX-License-Identifier: MIT
// Determines where the result of an image goes, and whether it is needed at all.
#ifndef CONV_RUN_LAYER_OUTPUT_H
#define CONV_RUN_LAYER_OUTPUT_H

#include "run/layer_images.h"

// Sets record->output, and with a file per image *output. record->outcome and its reason say if the
// image is skipped or, in a dry run, only planned. CONV_ERR_LIMIT for a path that is too long. Any
// thread.
enum conv_status conv_layer_output_plan(const struct conv_layer_images *config,
                                        struct conv_item *item, struct conv_output *output,
                                        struct conv_record *record, struct conv_err *err);

#endif
