// SPDX-License-Identifier: MIT
// The main job: conv FILTER [options] INPUT... OUTPUT
#include "cli/run.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/page.h"
#include "cli/signals.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "pipeline/amount.h"
#include "report/json.h"

// What is freed is to be the system's again. Left alone, glibc takes the size of a large block that
// is freed as a hint to keep blocks of that size from then on, each thread for itself: sixteen
// workers with files of 10 MiB held 300 MiB that way under a limit of 24.
static void give_memory_back(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

enum conv_status conv_run_pictures(const struct conv_options *options,
                                   const struct conv_device *device, struct conv_walk *walk,
                                   struct conv_report *report, struct conv_trace *trace,
                                   struct conv_journal *journal, atomic_int *stop,
                                   struct conv_err *err)
{
    bool decodes = device->decode_on != CONV_CODER_CPU;
    struct conv_pipeline_config config = {
        .ops = device->ops,
        .backends = device->backends,
        .device_count = device->count,
        .device_names = device->names,
        .openings = device->openings,
        .filter_count = device->filter_count,
        .spare_ops = device->spare_ops,
        .spare = device->spare,
        .jobs = options->jobs,
        .streams = conv_options_streams(options, decodes),
        .group_bytes = conv_options_group_bytes(options, decodes),
        .mem_limit = options->mem_limit,
        .max_pixels = options->max_pixels,
        .png = options->png,
        .alpha = (enum conv_alpha_mode)options->alpha,
        .decode_on = device->decode_on,
        .encode_on = device->encode_on,
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
        .trace = trace,
        .stop = stop,
    };
    // What coders and file buffers keep, all workers together, is at most about half of the limit:
    // each has one buffer for the file, the filtered rows of either way, and the result.
    config.png.keep = options->mem_limit / 8 / (size_t)options->jobs + 1;
    give_memory_back();
    return conv_pipeline_run(&config, walk, report, err);
}

// Splits the operands into inputs and output and starts the walk. *work: how much there is to do,
// as far as that matters.
static enum conv_status open_walk(const struct conv_options *options, atomic_int *stop,
                                  struct conv_walk **walk, enum conv_amount_kind *work,
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
    enum conv_status status = conv_page_check(options, err);
    if (status)
        return status;
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
    *work = CONV_AMOUNT_UNKNOWN;
    status = conv_walk_open(walk, &config, err);
    if (!status && conv_device_wants_amount(options)) {
        struct conv_amount_enough enough = conv_device_enough(options);
        struct conv_amount amount;
        conv_amount_measure(&amount, &config, &enough);
        *work = amount.kind;
        if (!options->skip_existing && !options->update && !options->resume_path)
            conv_walk_expect(*walk, amount.pictures); // all of them
    }
    return status;
}

static void hash_number(struct conv_digest *digest, int64_t number)
{
    conv_hash_add(digest, &number, sizeof number);
}

// Of everything that changes outputs: an entry of the journal made under other settings is stale.
// Devices, kernels, threads and groups do not change them; who encodes does, unless the user does
// not mind.
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
                            options->preserve,    options->encode_on};
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

