// SPDX-License-Identifier: MIT
// Moves images from the shards that their names determine, so that all shards get the same number
// of bytes.
//
// Hashing balances the number of images, and bytes only where there are many images: with sizes of
// standard deviation c (relative to their mean) and m images per shard, a shard deviates from the
// mean by sqrt((1 + c * c) / m), one standard deviation: 11 % at m = 200 and c = 1.2. Distributing
// all images by size, the largest first, balances well, but then one image more or less changes the
// shard of most others. So an image stays in the shard of its name unless that shard is too large.
#ifndef CONV_WALK_SHARD_BALANCE_H
#define CONV_WALK_SHARD_BALANCE_H

#include "io/walk/shard.h"

struct conv_shard_image {
    struct conv_digest digest; // of its name
    uint64_t bytes;
};

// shards[i] is the shard of images[i] by its name, of `count` shards, and becomes the balanced one.
// The images are sorted by digest, and no two have the same. All shards are then within 5 % of the
// mean if moving images out of the largest shards can achieve that, or else distributing all by
// size; if neither can, as with one image larger than the mean, the largest is as small as either
// makes it. CONV_ERR_MEMORY.
enum conv_status conv_shard_balance(const struct conv_shard_image *images, size_t image_count,
                                    int *shards, int count, struct conv_err *err);

#endif
