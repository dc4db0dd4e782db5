// SPDX-License-Identifier: MIT
// On standard output nothing can be looked up, checked or undone.
#include "io/files/standard_sink.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/standard.h"
#include "io/files/special.h"

struct standard_sink {
    struct conv_sink sink;
    const atomic_int *stop;
};

static enum conv_status place(const struct conv_sink *sink, const struct conv_item *item,
                              struct conv_output *output, struct conv_err *err)
{
    (void)sink;
    (void)item;
    (void)err;
    strcpy(output->path, "-");
    return CONV_OK;
}

static enum conv_status write_output(struct conv_sink *sink, int worker,
                                     const struct conv_item *item, const struct stat *input,
                                     const struct conv_output *output,
                                     const struct conv_encoded *file, enum conv_sink_result *result,
                                     struct conv_err *err)
{
    (void)worker;
    (void)item;
    (void)input;
    (void)output;
    *result = CONV_SINK_WRITTEN;
    if (conv_standard_is_closed(STDOUT_FILENO))
        return conv_err_set(err, CONV_ERR_IO, "cannot write to standard output: it is closed");
    const struct standard_sink *standard = (const struct standard_sink *)sink;
    return conv_special_write_to(STDOUT_FILENO, "standard output", file, standard->stop, err);
}

static enum conv_status finish(struct conv_sink *sink, struct conv_err *err)
{
    (void)err;
    free(sink);
    return CONV_OK;
}

enum conv_status conv_standard_sink_open(struct conv_sink **out,
                                         const struct conv_sink_config *config,
                                         struct conv_err *err)
{
    static const struct conv_sink_ops ops = {
        .place = place,
        .write = write_output,
        .finish = finish,
    };
    struct standard_sink *sink = calloc(1, sizeof *sink);
    if (!sink)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the output");
    sink->sink.ops = &ops;
    sink->stop = config->stop;
    *out = &sink->sink;
    return CONV_OK;
}
