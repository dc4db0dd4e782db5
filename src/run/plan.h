// SPDX-License-Identifier: MIT
// Asks the sink, before an image is read, whether it has to be filtered at all.
#ifndef CONV_RUN_PLAN_H
#define CONV_RUN_PLAN_H

#include "run/config.h"
#include "run/job.h"

#define CONV_PLAN_REPLACED "filtered in place already"

// Why an existing output makes the image superfluous; NULL: it does not. `in`: the identity of the
// input; NULL: it has none.
struct conv_plan_rules {
    bool skip_existing, update, resume;
};
const char *conv_plan_find_done(const struct conv_sink *sink, struct conv_plan_rules rules,
                                const struct conv_item *item, const struct stat *in,
                                const struct conv_output *output,
                                const struct conv_existing *existing);

// Sets job->outcome: DONE if the image will be filtered, SKIPPED or, in a dry run, PLANNED;
// job->reason says why. Fails if a dry run sees that the image would fail.
enum conv_status conv_plan_job(const struct conv_pipeline_config *config, struct conv_job *job);

// Fails if the sink would refuse the output of the input whose identity job->input has. An input
// whose identity is not known yet, or that reading would refuse, passes.
enum conv_status conv_plan_check_output(const struct conv_pipeline_config *config,
                                        struct conv_job *job);

#endif
