// SPDX-License-Identifier: MIT
// The reference's result for a workload. The reference is slow, so all cores compute it.
#ifndef CONV_BENCH_BENCH_REFERENCE_H
#define CONV_BENCH_BENCH_REFERENCE_H

#include "bench/bench_launch.h"
#include "bench/bench_workload.h"

// Fills `result`, laid out as the workload's source. CONV_ERR_MEMORY.
enum conv_status conv_bench_reference(const struct conv_bench_workload *workload,
                                      const struct conv_bench_chain *chain,
                                      const struct conv_variant *reference, int cores,
                                      uint8_t *result, struct conv_err *err);

#endif
