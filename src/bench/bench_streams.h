// SPDX-License-Identifier: MIT
#ifndef CONV_BENCH_BENCH_STREAMS_H
#define CONV_BENCH_BENCH_STREAMS_H

#include "cli/options.h"

// conv bench streams FOLDER: the same images through one stream (on the CPU: worker) and through
// several. operands[1] is the folder.
enum conv_status conv_bench_streams(const struct conv_options *options, struct conv_err *err);

#endif
