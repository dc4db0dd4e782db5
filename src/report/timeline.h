// SPDX-License-Identifier: MIT
// One row of the page's timeline in memory that does not grow: time in bins, each with what every
// stage took of it. When the run outgrows the bins, they become twice as wide.
#ifndef CONV_REPORT_TIMELINE_H
#define CONV_REPORT_TIMELINE_H

#include <stdint.h>

#include "report/report.h"

#define CONV_TIMELINE_BINS 512

struct conv_timeline {
    uint64_t width; // ns a bin
    uint64_t ns[CONV_TIMELINE_BINS][CONV_STAGE_COUNT];
};

void conv_timeline_init(struct conv_timeline *timeline);
// Times are since the start of the timeline; end >= start.
void conv_timeline_add(struct conv_timeline *timeline, enum conv_stage stage, uint64_t start,
                       uint64_t end);
// Makes bins twice as wide until they are at least `width`, so that rows can be compared.
void conv_timeline_widen(struct conv_timeline *timeline, uint64_t width);

#endif
