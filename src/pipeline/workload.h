// SPDX-License-Identifier: MIT
// How much there is to do, as far as one can tell before it is begun.
#ifndef CONV_PIPELINE_WORKLOAD_H
#define CONV_PIPELINE_WORKLOAD_H

#include "io/walk.h"

enum conv_workload_kind { CONV_AMOUNT_UNKNOWN, CONV_AMOUNT_LITTLE, CONV_AMOUNT_MUCH };

struct conv_workload {
    enum conv_workload_kind kind;
    uint64_t images; // at least
    uint64_t bytes;  // of their files, about
};

// Bytes of files that are much: of images most of which a device could decode, as far as their
// first bytes tell (conv_png_looks_plain), and of others.
struct conv_workload_thresholds {
    uint64_t plain, others;
};

// Walks as the run will, and no further than it takes to see that it is much, or that the images
// are too small for that to be worth a walk. Of the first few files the size is looked at, and some
// are opened; the others are taken to be like them. The same folders give the same answer each
// time. Of a list of names that cannot be read twice nothing is known.
void conv_workload_measure(struct conv_workload *amount, const struct conv_walk_config *config,
                           const struct conv_workload_thresholds *enough);

#endif
