// SPDX-License-Identifier: MIT
#include "cli/run_shard.h"

#include <inttypes.h>
#include <string.h>

#include "report/report.h"

// --- the plan ------------------------------------------------------------------------------------

static uint64_t size_of(const struct conv_item *item)
{
    struct stat info;
    bool known = item->ops->identify && item->ops->identify(item, &info);
    return known && info.st_size > 0 ? (uint64_t)info.st_size : 0;
}

static enum conv_status add_images(struct conv_shard_plan *plan,
                                   const struct conv_walk_config *config, const atomic_int *stop,
                                   struct conv_err *err)
{
    struct conv_walk *walk;
    struct conv_err ignored;
    struct conv_item item;
    enum conv_source_step step = CONV_SOURCE_ITEM;
    struct conv_walk_config naming = *config;
    naming.operands.suffix = NULL; // shards go by the names of the images
    enum conv_status status = conv_walk_open(&walk, &naming, err);
    if (status)
        return status;
    while (!status && step != CONV_SOURCE_END && !(stop && atomic_load(stop))) {
        step = conv_source_next(conv_walk_source(walk), &item, &ignored);
        if (step == CONV_SOURCE_ITEM)
            status = conv_shard_plan_add(plan, conv_item_target(&item), size_of(&item), err);
    }
    conv_walk_close(walk);
    return status ? status : conv_shard_plan_balance(plan, err);
}

enum conv_status conv_run_shard_plan(struct conv_shard_plan **plan,
                                     const struct conv_options *options,
                                     const struct conv_walk_config *config, const atomic_int *stop,
                                     struct conv_err *err)
{
    bool balanced = options->shard.by == CONV_SHARD_BY_BYTES;
    *plan = NULL;
    if (!options->shard_text)
        return CONV_OK;
    if (balanced && !conv_walk_is_repeatable(config))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--shard balances the sizes of all images first, but --files-from %s "
                            "can be read only once; use a file, or --shard-by name",
                            options->files_from);
    enum conv_status status = conv_shard_plan_open(plan, &options->shard, err);
    return status || !balanced ? status : add_images(*plan, config, stop, err);
}

// --- the report ----------------------------------------------------------------------------------

struct conv_record_shard conv_run_shard_record(const struct conv_options *options)
{
    return (struct conv_record_shard){
        .index = options->shard.index,
        .count = options->shard.count,
        .by = options->shard.by == CONV_SHARD_BY_NAME ? "name" : "bytes",
    };
}

void conv_run_shard_report(const struct conv_options *options, const struct conv_shard_plan *plan,
                           const struct conv_walk *walk, struct conv_report *report)
{
    struct conv_walk_count count = conv_walk_count(walk);
    struct conv_record_listing listing = {.images = count.listed};
    struct conv_digest digest = count.names;
    if (plan && options->shard.by == CONV_SHARD_BY_BYTES)
        conv_shard_plan_list(plan, &listing.images, &digest); // by which images were distributed
    else if (!plan || !count.is_complete)
        return;
    snprintf(listing.digest, sizeof listing.digest, "%016" PRIx64 "%016" PRIx64, digest.word[0],
             digest.word[1]);
    conv_report_listing(report, &listing);
}

bool conv_run_shard_is_empty(const struct conv_options *options, const struct conv_walk *walk)
{
    struct conv_walk_count count = conv_walk_count(walk);
    if (!options->shard_text || count.listed == 0)
        return false;
    if (!options->quiet)
        fprintf(stderr, "conv: shard %d/%d has none of the %" PRIu64 " image%s\n",
                options->shard.index, options->shard.count, count.listed,
                count.listed == 1 ? "" : "s");
    return true;
}
