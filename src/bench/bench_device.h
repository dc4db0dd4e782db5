// SPDX-License-Identifier: MIT
// `conv bench streams --stage device`: groups of decoded images in staging memory, which streams
// filter again and again. The results are dropped: this measures the speed of link and kernels
// without PNG.
#ifndef CONV_BENCH_BENCH_DEVICE_H
#define CONV_BENCH_BENCH_DEVICE_H

#include "bench/bench.h"
#include "bench/bench_copies.h"

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

#endif
