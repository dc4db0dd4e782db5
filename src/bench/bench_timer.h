// SPDX-License-Identifier: MIT
// The time of what rivals queue on a CUDA stream, with cold caches; part of builds with rivals
// only.
#ifndef CONV_BENCH_BENCH_TIMER_H
#define CONV_BENCH_BENCH_TIMER_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "base/err.h"

// Starts as {0}.
struct conv_bench_timer {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    void *d_flush; // as large as caches are
    size_t flush_bytes;
};

cudaError_t conv_bench_timer_open(struct conv_bench_timer *timer, int device);
void conv_bench_timer_close(struct conv_bench_timer *timer); // half-built is fine

// What is queued between the two is timed; the second waits for it.
cudaError_t conv_bench_timer_start(const struct conv_bench_timer *timer);
cudaError_t conv_bench_timer_stop(const struct conv_bench_timer *timer, uint64_t *ns);

// CONV_OK, or CONV_ERR_DEVICE with CUDA's reason.
enum conv_status conv_bench_timer_report(cudaError_t code, struct conv_err *err);

#endif
