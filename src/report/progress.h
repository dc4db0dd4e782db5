// SPDX-License-Identifier: MIT
// One line on stderr that is drawn again and again while images are filtered.
#ifndef CONV_REPORT_PROGRESS_H
#define CONV_REPORT_PROGRESS_H

#include "report/record.h"

struct conv_progress {
    bool active;       // lines are drawn at all
    bool drawn;        // one is on the terminal now
    uint64_t start_ns; // of the rates
    uint64_t last_ns;  // when a line was last drawn
};

// Active with CONV_ALWAYS, and with CONV_AUTO if stderr is a terminal and `quiet` is not set.
void conv_progress_init(struct conv_progress *progress, enum conv_when when, bool quiet);
// Draws at most ten times a second.
void conv_progress_update(struct conv_progress *progress, const struct conv_totals *totals);
// Removes the line so that something else can be printed.
void conv_progress_clear(struct conv_progress *progress);

#endif
