// SPDX-License-Identifier: MIT
// The progress of a run, on stderr: on a terminal a bar that is redrawn in one line, elsewhere a
// line every few seconds.
#ifndef CONV_REPORT_PROGRESS_H
#define CONV_REPORT_PROGRESS_H

#include "report/record.h"

// Counts of images at some moments, for the rate of the last seconds.
#define CONV_PROGRESS_MOMENTS 32

struct conv_progress {
    bool active;                           // something is drawn at all
    bool is_bar;                           // on a terminal
    bool drawn;                            // a bar is on the terminal now
    const struct conv_report_total *total; // NULL: unknown
    uint64_t start_ns;
    uint64_t last_ns; // when something was last drawn
    struct {
        uint64_t ns, over;
    } moments[CONV_PROGRESS_MOMENTS]; // a ring
    unsigned moment_count;
};

// The contents of one line.
struct conv_progress_state {
    uint64_t over, failed; // images that are over, failed ones included
    uint64_t total;        // at least `over`; 0: unknown
    bool is_complete;      // `total` will not grow
    double rate;           // images per second; 0: unknown
};

// True with CONV_ALWAYS, and with CONV_AUTO if stderr is a terminal and `quiet` is not set.
bool conv_progress_is_wanted(enum conv_when when, bool quiet);

// Active if `wanted`. *total (may be NULL) must outlive the progress.
void conv_progress_init(struct conv_progress *progress, bool wanted,
                        const struct conv_report_total *total);

// Draws if it is time: to be called often, also while no image is finished.
void conv_progress_update(struct conv_progress *progress, const struct conv_totals *totals);

// Removes the bar so that something else can be printed.
void conv_progress_clear(struct conv_progress *progress);

// The line of a bar that leaves the last three of `columns` columns free, in ASCII; what does not
// fit is omitted, the least important first.
void conv_progress_format_bar(char *text, size_t size, int columns,
                              const struct conv_progress_state *state);

// The same as a sentence, of any length.
void conv_progress_format_line(char *text, size_t size, const struct conv_progress_state *state);

#endif
