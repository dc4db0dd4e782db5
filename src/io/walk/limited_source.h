// SPDX-License-Identifier: MIT
// A source that ends after a given number of images.
#ifndef CONV_WALK_LIMITED_SOURCE_H
#define CONV_WALK_LIMITED_SOURCE_H

#include "io/source.h"

struct conv_limited_source {
    struct conv_source source;
    struct conv_source *inner;
    uint64_t left; // images; other steps do not count
};

// `inner` must outlive the source; it is not read further than needed. There is nothing to close.
void conv_limited_source_init(struct conv_limited_source *limited, struct conv_source *inner,
                              uint64_t images);

#endif
