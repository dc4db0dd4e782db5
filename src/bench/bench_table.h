// SPDX-License-Identifier: MIT
// Measured kernels of any kind, as text, JSON or CSV. All forms show the same numbers: a copy's
// speed and each kernel's share of it come from one figure per place.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define CONV_BENCH_MOST_LINES 128
#define CONV_BENCH_MOST_RUNS 21 // of one kernel
#define CONV_BENCH_MOST_COPIES 2048
#define CONV_BENCH_MACHINE 160 // bytes of its name

enum conv_bench_kind {
    CONV_BENCH_COPY,       // the same bytes copied: the yardstick
    CONV_BENCH_VARIANT,    // a variant of the table, or one that only benchmarks use
    CONV_BENCH_SHAPE,      // the variant above it with another block shape
    CONV_BENCH_COMPETITOR, // another library
};

enum conv_bench_where {
    CONV_BENCH_ONE_CORE,
    CONV_BENCH_ALL_CORES,
    CONV_BENCH_CUDA,
    CONV_BENCH_PLACES,
};

// What one run does.
struct conv_bench_amount {
    double images, pixels;
    double bytes; // read and written
    double flops; // 0: not counted
};

// NAN: no such figure.
struct conv_bench_line {
    enum conv_bench_kind kind;
    enum conv_bench_where where;
    const char *name;
    char summary[240];
    const char *precision;     // what a variant of a layer delivers; NULL: not a layer
    char skipped[480];         // why it was not measured; empty: it was
    double images, runs;       // of one run; timed
    double ms, ms_min, ms_max; // median, fastest and slowest run
    double ms_p25, ms_p75;     // quartiles
    double us_per_image, mpix_per_s, gb_per_s, tflop_per_s;
    double share, fma_share; // of the speed of a copy, and of multiply-adds in registers
    double error;            // of a layer: the largest, in units of 2^-24 * sum |w * x|
    double same_bits;        // as the reference: 1, else 0
    double step;             // speed over the previous variant's
    // Of an earlier benchmark (--compare); old_ms 0: unknown.
    double old_ms, old_p25, old_p75;
};

// A figure of a line in text, JSON and CSV.
struct conv_bench_column {
    const char *title; // of the text; NULL: not there
    int width, digits; // digits -1: "same" for 1, "-" for 0
    const char *unit;  // after the number, within the width; " %" multiplies it by 100
    const char *name;  // in JSON and CSV; NULL: not there
    int json_digits, csv_digits;
    size_t at; // of the double in struct conv_bench_line
};

// How the lines of one kind of benchmark are shown.
struct conv_bench_form {
    int name_width;
    const struct conv_bench_column *columns;
    int count;
    bool with_copy;    // a line for the copy of each place, and a summary in CSV
    bool with_threads; // lines say how many
};

// One place of a table.
struct conv_bench_yardsticks {
    char machine[CONV_BENCH_MACHINE]; // "NVIDIA H200"; empty: nothing was measured here
    double last_ms;                   // per image, of the last variant; 0: there is none
    double copy_ns[CONV_BENCH_MOST_COPIES], fma_tflop_per_s[CONV_BENCH_MOST_COPIES];
    int copy_count, fma_count;
    struct conv_bench_amount copied; // by each copy
    double copy_gb_per_s, fma_rate;  // medians; 0: not measured
};

struct conv_bench_table { // starts as {0}
    const struct conv_bench_form *form;
    int threads; // of all cores
    struct conv_bench_line lines[CONV_BENCH_MOST_LINES];
    int count;
    struct conv_bench_yardsticks places[CONV_BENCH_PLACES];
    const char *compared; // the file of the earlier benchmark; NULL: none
};

// Adds an empty line, or replaces the last one of a full table.
struct conv_bench_line *conv_bench_table_add(struct conv_bench_table *table,
                                             enum conv_bench_kind kind, const char *name,
                                             const char *summary, enum conv_bench_where where);
// Sets the figures of the last line from `runs` times in ns, which are sorted.
void conv_bench_table_set(struct conv_bench_table *table, double *ns, int runs,
                          const struct conv_bench_amount *amount);
// Adds a line for a kernel that could not be measured.
void conv_bench_table_skip(struct conv_bench_table *table, enum conv_bench_kind kind,
                           const char *name, enum conv_bench_where where, const char *reason);
// The time of one copy, always of the same amount, and a speed of multiply-adds alone. Both must
// alternate with the runs of the kernels throughout the table.
void conv_bench_table_add_copy(struct conv_bench_table *table, enum conv_bench_where where,
                               double ns, const struct conv_bench_amount *amount);
void conv_bench_table_add_fma(struct conv_bench_table *table, enum conv_bench_where where,
                              double tflop_per_s);
// To be called once, after the last line: sets every line's shares. Only then can the table be
// printed.
void conv_bench_table_finish(struct conv_bench_table *table);

// "copy", "variant", "shape", "competitor"
const char *conv_bench_table_kind(enum conv_bench_kind kind);
// "cpu", "cuda"
const char *conv_bench_table_place(enum conv_bench_where where);

// Lines under a heading.
void conv_bench_table_print(const struct conv_bench_table *table);
// A member of a JSON object that is already open: ,"rows":[...].
void conv_bench_table_print_json(const struct conv_bench_table *table, FILE *stream);
// Comma-separated values; each line begins with `before`, and the line of their names, unless it is
// NULL, with `heading`.
void conv_bench_table_print_csv(const struct conv_bench_table *table, const char *heading,
                                const char *before);
