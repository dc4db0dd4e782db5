// SPDX-License-Identifier: MIT
#include "cli/shards.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/launcher.h"
#include "cli/option_table.h"
#include "io/walk/walk.h"
#include "report/report.h"

// --- the options ---------------------------------------------------------------------------------

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
                                 options->inputs.shard.index);
    if (used < size)
        used += (size_t)snprintf(space + used, size - used, "%s", from);
    if (used >= size)
        return conv_err_set(err, CONV_ERR_USAGE, "the names with " PLACE " are too long");
    options->shard_names_used += used + 1;
    *name = space;
    return CONV_OK;
}

// Each task would replace the file of the others.
static enum conv_status refuse_shared(const struct conv_input_options *inputs, const char *option,
                                      const char *path, struct conv_err *err)
{
    if (!path || strstr(path, PLACE) || strncmp(path, "/dev/", 5) == 0 ||
        strcmp(inputs->shard_text, "auto") != 0 || inputs->shard.count == 1)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE,
                        "--%s %s would be one file of all %d tasks; put " PLACE
                        " into its name, which stands for the number of the task",
                        option, path, inputs->shard.count);
}

static enum conv_status expand_names(struct conv_options *options, struct conv_err *err)
{
    struct {
        const char *option, **path;
    } files[] = {{"resume", &options->outputs.resume_path},
                 {"report", &options->report.path},
                 {"trace", &options->report.trace_path},
                 {"html", &options->report.html_path}};
    enum conv_status status = CONV_OK;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && !status; i++) {
        status = refuse_shared(&options->inputs, files[i].option, *files[i].path, err);
        if (!status)
            status = expand(options, files[i].path, err);
    }
    const char **output = options->outputs.path ? &options->outputs.path
                          : !options->outputs.in_place && options->operand_count > 2
                              ? &options->operands[options->operand_count - 1]
                              : NULL;
    options->inputs.shard_in_output = output && strstr(*output, PLACE);
    return status || !output ? status : expand(options, output, err);
}

enum conv_status conv_option_check_shard(struct conv_options *options, struct conv_err *err)
{
    if (!options->inputs.shard_text)
        return CONV_OK;
    enum conv_status status = parse_shard(&options->inputs.shard, options->inputs.shard_text, err);
    if (status)
        return status;
    if (options->outputs.in_place) {
        if (conv_options_given(options, "shard-by") &&
            options->inputs.shard.by == CONV_SHARD_BY_BYTES)
            return conv_err_set(err, CONV_ERR_USAGE,
                                "--shard-by bytes and --in-place cannot be combined: sizes change "
                                "while other tasks begin");
        options->inputs.shard.by = CONV_SHARD_BY_NAME;
    }
    return expand_names(options, err);
}

// --- the plan ------------------------------------------------------------------------------------

enum conv_status conv_shards_plan(struct conv_shard_plan **plan,
                                  const struct conv_input_options *inputs,
                                  const struct conv_walk_config *config, const atomic_int *stop,
                                  struct conv_err *err)
{
    bool balanced = inputs->shard.by == CONV_SHARD_BY_BYTES;
    *plan = NULL;
    if (!inputs->shard_text)
        return CONV_OK;
    if (balanced && !conv_walk_is_repeatable(config))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--shard balances the sizes of all images first, but --files-from %s "
                            "can be read only once; use a file, or --shard-by name",
                            inputs->files_from);
    enum conv_status status = conv_shard_plan_open(plan, &inputs->shard, err);
    return status || !balanced ? status : conv_walk_plan_fill(*plan, config, stop, err);
}

// --- archives ------------------------------------------------------------------------------------

// Looks at all inputs but a pipe on standard input, which can be looked into only once.
static enum conv_status find_archives(struct conv_archive_operands *found,
                                      const struct conv_walk_config *config, atomic_int *stop,
                                      struct conv_err *err)
{
    struct conv_operands operands = config->operands;
    bool again = !conv_walk_plan_has_pipe(config);
    const char **inputs = calloc((size_t)operands.input_count + 1, sizeof *inputs);
    *found = (struct conv_archive_operands){.standard.fd = -1};
    if (!inputs)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d inputs", operands.input_count);
    int count = 0;
    for (int i = 0; i < operands.input_count; i++)
        if (again || !conv_paths_is_standard(operands.inputs[i]))
            inputs[count++] = operands.inputs[i];
    operands.inputs = inputs;
    operands.input_count = count;
    enum conv_status status =
        conv_archive_operands_open(found, &config->archives, &operands, stop, err);
    free(inputs);
    return status;
}

