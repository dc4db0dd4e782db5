// SPDX-License-Identifier: MIT
#include "cli/places.h"

#include <unistd.h>

#include "io/paths.h"

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
    if (places->output && conv_paths_descriptor(places->output) == STDOUT_FILENO)
        places->output = "-"; // another name for it, such as /dev/stdout
}

void conv_places_fill_walk(const struct conv_places *places, const struct conv_options *options,
                           struct conv_walk_config *config)
{
    *config = (struct conv_walk_config){
        .operands =
            {
                .inputs = places->inputs,
                .input_count = places->input_count,
                .output = places->output,
                .to_folder = options->output != NULL,
                .beside = options->beside,
                .suffix = options->suffix,
                .in_place = options->in_place,
                .recursive = options->recursive,
                .files_from = options->files_from,
            },
        .include = options->include.items,
        .include_count = options->include.count,
        .exclude = options->exclude.items,
        .exclude_count = options->exclude.count,
        .no_ignore = options->no_ignore,
        .nul = options->nul,
    };
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
