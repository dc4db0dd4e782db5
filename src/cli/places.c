// SPDX-License-Identifier: MIT
#include "cli/places.h"

#include <unistd.h>

#include "base/standard.h"
#include "io/files/paths.h"
#include "io/walk/operands.h"

static struct conv_paths_id identify(const char *path)
{
    struct stat info;
    bool is_file = lstat(path, &info) == 0 && S_ISREG(info.st_mode);
    return is_file ? (struct conv_paths_id){info.st_dev, info.st_ino} : (struct conv_paths_id){0};
}

void conv_places_split(struct conv_places *places, const struct conv_options *options)
{
    bool last = !options->in_place && !options->beside && !options->output;
    int count = options->operand_count - 1;
    *places = (struct conv_places){
        .inputs = options->operands + 1,
        .input_count = count - last,
        .output = options->output,
        .last_is_output = last,
    };
    if (last && count > 0)
        places->output = options->operands[count];
    if (places->output && last)
        places->existing = identify(places->output);
    if (places->output && conv_paths_descriptor(places->output) == STDOUT_FILENO)
        places->output = "-"; // another name for it, such as /dev/stdout
}

bool conv_places_was_replaced(const struct conv_places *places)
{
    struct conv_paths_id now = {0};
    if (places->existing.inode)
        now = identify(places->output);
    return now.inode &&
           (now.inode != places->existing.inode || now.device != places->existing.device);
}

static struct conv_walk_config select_inputs(const struct conv_options *options,
                                             const char *const *inputs, int input_count)
{
    return (struct conv_walk_config){
        .operands = {.inputs = inputs, .input_count = input_count, .recursive = options->recursive},
        .include = options->include.items,
        .include_count = options->include.count,
        .exclude = options->exclude.items,
        .exclude_count = options->exclude.count,
        .no_ignore = options->no_ignore,
    };
}

void conv_places_fill_reading_walk(const struct conv_options *options, const char *const *inputs,
                                   int input_count, struct conv_walk_config *config)
{
    *config = select_inputs(options, inputs, input_count);
    config->archives = (struct conv_archive_settings){.enabled = true, .images_only = true};
}

void conv_places_fill_walk(const struct conv_places *places, const struct conv_options *options,
                           struct conv_walk_config *config)
{
    *config = select_inputs(options, places->inputs, places->input_count);
    config->operands.output = places->output;
    config->operands.to_folder = options->output != NULL;
    config->operands.beside = options->beside;
    config->operands.suffix = options->suffix;
    config->operands.in_place = options->in_place;
    config->operands.files_from = options->files_from;
    config->nul = options->nul;
}

enum conv_status conv_places_check(const struct conv_options *options,
                                   const struct conv_operands_shape *shape, struct conv_err *err)
{
    bool folder = shape->sink == CONV_SINK_FOLDER || shape->sink == CONV_SINK_NONE;
    if (!options->suffix || folder)
        return CONV_OK;
    return conv_err_set(err, CONV_ERR_USAGE,
                        "--suffix is for results in a folder or with --beside; the output has a "
                        "name already");
}

enum conv_status conv_places_check_standard(const struct conv_options *options, const char *output,
                                            const char *what, struct conv_err *err)
{
    bool writes = !options->dry_run && !options->no_save;
    if (!output || !conv_paths_is_standard(output))
        return CONV_OK;
    if (options->json)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--json and the %s cannot both go to standard output; use --report",
                            what);
    if (writes && isatty(STDOUT_FILENO))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the %s is not written to a terminal; redirect standard output, or "
                            "name an output file",
                            what);
    if (writes && !options->quiet && conv_standard_is_shared())
        return conv_err_set(err, CONV_ERR_USAGE,
                            "standard output and standard error are the same file: messages would "
                            "get into the %s; separate them, or use --quiet",
                            what);
    return CONV_OK;
}
