// SPDX-License-Identifier: MIT
// One track of a timeline in constant memory: bins of time with the share of each stage. When a run
// outgrows the bins, they become twice as wide.
#ifndef CONV_REPORT_TIMELINE_H
#define CONV_REPORT_TIMELINE_H

#include <stdint.h>

#include "report/record.h"

#define CONV_TIMELINE_BINS 512

struct conv_timeline {
    uint64_t width; // of a bin, ns
    uint64_t ns[CONV_TIMELINE_BINS][CONV_STAGE_COUNT];
};

// No time in any bin.
void conv_timeline_init(struct conv_timeline *timeline);
// `start` and `end` are ns since the start of the timeline; end >= start.
void conv_timeline_add(struct conv_timeline *timeline, enum conv_stage stage, uint64_t start,
                       uint64_t end);
// Doubles the width of the bins until it is at least `width`, so that tracks can be compared.
void conv_timeline_widen(struct conv_timeline *timeline, uint64_t width);

#endif
