// SPDX-License-Identifier: MIT
// What people see of a run: lines about images in their order, the progress, the closing line.
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "report/record.h"
#include "report/report.h"

// --- lines in order ------------------------------------------------------------------------------

// Lines wait for those before them. If one is missing for this many numbers, the next ones are
// printed without it, so that an image that takes very long, or a pipe without a writer, delays no
// more than these.
#define CONV_ORDER_MOST 1024

struct conv_order_line {
    bool is_here;
    char *text; // malloc'ed; NULL: nothing is printed for this image
};

struct conv_order {         // {0}: no line yet
    uint64_t printed, last; // all images up to the first number; the largest number so far
    struct conv_order_line lines[CONV_ORDER_MOST]; // a ring, by number
};

// Takes the line of image `number`, which counts from 1 without gaps, and prints every line whose
// turn it is. Takes over `text`. Each number once.
void conv_order_add(struct conv_order *order, FILE *stream, uint64_t number, char *text);

// Prints what is left, in order.
void conv_order_flush(struct conv_order *order, FILE *stream);

// --- progress ------------------------------------------------------------------------------------
// The progress of a run, on stderr: on a terminal a bar that is redrawn in one line, elsewhere a
// line every few seconds.

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

// --- the closing line ----------------------------------------------------------------------------
// The closing line of a run, on stderr.

// Counts, rates and devices of a run; a run of one image that went well prints nothing. `rest` is
// what a signal has left undone, or NULL.
void conv_closing_print(const struct conv_report_config *config, const struct conv_totals *totals,
                        const struct conv_report_rest *rest);
