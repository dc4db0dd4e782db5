// SPDX-License-Identifier: MIT
// Times what is queued on a CUDA stream, with cold caches.
#ifndef CONV_BENCH_BENCH_CUDA_TIMER_H
#define CONV_BENCH_BENCH_CUDA_TIMER_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "base/err.h"

// Starts as {0}.
struct conv_bench_timer {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    void *d_flush; // twice the level 2 cache
    size_t flush_bytes;
};

// Makes `device` the thread's current device.
cudaError_t conv_bench_timer_open(struct conv_bench_timer *timer, int device);
void conv_bench_timer_close(struct conv_bench_timer *timer); // half-built is fine

// Work queued between the two calls is timed. The first overwrites the level 2 cache, which also
// keeps the device busy while the host queues the work; the second waits. *ns is the time.
cudaError_t conv_bench_timer_start(const struct conv_bench_timer *timer);
cudaError_t conv_bench_timer_stop(const struct conv_bench_timer *timer, uint64_t *ns);

// CONV_OK for cudaSuccess, else as conv_cuda_device_report.
enum conv_status conv_bench_timer_report(cudaError_t code, const char *doing, struct conv_err *err);

#endif
