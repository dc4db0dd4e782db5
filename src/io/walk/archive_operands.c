// SPDX-License-Identifier: MIT
#include "io/walk/operands.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/files/formats.h"
#include "io/files/journal.h"
#include "io/files/paths.h"

// --- inputs --------------------------------------------------------------------------------------

static const struct conv_archive_format *recognise(struct conv_archive_input *input,
                                                   enum conv_status *status, struct conv_err *err)
{
    const uint8_t *head;
    ssize_t got = conv_archive_input_peek(input, &head, 4, err);
    // The first bytes of an image are enough: its writer may take its time with the rest.
    if (got >= 4 && conv_format_of_bytes(head, 4))
        return NULL;
    if (got >= 0)
        got = conv_archive_input_peek(input, &head, CONV_ARCHIVE_HEAD, err);
    *status = got < 0 ? err->status : CONV_OK;
    return got > 0 ? conv_archive_of_bytes(head, (size_t)got) : NULL;
}

// True if standard input, which is open, has several images one after the other, and the outputs
// of all of them have a place. What is not mapped stays open for whoever reads it.
static bool has_images(struct conv_archive_operands *archives, const struct conv_operands *operands,
                       atomic_int *stop)
{
    struct conv_err ignored;
    const uint8_t *head;
    const char *output = operands->output;
    bool is_file = output && !conv_paths_is_standard(output) && !conv_archive_of_path(output) &&
                   !conv_paths_is_folder(output) && output[conv_item_extension_at(output)] &&
                   output[strlen(output) - 1] != '/';
    if (archives->settings.first_frame || operands->input_count > 1 || is_file)
        return false;
    ssize_t got = conv_archive_input_peek(&archives->standard, &head, 4, &ignored);
    if (got < 4 || (!conv_format_of_bytes(head, 4) && memcmp(head, "RIFF", 4) != 0))
        return false;
    if (archives->standard.map) {
        conv_archive_input_close(&archives->standard);
        if (conv_archive_input_open(&archives->standard, "-", false, stop, &ignored))
            return false;
    }
    archives->standard.most = archives->settings.most_ahead;
    archives->standard.max_pixels = archives->settings.max_pixels;
    return conv_archive_images_follow(&archives->standard);
}

static enum conv_status look_at_standard(struct conv_archive_operands *archives, int i,
                                         const struct conv_operands *operands, atomic_int *stop,
                                         struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    const struct conv_archive_format *forced = archives->settings.format;
    struct conv_err ignored;
    // Errors are reported when it is read.
    if (conv_archive_input_open(&archives->standard, "-", true, stop, &ignored))
        return CONV_OK;
    archives->inputs[i] = forced ? forced : recognise(&archives->standard, &status, err);
    if (!archives->inputs[i] && !status && has_images(archives, operands, stop))
        archives->inputs[i] = &conv_archive_images;
    archives->has_stream |= !archives->standard.map && archives->inputs[i];
    if (archives->standard.map) // nothing was taken from it
        conv_archive_input_close(&archives->standard);
    return status == CONV_ERR_CANCELLED ? CONV_OK : status; // the run notices the stop itself
}

static void look_at_file(struct conv_archive_operands *archives, int i, const char *path)
{
    struct stat info;
    struct conv_archive_input input = {.fd = -1};
    struct conv_err err;
    enum conv_status status;
    bool exists = stat(path, &info) == 0;
    const struct conv_archive_format *named = conv_archive_of_path(path), *found = NULL;
    if (exists && !S_ISREG(info.st_mode)) {
        archives->inputs[i] = archives->settings.format ? archives->settings.format : named;
        archives->has_stream |= archives->inputs[i] != NULL;
        return;
    }
    if (exists && (named || !conv_formats_of_name(conv_paths_base(path))) &&
        !conv_archive_input_open(&input, path, false, NULL, &err))
        found = recognise(&input, &status, &err);
    conv_archive_input_close(&input);
    archives->inputs[i] = found ? found : named;
}

