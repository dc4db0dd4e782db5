// SPDX-License-Identifier: MIT
// --html: from options and device to page/page_job.h.
#ifndef CONV_CLI_RUN_PAGE_H
#define CONV_CLI_RUN_PAGE_H

#include "cli/device.h"
#include "cli/options.h"
#include "page/page_job.h"

// Opens the file of --html, if that is given. CONV_ERR_USAGE if it cannot be opened.
enum conv_status conv_run_page_open(struct conv_page_job *job, const struct conv_options *options,
                                    struct conv_err *err);

// conv_page_job_describe for the options and an open device.
void conv_run_page_describe(struct conv_page_job *job, const struct conv_options *options,
                            const struct conv_device *device, const struct conv_filter *filters,
                            int filter_count);

#endif
