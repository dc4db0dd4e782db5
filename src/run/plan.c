// SPDX-License-Identifier: MIT
// Skips images whose output exists, is newer or is noted as done; plans the rest of a dry run.
#include "run/stages.h"

#include <errno.h>
#include <stdio.h>

#include "io/files/paths.h"
#include "run/layer_stage.h"

static enum conv_status skip(struct conv_job *job, const char *reason)
{
    job->outcome = CONV_OUTCOME_SKIPPED;
    job->reason = reason;
    return CONV_OK;
}

// Why an existing output makes the image superfluous; NULL: it does not. `in`: the identity of the
// input; NULL: it has none.
static const char *find_done(const struct conv_pipeline_config *config, const struct conv_job *job,
                             const struct stat *in, const struct conv_existing *existing)
{
    const struct stat *archive = conv_item_archive(&job->item), *out = &existing->info;
    // Only a regular file can be an output of an earlier run.
    if (!existing->exists || existing->is_special || !S_ISREG(out->st_mode))
        return NULL;
    if (config->skip_existing)
        return CONV_SINK_EXISTS;
    if (in && config->update && !conv_paths_is_older(out, in) &&
        !(archive && conv_paths_is_older(out, archive)))
        return CONV_SINK_UP_TO_DATE;
    if (in && config->resume &&
        conv_sink_is_noted(config->sink, &job->item, in, &job->output, existing))
        return CONV_SINK_NOTED;
    return NULL;
}

static const char *plan_reason(const struct conv_pipeline_config *config,
                               const struct conv_existing *existing)
{
    if (existing->is_special)
        return "writes to a pipe, a device or a descriptor";
    if (!existing->exists)
        return "new";
    return config->update   ? "the input is newer"
           : config->resume ? "not listed in the journal"
                            : "replaces the output";
}

static enum conv_status plan_in_place(const struct conv_pipeline_config *config,
                                      struct conv_job *job)
{
    struct conv_existing input = {.exists = true};
    if (!job->item.ops->identify(&job->item, &input.info))
        return conv_err_errno(&job->err, errno, "cannot open");
    if (S_ISLNK(input.info.st_mode)) {
        // Replacing the link would separate it from its file; replacing the file would reach out of
        // the folder.
        skip(job, "a symbolic link");
        return job->item.is_named ? conv_source_refuse_link(&job->err) : CONV_OK;
    }
    if (conv_sink_is_noted(config->sink, &job->item, &input.info, &job->output, &input)) {
        skip(job, CONV_PLAN_REPLACED);
    } else if (config->dry_run) {
        enum conv_status status =
            conv_sink_check(config->sink, &job->item, &input.info, &job->output, &input, &job->err);
        if (status)
            return status;
        job->outcome = CONV_OUTCOME_PLANNED;
        job->reason = "replaces the input";
    }
    return CONV_OK;
}

// All results go into one file.
static enum conv_status plan_collected(const struct conv_pipeline_config *config,
                                       struct conv_job *job)
{
    snprintf(job->output.path, sizeof job->output.path, "%s", config->layer->collect->path);
    if (config->dry_run) {
        job->outcome = CONV_OUTCOME_PLANNED;
        job->reason = "new";
    }
    return CONV_OK;
}

enum conv_status conv_plan_job(const struct conv_pipeline_config *config, struct conv_job *job)
{
    const struct conv_item *item = &job->item;
    struct conv_existing existing;
    struct stat in;
    if (config->layer && config->layer->collect)
        return plan_collected(config, job);
    if (!config->sink)
        return CONV_OK;
    if (item->in_place)
        return plan_in_place(config, job);
    if (!config->dry_run && !config->skip_existing && !config->update && !config->resume)
        return CONV_OK;
    conv_sink_look(config->sink, &job->output, &existing);
    bool has_identity = item->ops->identify != NULL;
    bool found = has_identity && item->ops->identify(item, &in);
    const char *done = find_done(config, job, found ? &in : NULL, &existing);
    if (done)
        return skip(job, done);
    if (has_identity && !found)
        return conv_err_errno(&job->err, errno, "cannot open");
    if (!config->dry_run)
        return CONV_OK;
    enum conv_status status =
        found ? conv_sink_check(config->sink, item, &in, &job->output, &existing, &job->err)
              : CONV_OK;
    if (status)
        return status;
    job->outcome = CONV_OUTCOME_PLANNED;
    job->reason = plan_reason(config, &existing);
    return CONV_OK;
}

enum conv_status conv_plan_check_output(const struct conv_pipeline_config *config,
                                        struct conv_job *job)
{
    const struct conv_item *item = &job->item;
    const struct stat *in = &job->input.info;
    struct conv_existing existing;
    bool may_be_read = S_ISREG(in->st_mode) || (item->is_named && !item->in_place);
    bool is_known = in->st_mode != 0 || !item->ops->identify;
    if (config->no_save || !config->sink || !is_known || !may_be_read || S_ISDIR(in->st_mode) ||
        !conv_sink_should_look(config->sink))
        return CONV_OK;
    conv_sink_look(config->sink, &job->output, &existing);
    enum conv_status status =
        conv_sink_check(config->sink, item, in, &job->output, &existing, &job->err);
    if (status && S_ISREG(in->st_mode))
        job->bytes_in = (size_t)in->st_size;
    return status;
}
