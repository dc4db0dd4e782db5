// SPDX-License-Identifier: MIT
// The main job: conv FILTER [options] INPUT... OUTPUT
#include "cli/run.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/signals.h"

#include <string.h>

enum conv_status conv_run_pictures(const struct conv_options *options,
                                   const struct conv_device *device, struct conv_walk *walk,
                                   struct conv_report *report, struct conv_journal *journal,
                                   atomic_int *stop, struct conv_err *err)
{
    struct conv_pipeline_config config = {
        .ops = device->ops,
        .backend = device->backend,
        .spare_ops = device->spare_ops,
        .spare = device->spare,
        .jobs = options->jobs,
        .streams = options->streams,
        .group_bytes = options->group_bytes,
        .mem_limit = options->mem_limit,
        .max_pixels = options->max_pixels,
        .png = options->png,
        .alpha = (enum conv_alpha_mode)options->alpha,
        .strip = options->strip,
        .preserve = options->preserve,
        .in_place = options->in_place,
        .fsync = options->fsync,
        .journal = journal,
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
    for (int i = 0; i < count && options->report_path; i++)
        if (strcmp(operands[i], options->report_path) == 0)
            return conv_err_set(err, CONV_ERR_USAGE, "--report would overwrite %s", operands[i]);
    for (int i = 0; i < count && options->resume_path; i++)
        if (strcmp(operands[i], options->resume_path) == 0)
            return conv_err_set(err, CONV_ERR_USAGE, "--resume takes a journal, not the operand %s",
                                operands[i]);
    if (output && strcmp(output, "-") == 0 && options->json)
        return conv_err_set(
            err, CONV_ERR_USAGE,
            "--json and the picture cannot both go to standard output; use --report");
    struct conv_walk_config config = {
        .inputs = operands,
        .input_count = count - outputs,
        .output = output,
        .in_place = options->in_place,
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

static void hash_number(struct conv_digest *digest, int64_t number)
{
    conv_hash_add(digest, &number, sizeof number);
}

// Of everything that changes outputs: an entry of the journal made under other settings is stale.
// Devices, kernels, threads and groups do not change them.
static struct conv_digest digest_settings(const struct conv_options *options,
                                          const struct conv_filter *filters, int count)
{
    struct conv_digest digest = {0};
    for (int i = 0; i < count; i++) {
        const struct conv_filter *filter = &filters[i];
        size_t taps = (size_t)filter->width * (size_t)filter->height;
        hash_number(&digest, filter->width);
        conv_hash_add(&digest, filter->coef, taps * sizeof filter->coef[0]);
        conv_hash_add(&digest, &filter->scale, sizeof filter->scale);
        conv_hash_add(&digest, &filter->offset, sizeof filter->offset);
    }
    const int settings[] = {options->border,      options->border_value, options->alpha,
                            options->png.encoder, options->png.level,    options->strip,
                            options->preserve};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        hash_number(&digest, settings[i]);
    return digest;
}

static enum conv_status open_journal(const struct conv_options *options,
                                     const struct conv_filter *filters, int count,
                                     struct conv_journal **journal, struct conv_err *err)
{
    struct conv_journal_config config = {
        .path = options->resume_path,
        .settings = digest_settings(options, filters, count),
        .read_only = options->dry_run || options->no_save,
        .fsync = options->fsync,
    };
    enum conv_status status = conv_journal_open(journal, &config, err);
    if (status)
        return status;
    size_t damaged = conv_journal_damaged(*journal);
    if (damaged && !options->quiet)
        fprintf(stderr, "conv: the journal has %zu damaged line%s; those pictures are done again\n",
                damaged, damaged == 1 ? "" : "s");
    return CONV_OK;
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
    for (int i = 1; i < options->operand_count - !options->in_place && !options->files_from;
         i++, lead = ", ") {
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
    struct conv_journal *journal = NULL;
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
    if (!status && options->resume_path)
        status = open_journal(options, filters, filter_count, &journal, &err);
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
        status = conv_run_pictures(&effective, &device, walk, report, journal, stop, &err);
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
    conv_journal_close(journal);
    conv_device_close(&device);
    conv_walk_close(walk);
    return status ? conv_commands_fail(&err) : code;
}
