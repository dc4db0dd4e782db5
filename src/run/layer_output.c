// SPDX-License-Identifier: MIT
#include "run/layer_output.h"

#include "run/stages.h"

static void plan(const struct conv_layer_images *config, const struct conv_item *item,
                 const struct conv_output *output, struct conv_record *record)
{
    struct conv_existing existing = {0};
    struct stat in;
    if (config->sink)
        conv_sink_look(config->sink, output, &existing);
    const struct conv_plan_rules rules = {config->skip_existing, config->update, config->resume};
    bool found = item->ops->identify && item->ops->identify(item, &in);
    record->reason =
        conv_plan_find_done(config->sink, rules, item, found ? &in : NULL, output, &existing);
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
