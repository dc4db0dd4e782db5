// SPDX-License-Identifier: MIT
// Which files a sink of files may replace, and how it decides between the two ways of writing one.
#include "io/files/file_sink.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/digest.h"
#include "io/files/journal.h"

static const struct conv_file_sink *file_sink(const struct conv_sink *sink)
{
    return (const struct conv_file_sink *)sink;
}

static enum conv_status place(const struct conv_sink *sink, const struct conv_item *item,
                              struct conv_output *output, struct conv_err *err)
{
    const struct conv_sink_config *config = &file_sink(sink)->config;
    bool is_folder = config->kind == CONV_SINK_FOLDER;
    const char *name = config->kind == CONV_SINK_STANDARD   ? "-"
                       : config->kind == CONV_SINK_IN_PLACE ? item->name
                       : is_folder                          ? conv_item_target(item)
                                                            : config->path;
    bool fits = conv_paths_join(output->path, is_folder ? config->path : "", name);
    return fits ? CONV_OK : conv_err_limit(err, "path too long");
}

#define MOST_NUMBER 9

// A result and a copy of one name, or two results: neither is lost. "a.2.png"; false if all numbers
// are taken.
static bool claim_number(struct conv_file_sink *sink, struct conv_item *item)
{
    for (int number = 2; number <= MOST_NUMBER; number++) {
        struct conv_item other = *item;
        struct conv_err refused;
        char suffix[8];
        snprintf(suffix, sizeof suffix, ".%d", number);
        other.is_numbered = true;
        if (conv_item_set_target(&other, suffix, false, &refused))
            return false;
        const struct conv_output_claim place = {.name = conv_item_target(&other),
                                                .original = item->name};
        if (conv_output_names_claim(&sink->names, &place, NULL, &refused))
            continue;
        *item = other;
        return true;
    }
    return false;
}

// Outputs next to their inputs have whole paths as names, which are absolute or relative.
static enum conv_status claim(struct conv_sink *base, struct conv_item *item,
                              enum conv_sink_claim *, struct conv_err *err)
{
    struct conv_file_sink *sink = (struct conv_file_sink *)base;
    const struct conv_sink_config *config = &sink->config;
    const struct conv_output_claim place = {
        .archive = !config->path[0] && conv_item_target(item)[0] == '/',
        .name = conv_item_target(item),
        .original = !item->body       ? NULL
                    : item->is_result ? item->name
                                      : conv_item_target(item),
        .owner = config->returns ? item->name : NULL,
    };
    if (config->kind != CONV_SINK_FOLDER || !config->may_coincide)
        return CONV_OK;
    enum conv_status status = conv_output_names_claim(&sink->names, &place, NULL, err);
    if (status == CONV_ERR_USAGE && item->body &&
        (item->is_result ||
         conv_output_names_has(&sink->names, 0, place.name, CONV_OUTPUT_RESULT)) &&
        claim_number(sink, item))
        return CONV_OK;
    if (!item->watched || (status && status != CONV_ERR_USAGE))
        return status;
    if (!conv_watched_has_rival(item->watched, place.name, status != CONV_OK))
        return CONV_OK;
    return conv_err_usage(err, "another image has the same output, %s", place.name);
}

static bool should_look(const struct conv_sink *sink)
{
    const struct conv_file_sink *files = file_sink(sink);
    return atomic_load(&files->new_in_a_row) < CONV_FILE_SINK_EXPECT_NEW ||
           atomic_load(&files->lacks_nameless);
}

static void look(const struct conv_sink *sink, const struct conv_output *output,
                 struct conv_existing *existing)
{
    bool is_named = file_sink(sink)->config.kind == CONV_SINK_FILE;
    const struct stat *info = &existing->info;
    existing->exists = stat(output->path, &existing->info) == 0;
    existing->is_special = existing->exists && is_named && !S_ISDIR(info->st_mode) &&
                           (!S_ISREG(info->st_mode) || conv_paths_descriptor(output->path) >= 0);
}

static bool is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

