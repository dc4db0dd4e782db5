// SPDX-License-Identifier: MIT
// From the options of the main job to a run of the pipeline.
#ifndef CONV_CLI_RUN_H
#define CONV_CLI_RUN_H

#include "cli/device.h"
#include "cli/options.h"

// Runs the pipeline over the source with the options' settings. `sink` may be NULL if nothing is
// saved; `trace` may be NULL. `expected`: lower bound on the images, 0 if unknown. *stop is the
// flag of cli/signals.h.
enum conv_status conv_run_images(const struct conv_options *options, struct conv_device *device,
                                 const struct conv_filter *filters, struct conv_source *source,
                                 struct conv_sink *sink, uint64_t expected,
                                 struct conv_report *report, struct conv_trace *trace,
                                 atomic_int *stop, struct conv_err *err);

#endif
