// SPDX-License-Identifier: MIT
#include "pipeline/layer_output.h"

#include "pipeline/output.h"

static bool is_newer_or_same(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec >= b->tv_nsec;
}

static void plan(const struct conv_layer_images *config, const struct conv_item *item,
                 const struct conv_output *output, struct conv_record *record)
{
    struct conv_existing existing = {0};
    struct stat in;
    if (config->sink)
        conv_sink_look(config->sink, output, &existing);
    bool is_file = existing.exists && S_ISREG(existing.info.st_mode);
    const char *reason = NULL;
    if (is_file && config->skip_existing)
        reason = "the output exists";
    else if (is_file && config->update && item->ops->identify && item->ops->identify(item, &in) &&
             is_newer_or_same(&existing.info.st_mtim, &in.st_mtim))
        reason = "the output is up to date";
    if (reason) {
        record->outcome = CONV_OUTCOME_SKIPPED;
        record->reason = reason;
    } else if (config->dry_run) {
        record->outcome = CONV_OUTCOME_PLANNED;
        record->reason = existing.exists ? "replaces the output" : "new";
    }
}

enum conv_status conv_layer_output_plan(const struct conv_layer_images *config,
                                        struct conv_item *item, struct conv_output *output,
                                        struct conv_record *record, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    record->output = config->collect;
    if (config->sink) {
        status = conv_output_retarget(item, err);
        if (!status)
            status = config->sink->ops->place(config->sink, item, output, err);
        record->output = output->path;
    }
    if (!status && (config->dry_run || config->skip_existing || config->update))
        plan(config, item, output, record);
    return status;
}
