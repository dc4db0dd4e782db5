// SPDX-License-Identifier: MIT
#include "io/walk/walk_plan.h"

#include <unistd.h>

static uint64_t size_of(const struct conv_item *item)
{
    struct stat info;
    bool known = item->ops->identify && item->ops->identify(item, &info);
    return known && info.st_size > 0 ? (uint64_t)info.st_size : 0;
}

bool conv_walk_plan_has_pipe(const struct conv_walk_config *config)
{
    struct stat info;
    for (int i = 0; i < config->operands.input_count; i++)
        if (conv_operands_is_standard(config->operands.inputs[i]))
            return fstat(STDIN_FILENO, &info) != 0 || !S_ISREG(info.st_mode);
    return false;
}

enum conv_status conv_walk_plan_fill(struct conv_shard_plan *plan,
                                     const struct conv_walk_config *config, const atomic_int *stop,
                                     struct conv_err *err)
{
    struct conv_walk *walk;
    struct conv_err ignored;
    struct conv_item item;
    char name[PATH_MAX];
    enum conv_source_step step = CONV_SOURCE_ITEM;
    struct conv_walk_config naming = *config;
    naming.operands.suffix = NULL; // shards go by the names of the images
    // An archive that is divided as a whole is listed as a file, and an input that can be read only
    // once is left for the run.
    naming.archives.enabled &= !config->whole && !conv_walk_plan_has_pipe(config);
    if (config->archives.enabled && !naming.archives.enabled)
        naming.operands.output = NULL; // an archive is not an output of a file
    enum conv_status status = conv_walk_open(&walk, &naming, err);
    if (status)
        return status;
    while (!status && step != CONV_SOURCE_END && !(stop && atomic_load(stop))) {
        step = conv_source_next(conv_walk_source(walk), &item, &ignored);
        if (step != CONV_SOURCE_ITEM)
            continue;
        conv_walk_name(name, &config->operands, &item);
        status = conv_shard_plan_add(plan, name, size_of(&item), err);
        conv_item_release(&item);
    }
    conv_walk_close(walk);
    return status ? status : conv_shard_plan_balance(plan, err);
}
