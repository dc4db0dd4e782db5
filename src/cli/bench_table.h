// SPDX-License-Identifier: MIT
// What `conv bench kernels` has measured, and the ways to print it.
#ifndef CONV_CLI_BENCH_TABLE_H
#define CONV_CLI_BENCH_TABLE_H

#include <stdint.h>

#include "cli/options.h"

#define CONV_BENCH_MOST_LINES 64

enum conv_bench_kind {
    CONV_BENCH_COPY,  // the same bytes copied: what no kernel can beat by much
    CONV_BENCH_RUNG,  // a step of the ladder
    CONV_BENCH_SHAPE, // the rung above it with another block shape
    CONV_BENCH_RIVAL, // somebody else's
};

struct conv_bench_line {
    enum conv_bench_kind kind;
    const char *name, *summary;
    bool on_cuda;
    double ms, copy_ms; // medians; of the copies taken in turn with it
    double step;        // how many times as fast as the rung before; 0: there is none
    char left_out[480]; // why it was not measured; empty: it was
};

struct conv_bench_table {
    const char *filter, *border;
    char cpu[96], cuda[160]; // where they ran; empty: nothing did
    int width, height;       // of each picture; 0: a mix
    int pictures, depth;
    double pixels; // of all pictures; three samples each
    struct conv_bench_line lines[CONV_BENCH_MOST_LINES];
    int count;
    double step_base[2]; // ms of the rung before, on the CPU and on CUDA; 0: none yet
    bool live;           // lines are printed as soon as they are there
};

// A line more: medians of the kernel and of copies taken in turn with it. The copy gets a line of
// its own with the first that was measured at a place.
void conv_bench_table_add(struct conv_bench_table *table, enum conv_bench_kind kind,
                          const char *name, const char *summary, bool on_cuda, uint64_t ns,
                          uint64_t copy_ns);
// One for what could not be measured.
void conv_bench_table_leave_out(struct conv_bench_table *table, enum conv_bench_kind kind,
                                const char *name, bool on_cuda, const char *reason);

// Gigabytes a second, every sample read once and written once.
double conv_bench_table_rate(const struct conv_bench_table *table, double ms);

// Plain text: the heading, before the lines of a live table.
void conv_bench_table_print_head(const struct conv_bench_table *table);
// One JSON object, or comma-separated values under a line of names.
void conv_bench_table_print_json(const struct conv_bench_table *table, FILE *stream);
void conv_bench_table_print_csv(const struct conv_bench_table *table);

// A bar chart. CONV_ERR_IO if the file cannot be written. bench_chart.c
enum conv_status conv_bench_table_draw(const struct conv_bench_table *table, const char *path,
                                       struct conv_err *err);

#endif
