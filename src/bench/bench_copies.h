// SPDX-License-Identifier: MIT
// The speed of copies alone, for `conv bench streams --stage device`.
#ifndef CONV_BENCH_BENCH_COPIES_H
#define CONV_BENCH_BENCH_COPIES_H

#include "bench/bench.h"

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
                                        const struct conv_bench_devices *devices,
                                        size_t image_bytes, size_t group_bytes,
                                        struct conv_err *err);

#endif
