// SPDX-License-Identifier: MIT
#include "cli/run_inputs.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/standard.h"
#include "cli/device.h"
#include "cli/own_files.h"
#include "cli/run_shard.h"
#include "io/formats.h"
#include "io/paths.h"

// Time to count the remaining images after a signal; a name takes about a microsecond.
#define COUNT_NS 100000000u

static bool is_standard(const char *path)
{
    return path && conv_operands_is_standard(path);
}

// Refuses a terminal as the output or an input.
static enum conv_status check_terminals(const struct conv_options *options,
                                        const char *const *inputs, int count, const char *output,
                                        struct conv_err *err)
{
    if (options->dry_run)
        return CONV_OK;
    if (is_standard(output) && !options->no_save && isatty(STDOUT_FILENO))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "an image is not written to a terminal; redirect standard output, or "
                            "name an output file");
    for (int i = 0; i < count; i++)
        if (is_standard(inputs[i]) && isatty(STDIN_FILENO))
            return conv_err_set(err, CONV_ERR_USAGE,
                                "an image is not read from a terminal; redirect standard input, or "
                                "name an input file");
    return CONV_OK;
}

// With --batch and --watch all inputs are folders.
static enum conv_status check_batch(const struct conv_options *options, const char *const *inputs,
                                    int count, struct conv_err *err)
{
    for (int i = 0; i < count && options->watch; i++)
        if (!conv_paths_is_folder(inputs[i]))
            return conv_err_set(err, CONV_ERR_USAGE, "--watch takes folders; %s is %s", inputs[i],
                                conv_paths_exists(inputs[i]) ? "a file" : "not there");
    for (int i = 0; i < count && options->batch; i++)
        if (!conv_paths_is_folder(inputs[i]))
            return conv_err_set(err, CONV_ERR_USAGE, "--batch takes folders; %s is %s", inputs[i],
                                conv_paths_exists(inputs[i]) ? "a file: omit --batch"
                                                             : "not there");
    return CONV_OK;
}

// The name of a single output says its format, for which other options have to make sense.
static enum conv_status check_format(const struct conv_options *options, const char *output,
                                     struct conv_err *err)
{
    const struct conv_format *format = conv_formats_of_name(output);
    char what[PATH_MAX + 16];
    if (!format || options->to)
        return CONV_OK;
    snprintf(what, sizeof what, "the output %s", output);
    return conv_options_check_format(options, format, what, err);
}

// Estimates the workload if the choice of the device depends on it.
static void measure_work(struct conv_run_inputs *inputs, const struct conv_options *options,
                         const struct conv_walk_config *config)
{
    struct conv_workload_thresholds thresholds = conv_device_thresholds(options);
    struct conv_workload workload;
    struct conv_walk *walk;
    struct conv_err err;
    if (!conv_walk_is_repeatable(config) || conv_walk_open(&walk, config, &err))
        return;
    conv_workload_measure(&workload, conv_walk_source(walk), &thresholds);
    conv_walk_close(walk);
    if (!options->skip_existing && !options->update && !options->resume_path)
        inputs->expected = workload.images; // each will be processed
    inputs->work = workload.kind;
}

