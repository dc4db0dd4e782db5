// SPDX-License-Identifier: MIT
// The main job: conv FILTER [options] INPUT... OUTPUT
#include "cli/run.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/signals.h"

#include <string.h>

enum conv_status conv_run_pictures(const struct conv_options *options,
                                   const struct conv_device *device, struct conv_walk *walk,
                                   struct conv_report *report, atomic_int *stop,
                                   struct conv_err *err)
{
    struct conv_pipeline_config config = {
        .ops = device->ops,
        .backend = device->backend,
        .jobs = options->jobs,
        .streams = options->streams,
        .group_bytes = options->group_bytes,
        .mem_limit = options->mem_limit,
        .max_pixels = options->max_pixels,
        .png = options->png,
        .alpha = (enum conv_alpha_mode)options->alpha,
        .strip = options->strip,
        .preserve = options->preserve,
        .skip_existing = options->skip_existing,
        .update = options->update,
        .dry_run = options->dry_run,
        .no_save = options->no_save,
        .fail_fast = options->fail_fast,
        .stop = stop,
    };
    // What coders and file buffers keep, all workers together, is at most about half of the limit:
    // each has one buffer for the file, the filtered rows of either way, and the result.
    config.png.keep = options->mem_limit / 8 / (size_t)options->jobs + 1;
    return conv_pipeline_run(&config, walk, report, err);
}

// Splits the operands into inputs and output and starts the walk.
static enum conv_status open_walk(const struct conv_options *options, atomic_int *stop,
                                  struct conv_walk **walk, struct conv_err *err)
{
    int count = options->operand_count - 1; // without the filter
    const char *const *operands = options->operands + 1;
    int least = options->files_from ? 1 : 2;
    if (count < least)
        return conv_err_set(err, CONV_ERR_USAGE, "%s missing: conv %s %sOUTPUT (see conv --help)",
                            count == 0 ? "input and output are" : "the output is",
                            options->operands[0], options->files_from ? "[INPUT] " : "INPUT... ");
    const char *output = operands[count - 1];
    for (int i = 0; i < count && options->report_path; i++)
        if (strcmp(operands[i], options->report_path) == 0)
            return conv_err_set(err, CONV_ERR_USAGE, "--report would overwrite %s", operands[i]);
    if (strcmp(output, "-") == 0 && options->json)
        return conv_err_set(
            err, CONV_ERR_USAGE,
            "--json and the picture cannot both go to standard output; use --report");
    struct conv_walk_config config = {
        .inputs = operands,
        .input_count = count - 1,
        .output = output,
        .batch = options->batch,
        .recursive = options->recursive,
        .include = options->include.items,
        .include_count = options->include.count,
        .exclude = options->exclude.items,
        .exclude_count = options->exclude.count,
        .files_from = options->files_from,
        .nul = options->nul,
        .stop = stop,
    };
    return conv_walk_open(walk, &config, err);
}

static void print_variants(const struct conv_device *device, const struct conv_filter *filters,
                           int count)
{
    for (int i = 0; i < count; i++)
        fprintf(stderr, "conv: %s: %s at 8 bits, %s at 16 bits\n", filters[i].name,
                device->ops->variant(device->backend, i, 8),
                device->ops->variant(device->backend, i, 16));
}

static void print_nothing_found(const struct conv_options *options)
{
    fputs("conv: no PNG found", stderr);
    const char *lead = " in ";
    if (options->files_from) {
        fputs(lead, stderr);
        conv_report_print_path(stderr, options->files_from);
    }
    for (int i = 1; i < options->operand_count - 1 && !options->files_from; i++, lead = ", ") {
        fputs(lead, stderr);
        conv_report_print_path(stderr, options->operands[i]);
    }
    fputs(options->include.count ? " that --include lets in\n" : "\n", stderr);
}

static int exit_code(const struct conv_totals *totals, int stop)
{
    if (stop > 0)
        return CONV_EXIT_SIGNAL + stop;
    if (totals->failed)
        return CONV_EXIT_SOME_FAILED;
    return totals->done + totals->skipped + totals->planned ? CONV_EXIT_OK : CONV_EXIT_NOTHING;
}

int conv_run_main(const struct conv_options *options)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count = 0, code = CONV_EXIT_OK;
    struct conv_device device = {0};
    struct conv_walk *walk = NULL;
    struct conv_report *report = NULL;
    struct conv_err err = {0};
    atomic_int *stop = conv_signals_install();

    enum conv_status status =
        conv_commands_parse_chain(options, options->operands[0], filters, &filter_count, &err);
    if (!status)
        status = open_walk(options, stop, &walk, &err);
    struct conv_options effective = *options;
    if (options->dry_run) {
        effective.device_text = "cpu"; // nothing is filtered: no device is woken up
        effective.variant = NULL;
    }
    if (!status)
        status = conv_device_open(&device, &effective, filters, filter_count, &err);
    if (!status && options->verbose && !options->dry_run)
        print_variants(&device, filters, filter_count);
    if (!status) {
        struct conv_report_config config = {
            .quiet = options->quiet,
            .verbose = options->verbose,
            .dry_run = options->dry_run,
            .json = options->json,
            .json_path = options->report_path,
            .progress = (enum conv_when)options->progress,
            .filters = options->operands[0],
            .device = device.name,
            .device_async = device.ops->async,
            .jobs = options->jobs,
            .streams = options->streams,
        };
        status = conv_report_open(&report, &config, &err);
    }
    if (!status && !options->dry_run && !options->no_save)
        status = conv_walk_make_output(walk, &err);
    if (!status)
        status = conv_run_pictures(&effective, &device, walk, report, stop, &err);
    if (report) {
        struct conv_totals totals;
        conv_report_totals(report, &totals);
        code = exit_code(&totals, atomic_load(stop));
        enum conv_status closed = conv_report_close(report, code, NULL, status ? NULL : &err);
        if (code == CONV_EXIT_NOTHING && !status && !closed)
            print_nothing_found(options);
        if (!status)
            status = closed;
    }
    conv_device_close(&device);
    conv_walk_close(walk);
    return status ? conv_commands_fail(&err) : code;
}