enum conv_status conv_archive_operands_open(struct conv_archive_operands *archives,
                                            const struct conv_archive_settings *settings,
                                            const struct conv_operands *operands, atomic_int *stop,
                                            struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    *archives = (struct conv_archive_operands){.settings = *settings, .standard.fd = -1};
    archives->inputs = calloc((size_t)operands->input_count + 1, sizeof(void *));
    if (!archives->inputs)
        return conv_err_memory(err, "no memory for %d inputs", operands->input_count);
    if (operands->files_from) // its operand is a folder
        return CONV_OK;
    for (int i = 0; i < operands->input_count && !status; i++) {
        const char *path = operands->inputs[i];
        if (conv_paths_is_standard(path) && operands->in_place)
            break; // it will be refused
        if (conv_paths_is_standard(path))
            status = look_at_standard(archives, i, operands, stop, err);
        else if (!conv_paths_is_folder(path))
            look_at_file(archives, i, path);
        archives->count += archives->inputs[i] != NULL;
    }
    return status;
}

void conv_archive_operands_close(struct conv_archive_operands *archives)
{
    for (int i = 0; i < archives->target_count; i++) {
        free(archives->targets[i].path);
        free(archives->targets[i].origins);
    }
    free(archives->targets);
    free(archives->inputs);
    if (archives->standard.buffer)
        conv_archive_input_close(&archives->standard);
    *archives = (struct conv_archive_operands){.standard.fd = -1};
}

// --- outputs -------------------------------------------------------------------------------------

static bool can_write(const struct conv_archive_format *format)
{
    return format->frame || format->write;
}

