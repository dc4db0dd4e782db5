// SPDX-License-Identifier: MIT
// How much there is to do, as far as one can tell before it is begun.
#ifndef CONV_PIPELINE_AMOUNT_H
#define CONV_PIPELINE_AMOUNT_H

#include "pipeline/walk.h"

struct conv_amount {
    uint64_t pictures, bytes; // at least: files that a walk finds, and their size
    bool much;                // CONV_AMOUNT_MUCH bytes or more
};

// A second of work or more for any machine's CPU, so that a GPU may be waited for.
#define CONV_AMOUNT_MUCH ((uint64_t)1 << 30)

// Walks as the run will, but looks at sizes only, and no further than it takes to see that it is
// much, or that the pictures are too small for a look at each. The same folders give the same
// answer each time; a list of names that cannot be read twice counts as nothing.
void conv_amount_measure(struct conv_amount *amount, const struct conv_walk_config *config);

#endif
