// SPDX-License-Identifier: MIT
// How much there is to do, as far as one can tell before it is begun.
#ifndef CONV_PIPELINE_AMOUNT_H
#define CONV_PIPELINE_AMOUNT_H

#include "pipeline/walk.h"

struct conv_amount {
    uint64_t pictures; // at least
    uint64_t bytes;    // of their files, about
    bool much;         // `enough` bytes or more
};

// Walks as the run will, and no further than it takes to see that it is much, or that the pictures
// are too small for that to be worth a walk. Of the first few files the size is looked at, the
// others are taken to be like them. The same folders give the same answer each time; a list of
// names that cannot be read twice counts as nothing.
void conv_amount_measure(struct conv_amount *amount, const struct conv_walk_config *config,
                         uint64_t enough);

#endif
