// SPDX-License-Identifier: MIT
#ifndef CONV_CLI_RUN_H
#define CONV_CLI_RUN_H

#include "cli/device.h"
#include "cli/options.h"

// Runs the pipeline over the walk with the options' settings; `trace` and `journal` may be NULL.
// *stop is the flag of cli/signals.h.
enum conv_status conv_run_images(const struct conv_options *options,
                                 const struct conv_device *device, struct conv_walk *walk,
                                 struct conv_report *report, struct conv_trace *trace,
                                 struct conv_journal *journal, atomic_int *stop,
                                 struct conv_err *err);

#endif
