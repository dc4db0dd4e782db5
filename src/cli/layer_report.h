// SPDX-License-Identifier: MIT
// The reports of a run of conv layer: messages and JSON, --trace, --html.
#ifndef CONV_CLI_LAYER_REPORT_H
#define CONV_CLI_LAYER_REPORT_H

#include "cli/layer_setup.h"
#include "page/page.h"
#include "report/report.h"

struct conv_layer_report { // {0} is closed
    const struct conv_options *options;
    const struct conv_layer_setup *setup;
    bool draws_progress;                   // the caller does, so that the report does not
    const struct conv_report_total *total; // of images, or NULL; set by the caller
    char device[32];
    struct conv_report_config config;
    struct conv_report *report;
    struct conv_trace *trace; // NULL: none is kept
    struct conv_page page;
    struct conv_samples samples;
    struct conv_totals totals; // after conv_layer_report_finish
};

// Opens the files of --html and --trace, before any work is done. To be closed also after a
// failure. CONV_ERR_USAGE, CONV_ERR_IO.
enum conv_status conv_layer_report_prepare(struct conv_layer_report *report,
                                           const struct conv_options *options,
                                           const struct conv_layer_setup *setup,
                                           struct conv_err *err);

// Opens report->report, which prints the begin record. `operation` NULL or not open: none was
// needed. `single`: as in struct conv_report_config. `start_ns`: when the run began.
enum conv_status conv_layer_report_open(struct conv_layer_report *report,
                                        const struct conv_operation *operation, bool single,
                                        uint64_t start_ns, struct conv_err *err);

// Closes report, trace and page, each even if another fails; returns the first failure. `stop`: a
// signal that ended the run, or 0. `kernel` is a line of the page, or NULL.
enum conv_status conv_layer_report_finish(struct conv_layer_report *report,
                                          const struct conv_layer_target *target,
                                          const char *kernel, int stop, int code,
                                          struct conv_err *err);

// Closes the files and frees everything, also if no run took place. {0} is fine.
void conv_layer_report_close(struct conv_layer_report *report);

#endif
