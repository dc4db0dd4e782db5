// SPDX-License-Identifier: MIT
// One line on the terminal that is drawn again and again.
#ifndef CONV_REPORT_PROGRESS_H
#define CONV_REPORT_PROGRESS_H

#include "report/report.h"

struct conv_progress {
    bool active; // lines are drawn
    bool drawn;  // one stands on the terminal now
    uint64_t start_ns, last_ns;
};

void conv_progress_init(struct conv_progress *progress, enum conv_when when, bool quiet);
// Draws at most ten times a second.
void conv_progress_update(struct conv_progress *progress, const struct conv_totals *totals);
// Takes the line away, so that something else can be printed.
void conv_progress_clear(struct conv_progress *progress);

#endif
