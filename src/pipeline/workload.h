// SPDX-License-Identifier: MIT
// An estimate, before a run begins, of how much it has to do.
#ifndef CONV_PIPELINE_WORKLOAD_H
#define CONV_PIPELINE_WORKLOAD_H

#include "io/source.h"

enum conv_workload_kind { CONV_WORKLOAD_UNKNOWN, CONV_WORKLOAD_SMALL, CONV_WORKLOAD_LARGE };

struct conv_workload {
    enum conv_workload_kind kind;
    uint64_t images; // lower bound
    uint64_t bytes;  // of their files, estimated
};

// Bytes of files from which on there is much to do.
struct conv_workload_thresholds {
    uint64_t plain;  // if a device could decode most images, by their first bytes
    uint64_t others; // if not
};

// Takes steps of the source until it is clear that there is much to do, or that the images are too
// small to be worth counting. Looks up the size of the first few files and opens some of them; all
// others count as their average. The same source gives the same answer each time.
void conv_workload_measure(struct conv_workload *workload, struct conv_source *source,
                           const struct conv_workload_thresholds *thresholds);

#endif
