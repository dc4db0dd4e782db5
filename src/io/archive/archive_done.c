// SPDX-License-Identifier: MIT
#include "io/archive/archive_done.h"

#include <stdlib.h>

#include "io/files/journal.h"
#include "io/files/paths.h"
#include "io/sink.h"

// The inputs of target `t`: one input if each has a target of its own, else all of them.
static void find_inputs(const struct conv_archive_operands *archives,
                        const struct conv_operands *operands, int t, int *first, int *end)
{
    *first = archives->each ? t : 0;
    *end = archives->each ? t + 1 : operands->input_count;
}

static enum conv_status refuse_comparison(const char *what, struct conv_err *err)
{
    return conv_err_hint(err, CONV_HINT_EXISTING, 0,
                         conv_err_set(err, CONV_ERR_USAGE,
                                      "an archive is compared with its inputs by their sizes and "
                                      "times; %s is not a file and has none",
                                      what));
}

static enum conv_status check_file(const char *input, const struct stat *info, struct conv_err *err)
{
    bool pipe = conv_operands_is_standard(input);
    if (!pipe && S_ISREG(info->st_mode))
        return CONV_OK;
    return refuse_comparison(pipe ? "standard input" : input, err);
}

// The state of the inputs before they are read, so that the next run notices later changes.
static enum conv_status take_origins(struct conv_archive_target *target,
                                     const struct conv_operands *operands, int first, int end,
                                     struct conv_err *err)
{
    struct stat info = {0};
    target->origins = calloc((size_t)(end - first) + 1, sizeof *target->origins);
    if (!target->origins)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d inputs", end - first);
    for (int i = first; i < end; i++) {
        const char *input = operands->inputs[i];
        if (!conv_operands_is_standard(input) && stat(input, &info) != 0)
            continue; // the run reports it
        enum conv_status status = check_file(input, &info, err);
        if (status)
            return status;
        target->origins[target->origin_count++] = (struct conv_archive_origin){input, info};
    }
    target->misses = target->origin_count < end - first;
    return CONV_OK;
}

static bool is_newer(const struct conv_archive_target *target, const struct stat *out)
{
    for (int i = 0; i < target->origin_count; i++)
        if (conv_paths_is_older(out, &target->origins[i].info))
            return false;
    return !target->misses;
}

static bool is_noted(struct conv_journal *journal, const struct conv_archive_target *target,
                     const struct stat *out)
{
    for (int i = 0; i < target->origin_count; i++) {
        const struct conv_archive_origin *origin = &target->origins[i];
        const struct conv_journal_fact fact = {
            .input = origin->path, .output = target->path, .in = &origin->info, .out = out};
        if (!conv_journal_knows(journal, &fact))
            return false;
    }
    return !target->misses;
}

enum conv_status conv_archive_done_find(struct conv_archive_operands *archives,
                                        const struct conv_operands *operands,
                                        enum conv_archive_done which, struct conv_journal *journal,
                                        struct conv_err *err)
{
    if (which != CONV_ARCHIVE_EXISTS && operands->files_from)
        return refuse_comparison("a list", err);
    for (int t = 0; t < archives->target_count; t++) {
        struct conv_archive_target *target = &archives->targets[t];
        struct stat out;
        int first, end;
        find_inputs(archives, operands, t, &first, &end);
        if (which != CONV_ARCHIVE_EXISTS) {
            enum conv_status status = take_origins(target, operands, first, end, err);
            if (status)
                return status;
        }
        // Only a regular file can be the output of an earlier run.
        if (conv_operands_is_standard(target->path) || stat(target->path, &out) != 0 ||
            !S_ISREG(out.st_mode))
            continue;
        if (which == CONV_ARCHIVE_EXISTS)
            target->done = CONV_SINK_EXISTS;
        else if (which == CONV_ARCHIVE_IS_NEWER && is_newer(target, &out))
            target->done = CONV_SINK_UP_TO_DATE;
        else if (which == CONV_ARCHIVE_IS_NOTED && is_noted(journal, target, &out))
            target->done = CONV_SINK_NOTED;
    }
    return CONV_OK;
}

enum conv_status conv_archive_done_note(struct conv_journal *journal,
                                        const struct conv_archive_target *target,
                                        const struct stat *out, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (int i = 0; i < target->origin_count && !target->misses && !status; i++) {
        const struct conv_archive_origin *origin = &target->origins[i];
        const struct conv_journal_fact fact = {
            .input = origin->path, .output = target->path, .in = &origin->info, .out = out};
        status = conv_journal_add(journal, &fact, err);
    }
    return status;
}