static enum conv_status check(const struct conv_sink *sink, const struct conv_item *item,
                              const struct stat *input, const struct conv_output *output,
                              const struct conv_existing *existing, struct conv_err *err)
{
    const struct conv_sink_config *config = &file_sink(sink)->config;
    const struct stat *out = &existing->info;
    bool same = item->ops->identify && out->st_dev == input->st_dev && out->st_ino == input->st_ino;
    if (same && S_ISREG(out->st_mode) && config->kind != CONV_SINK_IN_PLACE)
        return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_REPLACE_INSTEAD,
                               "the output would overwrite the input");
    for (int i = 0; i < config->own_file_count; i++)
        if (out->st_dev == config->own_files[i].device && out->st_ino == config->own_files[i].inode)
            return conv_err_usage(err,
                                  "the output would overwrite the run's own journal or report");
    if (S_ISDIR(out->st_mode))
        return conv_err_set(err, CONV_ERR_IO, "the output %s is a folder", output->path);
    if (!S_ISREG(out->st_mode) && !existing->is_special && !is_link(output->path))
        return conv_err_set(err, CONV_ERR_IO,
                            "the output %s is a pipe, socket or device; only one that is named on "
                            "the command line is written to",
                            output->path);
    return S_ISREG(out->st_mode) && !existing->is_special && !is_link(output->path)
               ? conv_access_check(output->path, out, config->kind == CONV_SINK_IN_PLACE,
                                   config->force, err)
               : CONV_OK;
}

static bool is_noted(const struct conv_sink *sink, const struct conv_item *item,
                     const struct stat *input, const struct conv_output *output,
                     const struct conv_existing *existing)
{
    const struct conv_sink_config *config = &file_sink(sink)->config;
    if (!config->journal)
        return false;
    const struct conv_journal_fact fact = {
        .input = item->name,
        .output = output->path,
        .in = input,
        .out = &existing->info,
        .archive = conv_item_archive(item),
        .member = conv_item_streamed(item),
        .folder = AT_FDCWD,
        .name = output->path,
        .is_copy = item->is_copy,
    };
    return conv_journal_knows(config->journal, &fact);
}

// Removes temporary files that killed runs have left in the folder of `path`, once per folder and
// run.
static void sweep_folder(struct conv_file_sink *sink, const char *path)
{
    char folder[PATH_MAX];
    struct conv_digest digest = {0};
    conv_hash_add(&digest, path, (size_t)(conv_paths_base(path) - path));
    uint64_t hash = digest.word[0];
    unsigned char bit = (unsigned char)(1 << hash % 8);
    if ((atomic_fetch_or(&sink->swept[hash / 8 % sizeof sink->swept], bit) & bit) == 0)
        conv_temporary_sweep(conv_paths_folder(folder, path));
}

// `looked`: *existing describes what has the output's name; otherwise the name is expected to be
// free.
static enum conv_status write_file(struct conv_file_write *write, bool looked,
                                   const struct conv_output *output, struct conv_existing *existing,
                                   struct conv_err *err)
{
    struct conv_file_sink *sink = write->sink;
    const struct conv_sink_config *config = &sink->config;
    enum conv_status status = CONV_OK;
    bool linked = false;
    // Parts that are made meanwhile are written once, so the way that may fail at its end is not
    // tried.
    if (!existing->exists && config->kind != CONV_SINK_IN_PLACE && !write->encoded->next &&
        !atomic_load(&sink->lacks_nameless))
        status = conv_file_write_new(write, &linked, err);
    if (!linked)
        atomic_store(&sink->new_in_a_row, 0);
    else if (atomic_load(&sink->new_in_a_row) < CONV_FILE_SINK_EXPECT_NEW)
        atomic_fetch_add(&sink->new_in_a_row, 1);
    if (!status && !linked && !looked) {
        look(&sink->sink, output, existing);
        status = conv_sink_check(&sink->sink, write->item, write->input, output, existing, err);
    }
    if (!status && existing->is_special)
        return conv_special_write(output->path, write->encoded, config->stop, err);
    if (!status && !linked)
        status = conv_file_write_renamed(write, err);
    return !status && config->fsync ? conv_file_sync_folder(write, err) : status;
}

// Descriptors for the folder and the file in it. If descriptors are few, one is enough, except for
// sweeping.
#define DESCRIPTORS 2

