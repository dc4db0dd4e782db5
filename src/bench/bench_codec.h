// SPDX-License-Identifier: MIT
#ifndef CONV_BENCH_BENCH_CODEC_H
#define CONV_BENCH_BENCH_CODEC_H

#include "cli/options.h"

// conv bench codec FOLDER: speed and size of every PNG coder on the user's own images, on one
// core, each result checked. operands[1] is the folder.
enum conv_status conv_bench_codec(const struct conv_options *options, struct conv_err *err);

#endif
