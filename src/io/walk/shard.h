// SPDX-License-Identifier: MIT
// Which images of a job with several processes belong to this process. By default a shard is a
// function of the image's name alone. A plan also considers all names and sizes, and moves as few
// images as possible from shards that are too large to shards that are too small.
//
// The name is the path below the input ("sub/a.png"), so that hosts may reach the folder by
// different paths. Members of archives are divided by the sample that they belong to.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

#define CONV_SHARD_MOST 1000000 // shards of one job

enum conv_shard_by {
    CONV_SHARD_BY_BYTES, // balanced: a plan with the names and sizes of all images
    CONV_SHARD_BY_NAME,  // an image's shard does not depend on other images
};

struct conv_shard {
    int index, count; // 0 <= index < count <= CONV_SHARD_MOST; count 0: there is one shard
    enum conv_shard_by by;
};

// A digest of the name: the same for all spellings ("a//b", "./a/b"), versions and machines.
struct conv_digest conv_shard_digest(const char *name);

// The length of the part of a member's name that all members of its sample share, as WebDataset has
// it: up to the first dot after the last slash. "train/0001.seg.png" belongs to "train/0001".
size_t conv_shard_sample(const char *member);

// The shard of a name, of `count`, when sizes are not considered.
int conv_shard_home(const struct conv_digest *digest, int count);

struct conv_shard_plan;

// A plan for *shard without images. CONV_ERR_MEMORY.
enum conv_status conv_shard_plan_open(struct conv_shard_plan **plan, const struct conv_shard *shard,
                                      struct conv_err *err);
void conv_shard_plan_close(struct conv_shard_plan *plan); // NULL is fine

// An image of `bytes`. Images with one name are one image. The order of calls makes no difference.
// Takes 24 bytes of memory until the plan is balanced. CONV_ERR_MEMORY.
enum conv_status conv_shard_plan_add(struct conv_shard_plan *plan, const char *name, uint64_t bytes,
                                     struct conv_err *err);

// To be called once, after the last image, by CONV_SHARD_BY_BYTES. All shards are then within 5 %
// of the mean if moving images out of the largest shards can achieve that, or else distributing all
// by size; if neither can, as with one image larger than the mean, the largest is as small as
// either makes it. CONV_ERR_MEMORY.
enum conv_status conv_shard_plan_balance(struct conv_shard_plan *plan, struct conv_err *err);

// True if the image is in the plan's shard. An image that was not added to the plan is in the shard
// of its name. Any thread, once the plan is complete.
bool conv_shard_plan_has(const struct conv_shard_plan *plan, const char *name);

// The number of images that were added, before those of one name were joined, and a digest of their
// names and sizes, which does not depend on their order.
void conv_shard_plan_list(const struct conv_shard_plan *plan, uint64_t *images,
                          struct conv_digest *digest);
