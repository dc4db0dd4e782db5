// SPDX-License-Identifier: MIT
// The results of `conv bench kernels` as text, JSON, CSV and page.
#ifndef CONV_BENCH_BENCH_KERNELS_PRINT_H
#define CONV_BENCH_BENCH_KERNELS_PRINT_H

#include "bench/bench.h"
#include "bench/bench_table.h"
#include "bench/bench_workload.h"

// Prints a finished table and writes options->page. `status` is how the measurement ended: after a
// failure only text is printed, of what there is. Returns it, or the first failure in writing.
enum conv_status conv_bench_kernels_print(const struct conv_bench_options *options,
                                          const struct conv_bench_workload *workload,
                                          const struct conv_bench_table *table,
                                          enum conv_status status, struct conv_err *err);

#endif
