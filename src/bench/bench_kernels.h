// SPDX-License-Identifier: MIT
#ifndef CONV_BENCH_BENCH_KERNELS_H
#define CONV_BENCH_BENCH_KERNELS_H

#include "cli/options.h"

// conv bench kernels: the ladder of kernels that this machine can run, each held against the
// reference and timed on --batch images of --size in one launch.
enum conv_status conv_bench_kernels(const struct conv_options *options, struct conv_err *err);

#endif
