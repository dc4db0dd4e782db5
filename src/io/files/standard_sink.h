// SPDX-License-Identifier: MIT
// Standard output as a sink: of one image, or of several one after the other.
#ifndef CONV_FILES_STANDARD_SINK_H
#define CONV_FILES_STANDARD_SINK_H

#include "io/sink.h"

// As conv_sink_open, which calls it for CONV_SINK_STANDARD.
enum conv_status conv_standard_sink_open(struct conv_sink **sink,
                                         const struct conv_sink_config *config,
                                         struct conv_err *err);

#endif