enum conv_status conv_shards_divide(bool *whole, const struct conv_options *options,
                                    const struct conv_walk_config *config, atomic_int *stop,
                                    struct conv_err *err)
{
    struct conv_archive_operands found;
    const struct conv_operands *operands = &config->operands;
    *whole = false;
    if (!options->inputs.shard_text || operands->in_place)
        return CONV_OK;
    bool asked = conv_options_given(options, "shard-of");
    enum conv_status status = find_archives(&found, config, stop, err);
    int count = found.count;
    bool is_stream = found.has_stream;
    conv_archive_operands_close(&found);
    if (status)
        return status;
    *whole = asked ? options->inputs.shard_of == CONV_SHARD_OF_ARCHIVES
                   : operands->input_count > 1 || config->archives.several;
    if (asked && count == 0 && operands->input_count == 1 &&
        !conv_paths_is_standard(operands->inputs[0]))
        return conv_err_set(err, CONV_ERR_USAGE, "--shard-of is for archives; %s is not an archive",
                            operands->inputs[0]);
    return is_stream && !*whole ? conv_shards_check(&options->inputs, *whole, err) : CONV_OK;
}

enum conv_status conv_shards_check(const struct conv_input_options *inputs, bool whole,
                                   struct conv_err *err)
{
    if (whole || inputs->shard.by == CONV_SHARD_BY_NAME)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE,
                        "--shard balances the sizes of all members first, but an archive that "
                        "comes through a pipe can be read only once; use --shard-by name");
}

enum conv_status conv_shards_check_targets(const struct conv_input_options *inputs, bool whole,
                                           const char *output,
                                           const struct conv_archive_target *targets, int count,
                                           struct conv_err *err)
{
    if (!inputs->shard_text || count == 0 || conv_paths_is_standard(output))
        return CONV_OK;
    bool each = strcmp(targets[0].path, output) != 0;
    if (strcmp(inputs->shard_text, "auto") != 0 || inputs->shard.count == 1 ||
        inputs->shard_in_output || (each && whole))
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE,
                        "%s would be one archive of all %d tasks; put {shard} into %s, which "
                        "stands for the number of the task",
                        targets[0].path, inputs->shard.count,
                        each ? "the name of the folder" : "its name");
}

// --- the report ----------------------------------------------------------------------------------

struct conv_record_shard conv_shards_record(const struct conv_input_options *inputs)
{
    return (struct conv_record_shard){
        .index = inputs->shard.index,
        .count = inputs->shard.count,
        .by = inputs->shard.by == CONV_SHARD_BY_NAME ? "name" : "bytes",
    };
}

void conv_shards_report(const struct conv_input_options *inputs, const struct conv_shard_plan *plan,
                        const struct conv_walk *walk, struct conv_report *report)
{
    struct conv_walk_count count = conv_walk_count(walk);
    struct conv_record_listing listing = {.images = count.listed};
    struct conv_digest digest = count.names;
    if (plan && inputs->shard.by == CONV_SHARD_BY_BYTES)
        conv_shard_plan_list(plan, &listing.images, &digest); // by which images were distributed
    else if (!plan || !count.is_complete)
        return;
    snprintf(listing.digest, sizeof listing.digest, "%016" PRIx64 "%016" PRIx64, digest.word[0],
             digest.word[1]);
    conv_report_listing(report, &listing);
}

bool conv_shards_is_empty(const struct conv_options *options, const struct conv_walk *walk)
{
    struct conv_walk_count count = conv_walk_count(walk);
    if (!options->inputs.shard_text || count.listed == 0)
        return false;
    if (!options->report.quiet)
        fprintf(stderr, "conv: shard %d/%d has none of the %" PRIu64 " %s%s\n",
                options->inputs.shard.index, options->inputs.shard.count, count.listed,
                count.are_archives ? "input" : "image", count.listed == 1 ? "" : "s");
    return true;
}
