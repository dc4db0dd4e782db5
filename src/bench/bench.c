// SPDX-License-Identifier: MIT
// conv bench kernels | streams FOLDER | codec FOLDER: what this machine does, measured here and
// now.
#include "bench/bench_codec.h"
#include "bench/bench_kernels.h"
#include "bench/bench_streams.h"
#include "cli/commands.h"

int conv_bench_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    enum conv_status status;
    if (options->command == CONV_COMMAND_BENCH_KERNELS)
        status = conv_bench_kernels(options, &err);
    else if (options->command == CONV_COMMAND_BENCH_STREAMS)
        status = conv_bench_streams(options, &err);
    else if (options->command == CONV_COMMAND_BENCH_CODEC)
        status = conv_bench_codec(options, &err);
    else
        status = conv_err_set(&err, CONV_ERR_USAGE,
                              "conv bench takes: kernels | streams FOLDER | codec FOLDER");
    if (status)
        return conv_commands_fail(&err);
    return conv_commands_flush();
}
