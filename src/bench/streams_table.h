// SPDX-License-Identifier: MIT
// The results of `conv bench streams`, and functions that print them.
#ifndef CONV_BENCH_STREAMS_TABLE_H
#define CONV_BENCH_STREAMS_TABLE_H

#include <stdio.h>

#include "bench/bench_copies.h"
#include "report/figures.h"

#define CONV_STREAMS_MOST_LINES 16
#define CONV_STREAMS_RUNS 3 // of each line

struct conv_streams_line {
    int count; // streams or workers
    struct conv_figures figures;
    double speed_up;      // over the first line
    double share_of_copy; // of the speed of copies both ways; -1: not measured
};

struct conv_streams_table {
    const char *filter, *folder, *device;
    bool async;       // lines count streams, else workers
    bool device_only; // --stage device
    struct conv_streams_line lines[CONV_STREAMS_MOST_LINES];
    int jobs[CONV_STREAMS_MOST_LINES];
    struct conv_totals totals[CONV_STREAMS_MOST_LINES];
    // Images per second of the slowest and the fastest run of each line; the line has the median.
    double slowest[CONV_STREAMS_MOST_LINES], fastest[CONV_STREAMS_MOST_LINES];
    int count;
    bool copied; // `copies` is measured
    struct conv_bench_copies copies;
};

// Plain text: the heading, then each line as soon as it is measured.
void conv_streams_table_print_head(const struct conv_streams_table *table);
void conv_streams_table_print_line(const struct conv_streams_table *table, int line);
// One JSON object, or comma-separated values under a line of names.
void conv_streams_table_print_json(const struct conv_streams_table *table, FILE *stream);
void conv_streams_table_print_csv(const struct conv_streams_table *table);

#endif
