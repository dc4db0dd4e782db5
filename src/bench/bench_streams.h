// SPDX-License-Identifier: MIT
// The parts of `conv bench streams`: copies alone; the device alone; and the table.
#pragma once

#include <stdio.h>

#include "bench/bench.h"
#include "report/record.h"

// --- copies --------------------------------------------------------------------------------------

// In gigabytes per second, and milliseconds.
struct conv_bench_copies {
    double in, out, both; // GB/s; 0: not measured
    int small_count, small_streams;
    double small_one, small_many, small_group; // ms
};

// Times large copies on all devices at once and, on the first one, images of `image_bytes` one by
// one, over streams and in groups of `group_bytes`. CUDA devices only. CONV_ERR_MEMORY,
// CONV_ERR_DEVICE.
enum conv_status conv_bench_copies_time(struct conv_bench_copies *copies,
                                        const struct conv_device *devices, size_t image_bytes,
                                        size_t group_bytes, struct conv_err *err);

// --- --stage device ------------------------------------------------------------------------------

// Groups of decoded images in staging memory, which streams filter again and again. The results are
// dropped: this measures the speed of link and kernels without PNG.
struct conv_bench_device;

// Decodes images of options->walk until there are two groups for each of `streams` streams of each
// device, or --mem-limit is reached. CONV_ERR_USAGE if no image can be decoded, CONV_ERR_MEMORY.
enum conv_status conv_bench_device_open(struct conv_bench_device **bench,
                                        const struct conv_bench_options *options, int streams,
                                        struct conv_err *err);
void conv_bench_device_close(struct conv_bench_device *bench); // NULL is fine

#define CONV_BENCH_DEVICE_TRACED_MS 40

// Runs `streams` streams of each device for half a second. *bytes: copied in both directions
// together. `trace` gets a track per engine of each stream, for the first
// CONV_BENCH_DEVICE_TRACED_MS; may be NULL.
enum conv_status conv_bench_device_run(struct conv_bench_device *bench, int streams,
                                       struct conv_trace *trace, struct conv_totals *totals,
                                       double *bytes, struct conv_err *err);

// Measures copies alone; *measured is false where filtering needs none.
enum conv_status conv_bench_device_copies(struct conv_bench_device *bench, bool *measured,
                                          struct conv_bench_copies *copies, struct conv_err *err);

// --- the table -----------------------------------------------------------------------------------

#define CONV_STREAMS_MOST_LINES 16
#define CONV_STREAMS_RUNS 3 // of each line

struct conv_streams_line {
    int count; // streams or workers
    int jobs;  // workers
    struct conv_totals totals;
    struct conv_figures figures;
    double slowest, fastest; // images per second of one of its runs; the rest is of the median one
    double speed_up;         // over the first line
    double share_of_copy;    // of the speed of copies both ways; -1: not measured
};

struct conv_streams_table {
    const char *filter, *folder, *device;
    bool async;       // lines count streams, else workers
    bool device_only; // --stage device
    struct conv_streams_line lines[CONV_STREAMS_MOST_LINES];
    int count;
    bool copied; // `copies` is measured
    struct conv_bench_copies copies;
};

// Plain text: the heading, then each line as soon as it is measured.
void conv_streams_table_print_head(const struct conv_streams_table *table);
void conv_streams_table_print_line(const struct conv_streams_table *table, int line);
// One JSON object of a struct conv_streams_table, or comma-separated values under a line of names.
void conv_streams_table_print_json(const void *table, FILE *stream);
void conv_streams_table_print_csv(const struct conv_streams_table *table);
