// SPDX-License-Identifier: MIT
// --shard: from options to a plan of io/walk/shard.h, and to its records in reports.
#ifndef CONV_CLI_SHARDS_H
#define CONV_CLI_SHARDS_H

#include <stdatomic.h>

#include "cli/options.h"
#include "io/walk/walk.h"
#include "report/record.h"
#include "report/report.h"

// The plan of the run's shard; *plan is NULL without --shard. Lists all inputs of *config if shards
// are balanced by size; ends early once *stop, which may be NULL, is non-zero. CONV_ERR_USAGE if
// they can be listed only once. CONV_ERR_MEMORY.
enum conv_status conv_shards_plan(struct conv_shard_plan **plan,
                                  const struct conv_input_options *inputs,
                                  const struct conv_walk_config *config, const atomic_int *stop,
                                  struct conv_err *err);

// Decides for --shard whether archives are divided as a whole: *whole, for conv_walk_config.
// CONV_ERR_USAGE if --shard-of makes no sense, or an archive would have to be read twice and
// cannot. CONV_ERR_MEMORY, CONV_ERR_IO.
enum conv_status conv_shards_divide(bool *whole, const struct conv_options *options,
                                    const struct conv_walk_config *config, atomic_int *stop,
                                    struct conv_err *err);

// For an archive that can be read only once: CONV_ERR_USAGE if the plan has to list its members.
enum conv_status conv_shards_check(const struct conv_input_options *inputs, bool whole,
                                   struct conv_err *err);

// CONV_ERR_USAGE if all tasks of --shard auto would write the same archive.
enum conv_status conv_shards_check_targets(const struct conv_input_options *inputs, bool whole,
                                           const char *output,
                                           const struct conv_archive_target *targets, int count,
                                           struct conv_err *err);

// The shard, as reports state it.
struct conv_record_shard conv_shards_record(const struct conv_input_options *inputs);

// To be called before the report is closed: reports the images of all shards together, as this run
// has listed them. If shards are divided by name, they are known only after the walk has ended.
// `plan` may be NULL.
void conv_shards_report(const struct conv_input_options *inputs, const struct conv_shard_plan *plan,
                        const struct conv_walk *walk, struct conv_report *report);

// True if the run had nothing to do only because no image is in its shard, which is then printed.
bool conv_shards_is_empty(const struct conv_options *options, const struct conv_walk *walk);

#endif
