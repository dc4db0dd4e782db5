// SPDX-License-Identifier: MIT
// PNG coders of a fake device, for device.c.
#pragma once

#include "engine/engine.h"

// As conv_device_ops's.
bool faulty_takes_stream(enum conv_device_coder coder, const struct conv_image_header *header,
                         size_t most_bytes);
size_t faulty_encoded_bytes(const struct conv_image *shape,
                            const struct conv_device_encoding *encoding);

// Filters the group's planes, which nothing codes.
typedef enum conv_status (*faulty_filter_fn)(void *context, struct conv_group *planes,
                                             struct conv_err *err);

// Runs a group that is decoded, encoded or both: h_in stays as it was until the group's memory is
// released.
enum conv_status faulty_run_coded(faulty_filter_fn filter, void *context, struct conv_group *group,
                                  struct conv_err *err);