// Devices of several kinds may run several kernels.
static void print_variants(const struct conv_device *device, const struct conv_filter *filters,
                           int count)
{
    bool several = device->count > 1;
    for (int d = 0; d < device->count; d++)
        for (int i = 0; i < count; i++)
            fprintf(stderr, "conv: %s%s%s: %s at 8 bits, %s at 16 bits\n",
                    several ? device->names[d] : "", several ? ": " : "", filters[i].name,
                    device->ops->variant(device->backends[d], i, 8),
                    device->ops->variant(device->backends[d], i, 16));
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

// What the parts of conv_run_main hand on to each other.
struct run {
    uint64_t start_ns;
    struct conv_options options; // as they take effect
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count;
    struct conv_device device;
    struct conv_walk *walk;
    struct conv_report_config config;
    struct conv_journal *journal; // of --resume
    struct conv_report *report;
    struct conv_trace *trace;
    struct conv_page_job page;
    struct conv_kept kept;
};

// Everything that can fail before the first picture, the files that the run itself writes included.
static enum conv_status prepare(struct run *run, const struct conv_options *options,
                                atomic_int *stop, struct conv_err *err)
{
    enum conv_amount_kind work = CONV_AMOUNT_UNKNOWN;
    run->options = *options;
    if (options->dry_run) {
        run->options.device_text = "cpu"; // nothing is filtered: no device is woken up
        run->options.variant = NULL;
        run->options.decode_on = run->options.encode_on = CONV_CODER_CPU;
    }
    enum conv_status status = conv_commands_parse_chain(options, options->operands[0], run->filters,
                                                        &run->filter_count, err);
    if (!status)
        status = open_walk(&run->options, stop, &run->walk, &work, err);
    if (!status)
        status = conv_device_open(&run->device, &run->options, run->filters, run->filter_count,
                                  !options->verbose, // which tells of the device's kernels first
                                  work, err);
    if (!status && options->verbose && !options->dry_run)
        print_variants(&run->device, run->filters, run->filter_count);
    if (!status && options->resume_path)
        status = open_journal(options, run->filters, run->filter_count, &run->journal, err);
    if (!status)
        status = conv_page_open(&run->page, options, err);
    if (!status && (options->trace_path || options->html_path))
        status = conv_trace_open(&run->trace, options->trace_path, run->page.file, err);
    if (status)
        return status;
    run->config = (struct conv_report_config){
        .quiet = options->quiet,
        .verbose = options->verbose,
        .dry_run = options->dry_run,
        .json = options->json,
        .json_path = options->report_path,
        .progress = (enum conv_when)options->progress,
        .filters = options->operands[0],
        .device = run->device.name,
        .device_async = run->device.ops->async,
        .device_count = run->device.ops->async ? run->device.count : 0,
        .spare = run->device.spare_ops ? run->device.spare_ops->name : NULL,
        .jobs = options->jobs,
        .streams = conv_options_streams(options, run->device.decode_on != CONV_CODER_CPU),
        .kept = run->page.file ? &run->kept : NULL,
        .start_ns = run->start_ns, // what a user waits for is more than pictures
    };
    status = conv_report_open(&run->report, &run->config, err);
    if (!status && !options->dry_run && !options->no_save)
        status = conv_walk_make_output(run->walk, err);
    return status;
}

// Which device did how much, where several did something.
static void describe_shares(struct run *run, const struct conv_totals *totals)
{
    char text[512] = "", name[16];
    double share;
    if (!conv_report_device(&run->config, totals, 1, name, &share))
        return;
    for (int i = 0; conv_report_device(&run->config, totals, i, name, &share); i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %.0f %%", i ? ", " : "", name, 100 * share);
    }
    conv_page_fact(&run->page, "shares", "%s", text);
}

static void describe_run(struct run *run, const struct conv_totals *totals)
{
    const struct conv_options *options = &run->options;
    struct conv_page_job *page = &run->page;
    conv_page_fact(page, "pictures", "%g Mpix, %.4g MB read, %.4g MB written",
                   (double)(totals->pixels / 10000) / 100, (double)totals->bytes_in / 1e6,
                   options->no_save ? 0 : (double)totals->bytes_out / 1e6);
    conv_device_look(&run->device);
    conv_page_describe(page, &run->device, run->filters, run->filter_count);
    conv_page_fact(page, "workers", "%d", options->jobs);
    bool decodes = run->device.decode_on != CONV_CODER_CPU;
    if (run->device.ops->async)
        conv_page_fact(page, "streams", "%d%s, groups of %zu MiB",
                       conv_options_streams(options, decodes),
                       run->device.count > 1 ? " a device" : "",
                       conv_options_group_bytes(options, decodes) >> 20);
    describe_shares(run, totals);
}

static enum conv_status write_page(struct run *run, const struct conv_totals *totals, int stop,
                                   struct conv_err *err)
{
    struct conv_page *page = &run->page.page;
    char *record = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&record, &size);
    if (!memory)
        return conv_err_errno(err, errno, "cannot write the page");
    conv_json_summary(memory, &run->config, totals);
    if (fclose(memory) != 0) {
        free(record);
        return conv_err_errno(err, errno, "cannot write the page");
    }
    page->kind = run->options.dry_run ? "conv, a dry run" : "conv, a run";
    page->title = run->options.operands[0];
    page->note = run->kept.warning;
    if (stop > 0)
        page->note = "A signal ended the run: this is what was done until then.";
    page->config = &run->config;
    page->totals = totals;
    page->trace = run->trace;
    page->kept = &run->kept;
    describe_run(run, totals);
    // What was there before --in-place is gone.
    if (!run->options.no_save && !run->options.dry_run && !run->options.in_place)
        conv_page_take_pairs(&run->page, &run->kept);
    enum conv_status status = conv_page_finish(&run->page, record, err);
    free(record);
    return status;
}

// The report, the trace and the page, each whatever became of the others. Returns the first
// failure.
static enum conv_status finish(struct run *run, int stop, int *code, struct conv_err *err)
{
    struct conv_totals totals;
    struct conv_err later;
    conv_report_totals(run->report, &totals);
    *code = exit_code(&totals, stop);
    enum conv_status status = conv_report_close(run->report, *code, &totals, err);
    enum conv_status traced = conv_trace_finish(run->trace, status ? &later : err);
    status = status ? status : traced;
    enum conv_status paged = CONV_OK;
    if (run->page.file)
        paged = write_page(run, &totals, stop, status ? &later : err);
    return status ? status : paged;
}

int conv_run_main(const struct conv_options *options)
{
    struct conv_err err = {0}, later = {0};
    int code = CONV_EXIT_OK;
    uint64_t start_ns = conv_clock_ns();
    atomic_int *stop = conv_signals_install();
    struct run *run = calloc(1, sizeof *run);
    if (!run) {
        conv_err_set(&err, CONV_ERR_MEMORY, "no memory for the run");
        return conv_commands_fail(&err);
    }
    run->start_ns = start_ns;
    enum conv_status status = prepare(run, options, stop, &err);
    if (!status)
        status = conv_run_pictures(&run->options, &run->device, run->walk, run->report, run->trace,
                                   run->journal, stop, &err);
    if (run->report) {
        enum conv_status closed = finish(run, atomic_load(stop), &code, status ? &later : &err);
        if (code == CONV_EXIT_NOTHING && !status && !closed)
            print_nothing_found(options);
        status = status ? status : closed;
    }
    conv_page_close(&run->page);
    conv_trace_free(run->trace);
    conv_kept_free(&run->kept);
    conv_journal_close(run->journal);
    conv_device_close(&run->device);
    conv_walk_close(run->walk);
    free(run);
    return status ? conv_commands_fail(&err) : code;
}
