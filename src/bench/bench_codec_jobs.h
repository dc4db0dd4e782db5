// SPDX-License-Identifier: MIT
// The part of `conv bench codec` that measures several threads.
#ifndef CONV_BENCH_BENCH_CODEC_JOBS_H
#define CONV_BENCH_BENCH_CODEC_JOBS_H

#include "bench/bench_images.h"

// conv bench codec FOLDER -j N: the CPU's coders alone on N threads at once, without files, filters
// or a device: the upper bound of a run with N workers that decodes and encodes on the CPU. The
// images have been filtered (conv_bench_images_filter); the results are encoded. Prints a table, or
// JSON.
enum conv_status conv_bench_codec_jobs(const struct conv_bench_options *options,
                                       const struct conv_bench_images *images,
                                       struct conv_err *err);

#endif
