// SPDX-License-Identifier: MIT
// The results of `conv bench kernels` as text, JSON, CSV and page, and beside an earlier one.
#pragma once

#include "bench/bench.h"
#include "bench/bench_table.h"
#include "bench/bench_workload.h"

#define CONV_BENCH_MOST_WORKLOADS 4

extern const struct conv_bench_form conv_bench_kernels_form;

struct conv_bench_result {
    struct conv_bench_workload workload; // may be closed
    struct conv_bench_table table;       // finished
};

// After a failed measurement only text is printed, with the lines that are complete.
void conv_bench_kernels_print(const struct conv_bench_options *options,
                              const struct conv_bench_result *result, bool failed);
// Writes options->page. CONV_ERR_MEMORY, CONV_ERR_IO.
enum conv_status conv_bench_kernels_page(const struct conv_bench_options *options,
                                         const struct conv_bench_result *results, int count,
                                         struct conv_err *err);

// --- an earlier result of `conv bench kernels --json`, with which a new one is compared ----------

// Reads the file; `path` must outlive the object. CONV_ERR_USAGE if it cannot be read or has no
// result of conv bench kernels; CONV_ERR_MEMORY.
enum conv_status conv_bench_compare_open(struct conv_bench_compare **compare, const char *path,
                                         struct conv_err *err);
void conv_bench_compare_close(struct conv_bench_compare *compare); // NULL is fine

// CONV_ERR_USAGE if the file has no result for this filter, border and workload.
enum conv_status conv_bench_compare_check(const struct conv_bench_compare *compare,
                                          const struct conv_bench_options *options,
                                          const struct conv_bench_workload *workload,
                                          struct conv_err *err);

// Sets the earlier times of the lines that the file has, by name and place. The table must be
// finished. Without a result for this workload the table stays as it is.
void conv_bench_compare_fill(const struct conv_bench_compare *compare,
                             const struct conv_bench_options *options,
                             const struct conv_bench_workload *workload,
                             struct conv_bench_table *table);
