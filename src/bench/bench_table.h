// SPDX-License-Identifier: MIT
// Measured kernels of any kind, as text, JSON or CSV. All forms show the same numbers: a copy's
// speed and each kernel's share of it come from one figure per place.
#ifndef CONV_BENCH_BENCH_TABLE_H
#define CONV_BENCH_BENCH_TABLE_H

#include <stdio.h>

#include "kernels/common/place.h"

#define CONV_BENCH_MOST_PLACES 2 // values of enum conv_place
#define CONV_BENCH_MOST_LINES 64
#define CONV_BENCH_MOST_RUNS 21 // of one kernel
#define CONV_BENCH_MOST_COPIES (CONV_BENCH_MOST_LINES * CONV_BENCH_MOST_RUNS)

enum conv_bench_kind {
    CONV_BENCH_COPY,       // the same bytes copied: the yardstick
    CONV_BENCH_VARIANT,    // a variant of the table, or one that only benchmarks use
    CONV_BENCH_SHAPE,      // the variant above it with another block shape
    CONV_BENCH_COMPETITOR, // another library
};

struct conv_bench_line {
    enum conv_bench_kind kind;
    const char *name, *summary;
    enum conv_place place;
    int runs;                  // timed
    double ms, ms_min, ms_max; // median, fastest and slowest run
    double ms_p25, ms_p75;     // quartiles
    double share;              // of the copy's speed; set by conv_bench_table_finish
    double step;               // speed over the previous variant's; 0: it is the first
    char skipped[480];         // why it was not measured; empty: it was
    // Of an earlier benchmark (bench_compare.h); old_ms 0: unknown.
    double old_ms, old_p25, old_p75;
};

// Copies, and the last variant, at one place.
struct conv_bench_place {
    char machine[160]; // "NVIDIA H200"; empty: nothing was measured here
    double last_ms;    // of the last variant; 0: there is none
    double copy_ns[CONV_BENCH_MOST_COPIES];
    int copy_count;
};

struct conv_bench_table { // starts as {0}
    // The work of one run of any line, set by the caller.
    double bytes; // read and written
    double pixels;
    struct conv_bench_line lines[CONV_BENCH_MOST_LINES];
    int count;
    struct conv_bench_place places[CONV_BENCH_MOST_PLACES];
    const char *compared; // the file of the earlier benchmark; NULL: none
};

// The time of one copy of the same bytes. Copies must alternate with the runs of the kernels
// throughout the table.
void conv_bench_table_add_copy(struct conv_bench_table *table, enum conv_place place, double ns);
// Adds a line from `runs` times in ns, which are sorted.
void conv_bench_table_add(struct conv_bench_table *table, enum conv_bench_kind kind,
                          const char *name, const char *summary, enum conv_place place, double *ns,
                          int runs);
// Adds a line for a kernel that could not be measured.
void conv_bench_table_skip(struct conv_bench_table *table, enum conv_bench_kind kind,
                           const char *name, enum conv_place place, const char *reason);
// To be called once, after the last line: adds a line for the copy above the others of its place,
// with the median of all its times, and sets every line's share. Only then can the table be
// printed.
void conv_bench_table_finish(struct conv_bench_table *table);

// Gigabytes per second, read and written, of a run of `ms`.
double conv_bench_table_rate(const struct conv_bench_table *table, double ms);
// How the line differs from the earlier benchmark: "faster" or "slower" if the middle halves of the
// runs do not overlap and the medians are 2 % apart, else "same". NULL: the line is not in both.
const char *conv_bench_table_change(const struct conv_bench_line *line);
// "copy", "variant", "shape", "competitor"
const char *conv_bench_table_kind(enum conv_bench_kind kind);
// "cpu", "cuda"
const char *conv_bench_table_place(enum conv_place place);

// Lines under a heading, after one line per machine.
void conv_bench_table_print(const struct conv_bench_table *table);
// Members of a JSON object that is already open: ,"cpu":...,"cuda":...,"rows":[...]. MEMBERS, of
// the form ,"name":value, come before the rows.
void conv_bench_table_print_json(const struct conv_bench_table *table, const char *members,
                                 FILE *stream);
// Comma-separated values under a line of names.
void conv_bench_table_print_csv(const struct conv_bench_table *table);

#endif