enum conv_status conv_run_inputs_open(struct conv_run_inputs *inputs,
                                      const struct conv_options *options, atomic_int *stop,
                                      struct conv_err *err)
{
    int count = options->operand_count - 1; // without the filter
    const char *const *operands = options->operands + 1;
    int outputs = options->in_place ? 0 : 1;
    int least = options->files_from ? outputs : outputs + 1;
    if (count < least && options->in_place)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "the input is missing: conv %s --in-place INPUT...",
                            options->operands[0]);
    if (count < least)
        return conv_err_set(err, CONV_ERR_USAGE, "%s missing: conv %s %sOUTPUT (see conv --help)",
                            count == 0 ? "input and output are" : "the output is",
                            options->operands[0], options->files_from ? "[INPUT] " : "INPUT... ");
    const char *output = options->in_place ? NULL : operands[count - 1];
    if (output && conv_paths_descriptor(output) == STDOUT_FILENO)
        output = "-"; // another name for it, such as /dev/stdout
    struct conv_own_files_use use = {options->operands[0], operands, count - outputs, output};
    enum conv_status status = conv_own_files_check(options, &use, err);
    if (status)
        return status;
    if (is_standard(output) && options->json)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--json and the image cannot both go to standard output; use --report");
    status = check_terminals(options, operands, count - outputs, output, err);
    if (!status)
        status = check_batch(options, operands, count - outputs, err);
    if (status)
        return status;
    bool writes = !options->dry_run && !options->no_save;
    if (is_standard(output) && writes && !options->quiet && conv_standard_is_shared())
        return conv_err_set(err, CONV_ERR_USAGE,
                            "standard output and standard error are the same file: messages would "
                            "get into the image; separate them, or use --quiet");
    struct conv_walk_config config = {
        .operands =
            {
                .inputs = operands,
                .input_count = count - outputs,
                .output = output,
                .npy = options->output_type == CONV_OUTPUT_F32,
                .format = options->to,
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
        .stop = stop,
    };
    *inputs = (struct conv_run_inputs){.output = output, .work = CONV_WORKLOAD_UNKNOWN};
    status = conv_run_shard_plan(&inputs->plan, options, &config, stop, err);
    config.plan = inputs->plan;
    struct conv_walk_config watching = config;
    watching.watch = options->watch;
    if (!status)
        status = conv_walk_open(&inputs->walk, &watching, err);
    if (!status && conv_walk_shape(inputs->walk)->sink == CONV_SINK_FILE)
        status = check_format(options, output, err);
    if (!status && conv_device_needs_workload(options))
        measure_work(inputs, options, &config);
    if (options->watch)
        inputs->expected = 0;
    return status;
}

void conv_run_inputs_print_none(const struct conv_options *options,
                                const struct conv_walk_count *count)
{
    if (options->files_from) {
        bool standard = is_standard(options->files_from);
        fputs("conv: the list ", stderr);
        conv_report_print_path(stderr, standard ? "on standard input" : options->files_from);
        fputs(" is empty\n", stderr);
        return;
    }
    fprintf(stderr, "conv: no %s", conv_formats_read);
    const char *lead = " in ";
    for (int i = 1; i < options->operand_count - !options->in_place; i++, lead = ", ") {
        fputs(lead, stderr);
        conv_report_print_path(stderr, options->operands[i]);
    }
    if (options->include.count)
        fprintf(stderr, " matches --include%s", options->exclude.count ? " but not --exclude" : "");
    else if (options->exclude.count)
        fputs(" passes --exclude", stderr);
    if (count->ignored)
        fprintf(stderr, " (%" PRIu64 " ignored: ._*, .thumb* or @eaDir; --no-ignore takes them)",
                count->ignored);
    if (count->others) {
        fprintf(stderr, " (%" PRIu64 " other %s, e.g. ", count->others,
                count->others == 1 ? "file" : "files");
        conv_report_print_path(stderr, count->other);
        const char *format = conv_format_of_name(count->other);
        if (format && !conv_formats_match_name(count->other))
            fprintf(stderr, "; %s converts %s", conv_formats_converter(format), format);
        fputc(')', stderr);
    }
    fputc('\n', stderr);
}

void conv_run_inputs_count_rest(const struct conv_options *options, struct conv_walk *walk,
                                const struct conv_totals *totals, struct conv_report_rest *rest)
{
    struct conv_item item;
    struct conv_err err;
    uint64_t over = totals->done + totals->failed + totals->skipped + totals->planned;
    uint64_t end = conv_clock_ns() + COUNT_NS;
    enum conv_source_step step = CONV_SOURCE_ITEM;
    while (step != CONV_SOURCE_END && !options->files_from && conv_clock_ns() < end)
        step = conv_source_next(conv_walk_source(walk), &item, &err);
    uint64_t found = conv_walk_count(walk).items;
    bool over_all = step == CONV_SOURCE_END && found <= over;
    bool resumes = options->skip_existing || options->update || options->resume_path;
    *rest = (struct conv_report_rest){
        .known = step == CONV_SOURCE_END,
        .images = found > over ? found - over : 0,
        .advice = over_all                                ? NULL
                  : resumes                               ? "the same command does the rest"
                  : options->in_place || options->no_save ? NULL
                                                          : "--skip-existing does the rest",
    };
}
