// SPDX-License-Identifier: MIT
// Figures derived from the totals of a run: rates, shares, the stage that limits it. The one source
// of the closing line, the JSON summary, the page and the table of streams.
#ifndef CONV_REPORT_FIGURES_H
#define CONV_REPORT_FIGURES_H

#include "report/record.h"

struct conv_figures {
    double images_per_s, mpix_per_s;
    // Shares of 0 to 1. A worker's stage: of the workers' time. A device's stage: of the run, with
    // at least one stream in it; the mean of several devices.
    double busy[CONV_STAGE_COUNT];
    double waiting; // of the workers' time: in no stage
    // Of the run: two, three engines of a device busy at once (mean of several devices); -1: none.
    double overlap_two, overlap_three;
    int cores; // that this process may use
    // CPU time of this process, user and system, over seconds * cores. 0 to 1.
    double cpu_utilisation;
    double start_seconds; // as in the totals
    // What limits the run: a stage, "starting", "starting the GPU" or "other programs". NULL:
    // nothing was done, it took less than a second, or nothing was busy for most of the time.
    const char *limit;
    const char *next_limit; // the stage that would, if that one were faster; NULL: no stage limits
};

// Fills *figures; if the run did nothing, all rates and shares are 0.
void conv_figures_compute(const struct conv_report_config *config, const struct conv_totals *totals,
                          struct conv_figures *figures);

// Name of the i-th device in config->device (after the last: the fallback), and its share of all
// that was filtered, 0 to 1. False: no such device, or a fallback that did nothing.
bool conv_figures_device(const struct conv_report_config *config, const struct conv_totals *totals,
                         int i, char name[16], double *share);

// --- overlap -------------------------------------------------------------------------------------

// How long a device's engines (copy in, kernel, copy out) were busy, alone and together, over all
// streams: a sweep over intervals. Its memory is bounded: old intervals are counted and dropped.

struct conv_overlap;

// CONV_ERR_MEMORY; *overlap is then NULL.
enum conv_status conv_overlap_open(struct conv_overlap **overlap, struct conv_err *err);
void conv_overlap_close(struct conv_overlap *overlap); // NULL is fine

// Adds an interval of work, on one clock for all. Intervals may come in any order as long as none
// comes after more than about ten thousand that began later.
void conv_overlap_add(struct conv_overlap *overlap, enum conv_engine engine, uint64_t start,
                      uint64_t end);

// Everything added so far.
void conv_overlap_read(struct conv_overlap *overlap, struct conv_overlap_times *times);

#endif
