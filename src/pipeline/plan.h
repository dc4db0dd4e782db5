// SPDX-License-Identifier: MIT
// Asks the sink, before a byte is read, whether an image has to be filtered at all.
#ifndef CONV_PIPELINE_PLAN_H
#define CONV_PIPELINE_PLAN_H

#include "pipeline/config.h"
#include "pipeline/job.h"

#define CONV_PLAN_REPLACED "filtered in place already"

// Sets job->outcome: DONE if the image will be filtered, SKIPPED or, in a dry run, PLANNED;
// job->reason says why. Fails if a dry run sees that the image would fail.
enum conv_status conv_plan_job(const struct conv_pipeline_config *config, struct conv_job *job);

// Fails if the sink would refuse the output of the input whose identity job->input has. An input
// whose identity is not known yet, or that reading would refuse, passes.
enum conv_status conv_plan_check_output(const struct conv_pipeline_config *config,
                                        struct conv_job *job);

#endif