// No output may replace an input, which would be gone before it was read.
static enum conv_status check_apart(const char *path, const struct conv_operands *operands,
                                    struct conv_err *err)
{
    struct stat out, in;
    if (conv_paths_is_standard(path) ? fstat(STDOUT_FILENO, &out) : stat(path, &out))
        return CONV_OK;
    for (int i = 0; i < operands->input_count && S_ISREG(out.st_mode); i++) {
        const char *input = operands->inputs[i];
        if ((conv_paths_is_standard(input) ? fstat(STDIN_FILENO, &in) : stat(input, &in)) == 0 &&
            in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return conv_err_usage(err, "input and output are the same file: %s", input);
    }
    return CONV_OK;
}

static enum conv_status add_target(struct conv_archive_operands *archives, const char *folder,
                                   const char *name, const struct conv_archive_format *format,
                                   const struct conv_operands *operands, struct conv_err *err)
{
    char path[PATH_MAX];
    if (!conv_paths_join(path, folder, name))
        return conv_err_limit(err, "path too long");
    if (!can_write(format))
        return conv_err_usage(
            err, "of archives only tar, tar.gz, tar.zst and zip can be written: %s", path);
    struct conv_archive_target *target = &archives->targets[archives->target_count];
    target->path = strdup(path);
    if (!target->path)
        return conv_err_memory(err, "no memory for the name of an archive");
    target->format = format;
    atomic_init(&target->is_due, false);
    archives->target_count++;
    return check_apart(path, operands, err);
}

static enum conv_status add_each(struct conv_archive_operands *archives,
                                 const struct conv_operands *operands, struct conv_err *err)
{
    const char *output = operands->output;
    enum conv_status status = CONV_OK;
    if (archives->count < operands->input_count)
        return conv_err_usage(err,
                              "several archives become archives in the folder %s, but not all "
                              "inputs are archives; name one archive as the output",
                              output);
    if (conv_paths_exists(output) && !conv_paths_is_folder(output))
        return conv_err_usage(err, "the output %s is a file, not a folder", output);
    for (int i = 0; i < operands->input_count && !status; i++) {
        const char *name = conv_paths_base(operands->inputs[i]);
        const struct conv_archive_format *format = conv_archive_of_path(name);
        if (conv_paths_is_standard(name))
            return conv_err_usage(err, "standard input has no name for an archive in the folder %s",
                                  output);
        status = add_target(archives, output, name, format ? format : archives->inputs[i], operands,
                            err);
    }
    return status;
}

// An output is an archive as well if its extension (.cbz, .epub) is that of an input archive.
static const struct conv_archive_format *format_of_inputs(const struct conv_archive_operands *from,
                                                          const struct conv_operands *operands)
{
    const char *extension = operands->output + conv_item_extension_at(operands->output);
    for (int i = 0; i < operands->input_count && *extension; i++) {
        const char *input = operands->inputs[i];
        if (from->inputs[i] && strcmp(input + conv_item_extension_at(input), extension) == 0)
            return from->inputs[i];
    }
    return NULL;
}

// The format of a single output; NULL if it is not an archive.
static const struct conv_archive_format *find_format(const struct conv_archive_operands *archives,
                                                     const struct conv_operands *operands)
{
    const char *output = operands->output;
    struct stat info;
    bool standard = conv_paths_is_standard(output);
    const struct conv_archive_format *format = archives->settings.format;
    if (operands->to_folder)
        return NULL;
    if (!standard && (output[strlen(output) - 1] == '/' || conv_paths_is_folder(output)))
        return NULL;
    const struct conv_archive_format *named = standard ? NULL : conv_archive_of_path(output);
    if (!named && !standard)
        named = format_of_inputs(archives, operands);
    if (!named && !standard)
        named = conv_archive_of_output(output);
    if (named)
        return named;
    bool special = standard || conv_paths_descriptor(output) >= 0 ||
                   (stat(output, &info) == 0 && !S_ISREG(info.st_mode));
    if (!special || (archives->count == 0 && !format))
        return NULL;
    for (int i = 0; i < operands->input_count && !format; i++)
        if (archives->inputs[i] && can_write(archives->inputs[i]))
            format = archives->inputs[i];
    return format ? format : &conv_archive_tar;
}

enum conv_status conv_archive_operands_target(struct conv_archive_operands *archives,
                                              const struct conv_operands *operands,
                                              struct conv_operands_shape *shape,
                                              struct conv_err *err)
{
    const struct conv_archive_settings *settings = &archives->settings;
    archives->targets = calloc((size_t)operands->input_count + 1, sizeof *archives->targets);
    if (!archives->targets)
        return conv_err_memory(err, "no memory for %d archives", operands->input_count);
    const struct conv_archive_format *format = find_format(archives, operands);
    bool several = archives->count > 1 || settings->several || settings->format;
    bool each = !format && several && archives->count > 0 && !settings->as_files;
    archives->each = each;
    if (format || each)
        shape->sink = CONV_SINK_ARCHIVE;
    return each     ? add_each(archives, operands, err)
           : format ? add_target(archives, "", operands->output, format, operands, err)
                    : CONV_OK;
}

// --- outputs that are done -----------------------------------------------------------------------

// The inputs of target `t`: one input if each has a target of its own, else all of them.
static void find_inputs(const struct conv_archive_operands *archives,
                        const struct conv_operands *operands, int t, int *first, int *end)
{
    *first = archives->each ? t : 0;
    *end = archives->each ? t + 1 : operands->input_count;
}

static enum conv_status refuse_comparison(const char *what, struct conv_err *err)
{
    return conv_err_advise(err, CONV_ERR_USAGE, CONV_HINT_EXISTING,
                           "an archive is compared with its inputs by their sizes and times; %s is "
                           "not a file and has none",
                           what);
}

static enum conv_status check_file(const char *input, const struct stat *info, struct conv_err *err)
{
    bool pipe = conv_paths_is_standard(input);
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
        return conv_err_memory(err, "no memory for %d inputs", end - first);
    for (int i = first; i < end; i++) {
        const char *input = operands->inputs[i];
        if (!conv_paths_is_standard(input) && stat(input, &info) != 0)
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
        if (conv_paths_is_standard(target->path) || stat(target->path, &out) != 0 ||
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
