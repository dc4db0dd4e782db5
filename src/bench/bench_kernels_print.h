// SPDX-License-Identifier: MIT
// The results of `conv bench kernels` as text, JSON, CSV and page.
#ifndef CONV_BENCH_BENCH_KERNELS_PRINT_H
#define CONV_BENCH_BENCH_KERNELS_PRINT_H

#include "bench/bench.h"
#include "bench/bench_table.h"
#include "bench/bench_workload.h"

#define CONV_BENCH_MOST_WORKLOADS 4

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

#endif
