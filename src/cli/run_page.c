// SPDX-License-Identifier: MIT
#include "cli/run_page.h"

#include <errno.h>

#include "cli/signals.h"

enum conv_status conv_run_page_open(struct conv_page_job *job, const struct conv_options *options,
                                    struct conv_err *err)
{
    *job = (struct conv_page_job){
        .path = options->html_path,
        .command = options->command_line,
        .page.stall = conv_signals_stall(),
    };
    if (!options->html_path)
        return CONV_OK;
    job->file = fopen(options->html_path, "we");
    if (job->file)
        return CONV_OK;
    conv_err_errno(err, errno, "--html %s", options->html_path);
    return err->status = CONV_ERR_USAGE;
}

void conv_run_page_describe(struct conv_page_job *job, const struct conv_options *options,
                            const struct conv_device *device, const struct conv_filter *filters,
                            int filter_count)
{
    conv_page_job_describe(job, &(struct conv_page_setting){
                                    .filters = filters,
                                    .filter_count = filter_count,
                                    .border = options->border,
                                    .border_value = options->border_value,
                                    .names = device->names,
                                    .ordinals = device->ordinals,
                                    .backends = device->backends,
                                    .device_count = device->count,
                                    .ops = device->ops,
                                    .fallback_ops = device->fallback_ops,
                                    .fallback = device->fallback,
                                    .limits = options->limits,
                                });
}
