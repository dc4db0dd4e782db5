// SPDX-License-Identifier: MIT
// --shard and --shard-by, and "{shard}" in names of files.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/launcher.h"
#include "cli/option_table.h"

#define PLACE "{shard}" // in names of files

// Reads digits and moves *text to what follows them.
static bool parse_number(const char **text, long *number)
{
    char *end;
    errno = 0;
    *number = strtol(*text, &end, 10);
    bool good = isdigit((unsigned char)**text) && errno == 0;
    *text = end;
    return good;
}

static enum conv_status parse_shard(struct conv_shard *shard, const char *text,
                                    struct conv_err *err)
{
    const char *at = text;
    long index, count;
    if (strcmp(text, "auto") == 0)
        return conv_launcher_find_rank(&shard->index, &shard->count, err);
    if (!parse_number(&at, &index) || *at++ != '/' || !parse_number(&at, &count) || *at)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--shard takes I/N, such as 0/4 for the first of four shards, or auto, "
                            "not '%s'%s",
                            text, text[0] == '/' ? " (a variable before the slash was empty)" : "");
    if (count < 1 || count > CONV_SHARD_MOST)
        return conv_err_set(err, CONV_ERR_USAGE, "--shard %s: there are 1 to %d shards", text,
                            CONV_SHARD_MOST);
    if (index >= count)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--shard %s: shards are numbered from 0, so these are 0/%ld to %ld/%ld "
                            "(a Slurm array: --array=0-%ld)",
                            text, count, count - 1, count, count - 1);
    shard->index = (int)index;
    shard->count = (int)count;
    return CONV_OK;
}

// Replaces each place in *name; the result is stored in the options.
static enum conv_status expand(struct conv_options *options, const char **name,
                               struct conv_err *err)
{
    const char *from = *name, *place;
    if (!from || !strstr(from, PLACE))
        return CONV_OK;
    char *space = options->shard_names + options->shard_names_used;
    size_t size = sizeof options->shard_names - options->shard_names_used, used = 0;
    for (; used < size && (place = strstr(from, PLACE)); from = place + strlen(PLACE))
        used += (size_t)snprintf(space + used, size - used, "%.*s%d", (int)(place - from), from,
                                 options->shard.index);
    if (used < size)
        used += (size_t)snprintf(space + used, size - used, "%s", from);
    if (used >= size)
        return conv_err_set(err, CONV_ERR_USAGE, "the names with " PLACE " are too long");
    options->shard_names_used += used + 1;
    *name = space;
    return CONV_OK;
}

// Each task would replace the file of the others.
static enum conv_status refuse_shared(const struct conv_options *options, const char *option,
                                      const char *path, struct conv_err *err)
{
    if (!path || strstr(path, PLACE) || strncmp(path, "/dev/", 5) == 0 ||
        strcmp(options->shard_text, "auto") != 0 || options->shard.count == 1)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE,
                        "--%s %s would be one file of all %d tasks; put " PLACE
                        " into its name, which stands for the number of the task",
                        option, path, options->shard.count);
}

static enum conv_status expand_names(struct conv_options *options, struct conv_err *err)
{
    struct {
        const char *option, **path;
    } files[] = {{"resume", &options->resume_path},
                 {"report", &options->report_path},
                 {"trace", &options->trace_path},
                 {"html", &options->html_path}};
    enum conv_status status = CONV_OK;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && !status; i++) {
        status = refuse_shared(options, files[i].option, *files[i].path, err);
        if (!status)
            status = expand(options, files[i].path, err);
    }
    const char **output = options->output ? &options->output
                          : !options->in_place && options->operand_count > 2
                              ? &options->operands[options->operand_count - 1]
                              : NULL;
    options->shard_in_output = output && strstr(*output, PLACE);
    return status || !output ? status : expand(options, output, err);
}

enum conv_status conv_option_check_shard(struct conv_options *options, struct conv_err *err)
{
    if (!options->shard_text)
        return CONV_OK;
    enum conv_status status = parse_shard(&options->shard, options->shard_text, err);
    if (status)
        return status;
    if (options->in_place) {
        if (conv_options_given(options, "shard-by") && options->shard.by == CONV_SHARD_BY_BYTES)
            return conv_err_set(err, CONV_ERR_USAGE,
                                "--shard-by bytes and --in-place cannot be combined: sizes change "
                                "while other tasks begin");
        options->shard.by = CONV_SHARD_BY_NAME;
    }
    return expand_names(options, err);
}
