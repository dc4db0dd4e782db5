// SPDX-License-Identifier: MIT
#include "cli/commands.h"

#include <errno.h>
#include <string.h>

#include "report/report.h"

enum conv_status conv_commands_parse_chain(const struct conv_options *options, const char *text,
                                           struct conv_filter *filters, int *count,
                                           struct conv_err *err)
{
    if (!conv_filter_parse_chain(filters, count, text, &options->filter, err))
        return CONV_OK;
    err->status = CONV_ERR_USAGE;
    return CONV_ERR_USAGE;
}

int conv_commands_fail(const struct conv_err *err)
{
    fputs("conv: ", stderr);
    conv_report_print_path(stderr, err->text);
    fputc('\n', stderr);
    if (err->status == CONV_ERR_USAGE)
        return CONV_EXIT_USAGE;
    return err->status == CONV_ERR_DEVICE ? CONV_EXIT_DEVICE : CONV_EXIT_SOME_FAILED;
}

int conv_commands_flush(void)
{
    bool bad = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) != 0 || bad) {
        fprintf(stderr, "conv: cannot write standard output: %s\n", strerror(errno));
        return CONV_EXIT_SOME_FAILED;
    }
    return CONV_EXIT_OK;
}
