// SPDX-License-Identifier: MIT
#ifndef CONV_BENCH_KERNELS_PAGE_H
#define CONV_BENCH_KERNELS_PAGE_H

#include "bench/bench_table.h"
#include "cli/run_page.h"

// Writes the page about `conv bench kernels`; `job` is open.
enum conv_status conv_kernels_page_write(struct conv_page_job *job,
                                         const struct conv_bench_table *table,
                                         const struct conv_filter *filters, int filter_count,
                                         struct conv_err *err);

#endif
