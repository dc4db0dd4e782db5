// SPDX-License-Identifier: MIT
#include "pipeline/layer_output.h"

#include "io/paths.h"

// The reason why an existing output makes the image superfluous; NULL if there is none.
static const char *find_reason(const struct conv_layer_images *config, const struct conv_item *item,
                               const struct conv_output *output,
                               const struct conv_existing *existing)
{
    struct stat in;
    if (!existing->exists || !S_ISREG(existing->info.st_mode))
        return NULL;
    if (config->skip_existing)
        return "the output exists";
    if ((!config->update && !config->resume) || !item->ops->identify ||
        !item->ops->identify(item, &in))
        return NULL;
    if (config->update && !conv_paths_is_older(&existing->info, &in))
        return "the output is up to date";
    if (config->resume && conv_sink_is_noted(config->sink, item, &in, output, existing))
        return "the journal lists it as done";
    return NULL;
}

static void plan(const struct conv_layer_images *config, const struct conv_item *item,
                 const struct conv_output *output, struct conv_record *record)
{
    struct conv_existing existing = {0};
    if (config->sink)
        conv_sink_look(config->sink, output, &existing);
    record->reason = find_reason(config, item, output, &existing);
    if (record->reason) {
        record->outcome = CONV_OUTCOME_SKIPPED;
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
        status = config->sink->ops->place(config->sink, item, output, err);
        record->output = output->path;
    }
    if (!status && (config->dry_run || config->skip_existing || config->update || config->resume))
        plan(config, item, output, record);
    return status;
}
