// SPDX-License-Identifier: MIT
// What `conv bench kernels` has measured, and the ways to print it. All of them show the same
// numbers: a copy's speed and each kernel's share of it come from one figure per device.
#ifndef CONV_BENCH_BENCH_TABLE_H
#define CONV_BENCH_BENCH_TABLE_H

#include <stdint.h>

#include "cli/options.h"

#define CONV_BENCH_MOST_LINES 64
#define CONV_BENCH_MOST_RUNS 21 // of one kernel
#define CONV_BENCH_MOST_COPIES (CONV_BENCH_MOST_LINES * CONV_BENCH_MOST_RUNS)

enum conv_bench_kind {
    CONV_BENCH_COPY,  // the same bytes copied: the yardstick
    CONV_BENCH_RUNG,  // a step of the ladder
    CONV_BENCH_SHAPE, // the rung above it with another block shape
    CONV_BENCH_RIVAL, // somebody else's
};

struct conv_bench_line {
    enum conv_bench_kind kind;
    const char *name, *summary;
    bool on_cuda;
    int runs;                  // timed
    double ms, ms_min, ms_max; // median, fastest and slowest of these runs
    double ms_p25, ms_p75;     // half of them lie between the two
    double share;              // of the copy's speed; set by conv_bench_table_finish
    double step;               // how many times as fast as the rung before; 0: there is none
    char left_out[480];        // why it was not measured; empty: it was
};

// Times of copies in ns, over the whole run.
struct conv_bench_copies {
    double ns[CONV_BENCH_MOST_COPIES];
    int count;
};

struct conv_bench_table {
    const char *filter, *border;
    char cpu[96], cuda[160]; // where they ran; empty: nothing did
    int width, height;       // of each image; 0: a mix
    int images, depth;
    double pixels; // of all images; three samples each
    struct conv_bench_line lines[CONV_BENCH_MOST_LINES];
    int count;
    double step_base[2];                // ms of the rung before, on the CPU and on CUDA; 0: none
    struct conv_bench_copies copies[2]; // on the CPU and on CUDA
};

// The time of one copy of the same bytes. Copies are to be taken in turn with the runs of the
// kernels, from the table's first line to its last.
void conv_bench_table_add_copy(struct conv_bench_table *table, bool on_cuda, uint64_t ns);
// One more line, from `runs` times, which are sorted.
void conv_bench_table_add(struct conv_bench_table *table, enum conv_bench_kind kind,
                          const char *name, const char *summary, bool on_cuda, double *ns,
                          int runs);
// One for what could not be measured.
void conv_bench_table_leave_out(struct conv_bench_table *table, enum conv_bench_kind kind,
                                const char *name, bool on_cuda, const char *reason);
// Once, after the last line: gives the copy a line of its own, above the others of its device, with
// the median of all its times, and each line its share of that. Only then can the table be printed.
void conv_bench_table_finish(struct conv_bench_table *table);

// Gigabytes per second, every sample read once and written once.
double conv_bench_table_rate(const struct conv_bench_table *table, double ms);

// Plain text; one JSON object; comma-separated values under a line of names.
void conv_bench_table_print(const struct conv_bench_table *table);
void conv_bench_table_print_json(const struct conv_bench_table *table, FILE *stream);
void conv_bench_table_print_csv(const struct conv_bench_table *table);

#endif
