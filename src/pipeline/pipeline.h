// SPDX-License-Identifier: MIT
// The way of all images through the program:
//   walk -> read -> decode -> [stage -> filter -> fetch] -> encode -> write -> rename
// Workers (threads) do everything but the middle; lanes do that. On a backend that is not async a
// worker runs the middle itself, so that an image stays in one core's cache from file to file.
#ifndef CONV_PIPELINE_PIPELINE_H
#define CONV_PIPELINE_PIPELINE_H

#include "io/source.h"
#include "pipeline/config.h"
#include "report/report.h"

// What a buffer may keep from image to image where the memory of the whole run is limited to
// `memory` bytes; for codec.keep, too.
size_t conv_pipeline_keep(size_t memory, int jobs);

// Runs every image of the source and hands a record of each to the report. Images that fail are
// reported and do not end the run; the return value speaks of the run itself (no memory, no thread,
// no device).
enum conv_status conv_pipeline_run(const struct conv_pipeline_config *config,
                                   struct conv_source *source, struct conv_report *report,
                                   struct conv_err *err);

#endif
