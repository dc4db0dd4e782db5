// SPDX-License-Identifier: MIT
// --html: from options and device to page/page.h.
#ifndef CONV_CLI_RUN_PAGE_H
#define CONV_CLI_RUN_PAGE_H

#include "cli/device.h"
#include "cli/options.h"
#include "page/page.h"

// Opens the file of --html, if that is given. CONV_ERR_USAGE if it cannot be opened.
enum conv_status conv_run_page_open(struct conv_page *page,
                                    const struct conv_report_options *report, struct conv_err *err);

// conv_page_describe for the options and an open device.
void conv_run_page_describe(struct conv_page *page, const struct conv_options *options,
                            const struct conv_device *device, const struct conv_filter *filters,
                            int filter_count);

// Adds the lines about the start, and about pixels and bytes.
void conv_run_page_describe_images(struct conv_page *page,
                                   const struct conv_output_options *outputs,
                                   const struct conv_totals *totals);

// Writes the page, whose `kind` and lines are set, under a title with `verb` ("filtered with"),
// with the figures of a finished run and its summary in JSON. `stop`: a signal that ended the run.
// CONV_ERR_MEMORY, CONV_ERR_IO.
enum conv_status conv_run_page_write(struct conv_page *page, const char *verb,
                                     const struct conv_report_config *config,
                                     const struct conv_totals *totals, int stop, int code,
                                     struct conv_err *err);

#endif
