// SPDX-License-Identifier: MIT
// Archives as a sink: members come from several threads and are written in order.
#ifndef CONV_ARCHIVE_ARCHIVE_SINK_H
#define CONV_ARCHIVE_ARCHIVE_SINK_H

#include "io/archive/archive_order.h"
#include "io/sink.h"

// As conv_sink_open, which calls it for CONV_SINK_ARCHIVE.
enum conv_status conv_archive_sink_open(struct conv_sink **sink,
                                        const struct conv_sink_config *config,
                                        struct conv_err *err);

#endif