static enum conv_status write_in_folder(struct conv_file_write *write, bool looked, bool few,
                                        const struct conv_output *output,
                                        struct conv_existing *existing, struct conv_err *err)
{
    write->folder = conv_file_open_folder(write->sink, output->path, err);
    if (write->folder < 0)
        return err->status;
    if (few) {
        close(write->folder);
        write->folder = AT_FDCWD;
    }
    enum conv_status status = write_file(write, looked, output, existing, err);
    if (write->folder >= 0)
        close(write->folder);
    return status;
}

static enum conv_status write_output(struct conv_sink *base, int worker,
                                     const struct conv_item *item, const struct stat *input,
                                     const struct conv_output *output,
                                     const struct conv_encoded *file, enum conv_sink_result *result,
                                     struct conv_err *err)
{
    struct conv_file_sink *sink = (struct conv_file_sink *)base;
    struct conv_existing existing = {0};
    enum conv_status status = CONV_OK;
    bool looks = should_look(base), few = conv_descriptors_are_few(), linked = false;
    *result = CONV_SINK_WRITTEN;
    if (sink->config.kind == CONV_SINK_STANDARD)
        return conv_special_write(output->path, file, sink->config.stop, err);
    assert(worker >= 0 && worker < sink->config.workers);
    if (looks) {
        look(base, output, &existing);
        status = conv_sink_check(base, item, input, output, &existing, err);
    }
    if (status)
        return status;
    if (existing.is_special)
        return conv_special_write(output->path, file, sink->config.stop, err);
    conv_descriptors_take(DESCRIPTORS);
    sweep_folder(sink, output->path);
    struct conv_file_write write = {
        .sink = sink,
        .temporary = &sink->temporaries[worker],
        .item = item,
        .input = input,
        .path = output->path,
        .encoded = file,
        .folder = AT_FDCWD,
    };
    // Opening the folder and closing it take 1 us, as much as 1 % of the time for an icon.
    if (!looks && sink->config.kind == CONV_SINK_FOLDER && !sink->config.fsync && !file->next)
        status = conv_file_write_new(&write, &linked, err);
    if (!status && !linked)
        status = write_in_folder(&write, looks, few, output, &existing, err);
    *result = write.list_lost && !write.result ? CONV_SINK_WITHOUT_LIST : write.result;
    if (existing.exists && sink->config.kind != CONV_SINK_IN_PLACE)
        *result |= CONV_SINK_OVER_FILE;
    conv_descriptors_give(DESCRIPTORS);
    return status;
}

static enum conv_status finish(struct conv_sink *base, struct conv_err *)
{
    struct conv_file_sink *sink = (struct conv_file_sink *)base;
    conv_output_names_close(&sink->names);
    free(sink->temporaries);
    free(sink);
    return CONV_OK;
}

static void remove_temporaries(struct conv_sink *base)
{
    struct conv_file_sink *sink = (struct conv_file_sink *)base;
    atomic_store(&sink->is_abandoned, true);
    // Twice: a worker that was about to create its file when the flag was set has created it by the
    // second pass.
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < sink->config.workers; i++)
            conv_temporary_remove(&sink->temporaries[i]);
        if (pass == 0)
            poll(NULL, 0, 2);
    }
}

enum conv_status conv_file_sink_open(struct conv_sink **out, const struct conv_sink_config *config,
                                     struct conv_err *err)
{
    static const struct conv_sink_ops ops = {
        .makes_files = true,
        .claim = claim,
        .place = place,
        .should_look = should_look,
        .look = look,
        .check = check,
        .is_noted = is_noted,
        .write = write_output,
        .finish = finish,
        .remove_temporaries = remove_temporaries,
    };
    // There nothing can be looked up, checked or undone.
    static const struct conv_sink_ops standard = {
        .place = place,
        .write = write_output,
        .finish = finish,
    };
    struct conv_file_sink *sink = calloc(1, sizeof *sink);
    struct conv_temporary *temporaries =
        sink ? calloc((size_t)config->workers, sizeof *temporaries) : NULL;
    if (!temporaries) {
        free(sink);
        return conv_err_workers(err, config->workers);
    }
    sink->sink.ops = config->kind == CONV_SINK_STANDARD ? &standard : &ops;
    sink->config = *config;
    sink->temporaries = temporaries;
    conv_output_names_open(&sink->names);
    conv_write_behind_start(&sink->behind, config->workers);
    *out = &sink->sink;
    return CONV_OK;
}
