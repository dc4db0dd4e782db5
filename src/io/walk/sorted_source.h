// SPDX-License-Identifier: MIT
// A source whose images come in an order that does not depend on the file system, or are a random
// sample that does not. Reads all names of another source first; takes some hundred bytes per
// image.
#ifndef CONV_WALK_SORTED_SOURCE_H
#define CONV_WALK_SORTED_SOURCE_H

#include <stdatomic.h>

#include "io/source.h"

struct conv_sorted_source;

struct conv_sorted_config {
    bool keeps_order;       // that of the inner source
    uint64_t sample;        // images to choose at random; 0: all of them
    uint64_t seed;          // of the sample
    const atomic_int *stop; // reading ends early once it is non-zero; may be NULL
};

// Drains `inner` and does not keep it. Images that the command line names keep their places; images
// of folders between them are sorted by their paths, byte by byte. A sample depends on the seed and
// on the images' names below the sink only; steps that are neither an image nor a failure are
// dropped from it. CONV_ERR_MEMORY.
enum conv_status conv_sorted_source_open(struct conv_sorted_source **sorted,
                                         struct conv_source *inner,
                                         const struct conv_sorted_config *config,
                                         struct conv_err *err);

// How many steps there are up to the image number `images`; 0: in total.
uint64_t conv_sorted_source_count(const struct conv_sorted_source *sorted, uint64_t images);

// Belongs to `sorted`.
struct conv_source *conv_sorted_source_get(struct conv_sorted_source *sorted);
void conv_sorted_source_close(struct conv_sorted_source *sorted); // NULL is fine

// --- a number of images --------------------------------------------------------------------------

// A source that ends after a given number of images.

struct conv_limited_source {
    struct conv_source source;
    struct conv_source *inner;
    uint64_t left; // images; other steps do not count
};

// `inner` must outlive the source; it is not read further than needed. There is nothing to close.
void conv_limited_source_init(struct conv_limited_source *limited, struct conv_source *inner,
                              uint64_t images);

#endif
