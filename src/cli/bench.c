// SPDX-License-Identifier: MIT
// conv bench kernels | streams FOLDER | codec FOLDER: what this machine does, measured here and
// now.
#include <string.h>

#include "cli/bench_codec.h"
#include "cli/bench_kernels.h"
#include "cli/bench_streams.h"
#include "cli/commands.h"

int conv_bench_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    enum conv_status status;
    const char *what = options->operand_count > 0 ? options->operands[0] : "";
    bool shown = strcmp(what, "streams") == 0 || strcmp(what, "kernels") == 0;
    if (*what && (options->trace_path || (options->html_path && !shown)))
        status = conv_err_set(&err, CONV_ERR_USAGE, "--%s does not go with conv bench %s",
                              options->trace_path ? "trace" : "html", what);
    else if (strcmp(what, "kernels") == 0)
        status = conv_bench_kernels(options, &err);
    else if (strcmp(what, "streams") == 0)
        status = conv_bench_streams(options, &err);
    else if (strcmp(what, "codec") == 0)
        status = conv_bench_codec(options, &err);
    else
        status = conv_err_set(&err, CONV_ERR_USAGE,
                              "conv bench takes: kernels | streams FOLDER | codec FOLDER");
    if (status)
        return conv_commands_fail(&err);
    return conv_commands_flush();
}
