// SPDX-License-Identifier: MIT
#ifndef CONV_BENCH_BENCH_CODEC_JOBS_H
#define CONV_BENCH_BENCH_CODEC_JOBS_H

#include "bench/bench_images.h"

// conv bench codec FOLDER -j N: what the CPU's coders alone do on N threads at once, without files,
// filters or a device: the rate that a run on N workers can come near to, and no further where it
// codes on the CPU. Images must have been filtered; each is encoded as that has left it. Prints
// the table, or JSON.
enum conv_status conv_bench_codec_jobs(const struct conv_options *options,
                                       const struct conv_bench_images *images,
                                       struct conv_err *err);

#endif
