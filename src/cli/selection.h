// SPDX-License-Identifier: MIT
// The images of a run, selected from the walk over its inputs: all of them, in the order of the
// file system or sorted, the first few, or a random sample; and their number. One thread at a time.
#ifndef CONV_CLI_SELECTION_H
#define CONV_CLI_SELECTION_H

#include <pthread.h>

#include "cli/options.h"
#include "io/walk/walk.h"
#include "report/report.h"

struct conv_selection {
    struct conv_walk_config config;
    struct conv_walk *walk;
    struct conv_source *source; // the walk's
    struct conv_report_total total;
    // A second walk that counts ahead of the run.
    struct conv_walk *counter;
    pthread_t thread;
    bool is_counting;
    atomic_bool ends;
};

// Opens the walk. Reads all names now if the options ask for an order or a sample, or if results
// appear in the folders that are walked; with `sorts` in any case, except for a list. Keeps the
// strings of *config, and the selection must not be moved. CONV_ERR_USAGE, CONV_ERR_MEMORY. To be
// closed also after a failure; {0} is fine.
enum conv_status conv_selection_open(struct conv_selection *selection,
                                     const struct conv_walk_config *config,
                                     const struct conv_options *options, bool sorts,
                                     struct conv_err *err);
void conv_selection_close(struct conv_selection *selection);

// Begins to count the images, for selection->total. If it cannot, the total stays unknown.
void conv_selection_count_ahead(struct conv_selection *selection);

// After a signal, when the run is over: counts the images that are left, for 0.1 s at most.
// `over`: the number of images that are not left; *known: false if there may be more.
uint64_t conv_selection_count_rest(struct conv_selection *selection, uint64_t over, bool *known);

#endif
