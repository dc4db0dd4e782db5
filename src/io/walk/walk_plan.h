// SPDX-License-Identifier: MIT
// Lists what a walk would find, for a plan that divides it into shards.
#ifndef CONV_WALK_WALK_PLAN_H
#define CONV_WALK_WALK_PLAN_H

#include "io/walk/walk.h"

// True if an input is a pipe on standard input, which cannot be listed before it is read.
bool conv_walk_plan_has_pipe(const struct conv_walk_config *config);

// Adds all images of *config to the plan and balances it. With config->whole archives are listed as
// files; without it their members are. Ends early once *stop, which may be NULL, is non-zero.
// CONV_ERR_USAGE, CONV_ERR_MEMORY.
enum conv_status conv_walk_plan_fill(struct conv_shard_plan *plan,
                                     const struct conv_walk_config *config, const atomic_int *stop,
                                     struct conv_err *err);

#endif
