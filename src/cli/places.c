// SPDX-License-Identifier: MIT
// The operands of a command line: which are inputs, also as ranges of names, and where outputs go.
#include "cli/run_inputs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
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
    bool last = !options->outputs.in_place && !options->outputs.beside && !options->outputs.path;
    int count = options->operand_count - 1;
    *places = (struct conv_places){
        .inputs = options->operands + 1,
        .input_count = count - last,
        .output = options->outputs.path,
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
    const struct conv_paths_id *old = &places->existing;
    struct conv_paths_id now = old->inode ? identify(places->output) : *old;
    return now.inode && (now.inode != old->inode || now.device != old->device);
}

static struct conv_walk_config select_inputs(const struct conv_input_options *selected,
                                             const char *const *inputs, int input_count)
{
    return (struct conv_walk_config){
        .operands = {.inputs = inputs,
                     .input_count = input_count,
                     .recursive = selected->recursive},
        .rules = {.include = selected->include.items,
                  .include_count = selected->include.count,
                  .exclude = selected->exclude.items,
                  .exclude_count = selected->exclude.count,
                  .no_ignore = selected->no_ignore,
                  .others = selected->others},
    };
}

void conv_places_fill_reading_walk(const struct conv_input_options *selected,
                                   const char *const *inputs, int input_count,
                                   struct conv_walk_config *config)
{
    *config = select_inputs(selected, inputs, input_count);
    config->archives = (struct conv_archive_settings){.enabled = true, .images_only = true};
}

void conv_places_fill_walk(const struct conv_places *places, const struct conv_options *options,
                           struct conv_walk_config *config)
{
    *config = select_inputs(&options->inputs, places->inputs, places->input_count);
    config->operands.output = places->output;
    config->operands.to_folder = options->outputs.path != NULL;
    config->operands.beside = options->outputs.beside;
    config->operands.suffix = options->outputs.suffix;
    config->operands.in_place = options->outputs.in_place;
    config->operands.files_from = options->inputs.files_from;
    config->operands.base = options->inputs.base;
    config->nul = options->inputs.nul;
}

enum conv_status conv_places_check_standard(const struct conv_options *options, const char *output,
                                            const char *what, struct conv_err *err)
{
    bool writes = !options->outputs.dry_run && !options->outputs.no_save;
    if (!output || !conv_paths_is_standard(output))
        return CONV_OK;
    if (options->report.json)
        return conv_err_usage(
            err, "--json and the %s cannot both go to standard output; use --report", what);
    if (writes && isatty(STDOUT_FILENO))
        return conv_err_usage(
            err,
            "the %s is not written to a terminal; redirect standard output, or name an output file",
            what);
    if (writes && !options->report.quiet && conv_standard_is_shared())
        return conv_err_usage(err,
                              "standard output and standard error are the same file: messages "
                              "would get into the %s; separate them, or use --quiet",
                              what);
    return CONV_OK;
}

// --- ranges --------------------------------------------------------------------------------------

#define MOST_INPUTS 1000000

// "{first..last}" in a name.
struct range {
    const char *begin, *end; // the braces, and what follows them
    long first, last;
    int digits; // with leading zeros; 0: as many as needed
};

// A number of at most 9 digits. Returns what follows it; NULL if there is none.
static const char *parse_number(const char *text, long *number)
{
    char *end;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9)
        return NULL;
    *number = strtol(text, &end, 10);
    return end;
}

static bool find_range(struct range *range, const char *name)
{
    for (const char *at = strchr(name, '{'); at; at = strchr(at + 1, '{')) {
        const char *first = at + 1, *dots = parse_number(first, &range->first);
        if (!dots || strncmp(dots, "..", 2) != 0)
            continue;
        const char *last = dots + 2, *end = parse_number(last, &range->last);
        if (!end || *end != '}')
            continue;
        long longest = dots - first > end - last ? dots - first : end - last;
        bool padded = (first[0] == '0' && dots - first > 1) || (last[0] == '0' && end - last > 1);
        range->begin = at;
        range->end = end + 1;
        range->digits = padded ? (int)longest : 0;
        return true;
    }
    return false;
}

// Takes over `name`; NULL: there was no memory for it.
static enum conv_status add(struct conv_operand_ranges *ranges, char *name, struct conv_err *err)
{
    char **names = conv_array_grow(ranges->names, (size_t)ranges->count, sizeof *names);
    ranges->names = names ? names : ranges->names;
    if (name && ranges->count == MOST_INPUTS) {
        free(name);
        return conv_err_usage(err, "the ranges name more than %d inputs", MOST_INPUTS);
    }
    if (!name || !names) {
        free(name);
        return conv_err_memory(err, "no memory for the names of inputs");
    }
    ranges->names[ranges->count++] = name;
    return CONV_OK;
}

// If a name has several ranges, the last one varies fastest.
static enum conv_status expand(struct conv_operand_ranges *ranges, const char *name,
                               struct conv_err *err)
{
    struct range range;
    enum conv_status status = CONV_OK;
    if (!find_range(&range, name))
        return add(ranges, strdup(name), err);
    long step = range.first <= range.last ? 1 : -1;
    for (long i = range.first; !status; i += step) {
        char next[PATH_MAX];
        int size = snprintf(next, sizeof next, "%.*s%0*ld%s", (int)(range.begin - name), name,
                            range.digits, i, range.end);
        if (size >= (int)sizeof next)
            return conv_err_limit(err, "path too long");
        status = expand(ranges, next, err);
        if (i == range.last)
            break;
    }
    return status;
}

enum conv_status conv_operand_ranges_expand(struct conv_operand_ranges *ranges,
                                            const char *const *names, int count,
                                            struct conv_err *err)
{
    struct range range;
    enum conv_status status = CONV_OK;
    *ranges = (struct conv_operand_ranges){0};
    for (int i = 0; i < count && !status; i++) {
        bool expands = find_range(&range, names[i]) && !conv_paths_exists(names[i]);
        ranges->any |= expands;
        status = expands ? expand(ranges, names[i], err) : add(ranges, strdup(names[i]), err);
    }
    return status;
}

void conv_operand_ranges_free(struct conv_operand_ranges *ranges)
{
    for (int i = 0; i < ranges->count; i++)
        free(ranges->names[i]);
    free(ranges->names);
    *ranges = (struct conv_operand_ranges){0};
}
