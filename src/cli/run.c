// SPDX-License-Identifier: MIT
// The main job: conv FILTER [options] INPUT... OUTPUT
#include "cli/run.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/hints.h"
#include "cli/own_files.h"
#include "cli/run_page.h"
#include "cli/signals.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/limits.h"
#include "base/stall.h"
#include "base/standard.h"
#include "io/journal.h"
#include "io/paths.h"
#include "io/sink.h"
#include "io/walk.h"
#include "pipeline/workload.h"
#include "report/json.h"

// What the parts of conv_run_main hand on to each other.
struct run {
    uint64_t start_ns;
    struct conv_options options; // as they take effect
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count;
    struct conv_device device;
    struct conv_walk *walk;
    const char *output; // the operand, "-" for all names of standard output; NULL: none
    uint64_t expected;  // images, at least; 0: unknown
    struct conv_paths_id own_files[CONV_OWN_FILES_MOST];
    struct conv_sink *sink;
    struct conv_report_config config;
    struct conv_journal *journal; // of --resume
    struct conv_report *report;
    struct conv_trace *trace;
    struct conv_page_job page;
    struct conv_samples kept;
};

// What is freed is to be the system's again. Left alone, glibc takes the size of a large block that
// is freed as a hint to keep blocks of that size from then on, each thread for itself: sixteen
// workers with files of 10 MiB held 300 MiB that way under a limit of 24.
static void give_memory_back(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

// Where the process is limited: by what is left now that devices are open.
static void limit_memory(struct conv_pipeline_config *config, bool refuse_beyond)
{
    struct conv_limits limits;
    conv_limits_read(&limits);
    if (!conv_limits_memory_is_limited(&limits))
        return;
    config->memory = conv_limits_memory_left(&limits);
    if (limits.counts_address_space) {
        // Buffers are mapped larger than they are used, and so are stacks. An arena per thread
        // would map 64 MiB each.
        config->memory -= config->memory / 4;
#ifdef __GLIBC__
        (void)mallopt(M_ARENA_MAX, 1);
#endif
    }
    config->refuse_beyond = refuse_beyond;
    size_t keep = conv_pipeline_keep(config->memory, config->jobs);
    if (config->png.keep > keep)
        config->png.keep = keep;
}

enum conv_status conv_run_images(const struct conv_options *options,
                                 const struct conv_device *device, struct conv_source *source,
                                 struct conv_sink *sink, uint64_t expected,
                                 struct conv_report *report, struct conv_trace *trace,
                                 atomic_int *stop, struct conv_err *err)
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
        .mem_limit = conv_options_mem_limit(options, device->ops->async),
        .max_pixels = options->max_pixels,
        .png = options->png,
        .alpha = (enum conv_alpha_mode)options->alpha,
        .decode_on = device->decode_on,
        .encode_on = device->encode_on,
        .strip = options->strip,
        .first_frame = options->first_frame,
        .sink = sink,
        .expected_images = expected,
        .resume = options->resume_path != NULL,
        .skip_existing = options->skip_existing,
        .update = options->update,
        .dry_run = options->dry_run,
        .no_save = options->no_save || !sink,
        .fail_fast = options->fail_fast,
        .trace = trace,
        .stop = stop,
    };
    // What coders and file buffers keep, all workers together, is at most about half of the limit:
    // each has one buffer for the file, the filtered rows of either way, and the result.
    config.png.keep = config.mem_limit / 8 / (size_t)options->jobs + 1;
    limit_memory(&config, !options->mem_limit);
    config.png.stop = stop;
    give_memory_back();
    return conv_pipeline_run(&config, source, report, err);
}

static bool is_standard(const char *path)
{
    return path && conv_operands_is_standard(path);
}

// An image is neither shown on a terminal nor typed into one.
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

static enum conv_status check_batch(const struct conv_options *options, const char *const *inputs,
                                    int count, struct conv_err *err)
{
    for (int i = 0; i < count && options->batch; i++)
        if (!conv_paths_is_folder(inputs[i]))
            return conv_err_set(err, CONV_ERR_USAGE, "--batch takes folders; %s is %s", inputs[i],
                                conv_paths_exists(inputs[i]) ? "a file: leave --batch out"
                                                             : "not there");
    return CONV_OK;
}

// How much there is to do, as far as a device depends on it.
static enum conv_workload_kind measure_work(struct run *run, const struct conv_walk_config *config)
{
    const struct conv_options *options = &run->options;
    struct conv_workload_thresholds thresholds = conv_device_enough(options);
    struct conv_workload workload;
    struct conv_walk *walk;
    struct conv_err err;
    if (!conv_walk_is_repeatable(config) || conv_walk_open(&walk, config, &err))
        return CONV_AMOUNT_UNKNOWN;
    conv_workload_measure(&workload, conv_walk_source(walk), &thresholds);
    conv_walk_close(walk);
    if (!options->skip_existing && !options->update && !options->resume_path)
        run->expected = workload.images; // all of them
    return workload.kind;
}

// Splits the operands into inputs and output and opens the walk.
static enum conv_status open_walk(struct run *run, atomic_int *stop, enum conv_workload_kind *work,
                                  struct conv_err *err)
{
    const struct conv_options *options = &run->options;
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
        output = "-"; // /dev/stdout, say: another way to write it
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
                .in_place = options->in_place,
                .recursive = options->recursive,
                .files_from = options->files_from,
            },
        .include = options->include.items,
        .include_count = options->include.count,
        .exclude = options->exclude.items,
        .exclude_count = options->exclude.count,
        .nul = options->nul,
        .stop = stop,
    };
    run->output = output;
    status = conv_walk_open(&run->walk, &config, err);
    if (!status && conv_device_wants_amount(options))
        *work = measure_work(run, &config);
    return status;
}

// To be called when nothing else can fail before the first image, and when the files that the run
// itself writes are open.
static enum conv_status open_sink(struct run *run, atomic_int *stop, struct conv_err *err)
{
    const struct conv_options *options = &run->options;
    struct conv_sink_config config = {
        .kind = conv_walk_shape(run->walk)->sink,
        .path = run->output,
        .workers = options->jobs,
        .preserve = options->preserve,
        .fsync = options->fsync,
        .journal = run->journal,
        .own_files = run->own_files,
        .own_file_count = conv_own_files_find(run->own_files, options),
        .stop = stop,
    };
    bool is_image = false, writes = !options->dry_run && !options->no_save;
    enum conv_status status = conv_sink_open(&run->sink, &config, err);
    conv_signals_watch(run->sink);
    if (!status && writes && config.kind == CONV_SINK_FOLDER && !conv_paths_is_folder(run->output))
        status = conv_walk_peek(run->walk, &is_image, err);
    return is_image ? conv_paths_make_folder(run->output, err) : status;
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
                                     const struct conv_filter *filters, int count, atomic_int *stop,
                                     struct conv_journal **journal, struct conv_err *err)
{
    struct conv_journal_config config = {
        .path = options->resume_path,
        .settings = digest_settings(options, filters, count),
        .in_place = options->in_place,
        .preserve = options->preserve,
        .read_only = options->dry_run || options->no_save,
        .fsync = options->fsync,
        .stop = stop,
    };
    enum conv_status status = conv_journal_open(journal, &config, err);
    if (status)
        return status;
    size_t damaged = conv_journal_damaged(*journal);
    if (damaged && !options->quiet)
        fprintf(stderr,
                "conv: the journal has %zu damaged line%s; those images are processed again\n",
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
            conv_report_say("%s%s%s: %s at 8 bits, %s at 16 bits", several ? device->names[d] : "",
                            several ? ": " : "", filters[i].name,
                            device->ops->variant(device->backends[d], i, 8),
                            device->ops->variant(device->backends[d], i, 16));
}

static void print_nothing_found(const struct conv_options *options,
                                const struct conv_walk_count *count)
{
    if (options->files_from) {
        bool standard = is_standard(options->files_from);
        fputs("conv: the list ", stderr);
        conv_report_print_path(stderr, standard ? "on standard input" : options->files_from);
        fputs(" is empty\n", stderr);
        return;
    }
    fputs("conv: no PNG", stderr);
    const char *lead = " in ";
    for (int i = 1; i < options->operand_count - !options->in_place; i++, lead = ", ") {
        fputs(lead, stderr);
        conv_report_print_path(stderr, options->operands[i]);
    }
    if (options->include.count)
        fprintf(stderr, " matches --include%s", options->exclude.count ? " but not --exclude" : "");
    else if (options->exclude.count)
        fputs(" passes --exclude", stderr);
    if (count->others) {
        fprintf(stderr, " (%" PRIu64 " other %s, e.g. ", count->others,
                count->others == 1 ? "file" : "files");
        conv_report_print_path(stderr, count->other);
        fputc(')', stderr);
    }
    fputc('\n', stderr);
}

// How long to count what is left after a signal: a name takes about a microsecond.
#define COUNT_NS 100000000u

// Counts the images that a signal has left undone, as far as their names are there to be read.
static void count_rest(const struct conv_options *options, struct conv_walk *walk,
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

static int exit_code(const struct conv_totals *totals, int stop)
{
    if (stop > 0)
        return CONV_EXIT_SIGNAL + stop;
    if (totals->failed)
        return CONV_EXIT_SOME_FAILED;
    return totals->done + totals->skipped + totals->planned ? CONV_EXIT_OK : CONV_EXIT_NOTHING;
}

// Everything that can fail before the first image, the files that the run itself writes included.
static enum conv_status prepare(struct run *run, const struct conv_options *options,
                                atomic_int *stop, struct conv_err *err)
{
    enum conv_workload_kind work = CONV_AMOUNT_UNKNOWN;
    conv_descriptors_raise();
    run->options = *options;
    if (options->dry_run) {
        run->options.device_text = "cpu"; // nothing is filtered: no device is woken up
        run->options.variant = NULL;
        run->options.decode_on = run->options.encode_on = CONV_CODER_CPU;
    }
    enum conv_status status = open_walk(run, stop, &work, err);
    if (!status)
        status = conv_device_open(&run->device, &run->options, run->filters, run->filter_count,
                                  !options->verbose, // which tells of the device's kernels first
                                  work, stop, err);
    if (!status && options->verbose && !options->dry_run)
        print_variants(&run->device, run->filters, run->filter_count);
    // In place a run without --resume has one in memory.
    if (!status && (options->resume_path || options->in_place))
        status = open_journal(options, run->filters, run->filter_count, stop, &run->journal, err);
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
        .single = !conv_walk_shape(run->walk)->any_folder &&
                  options->operand_count == (options->in_place ? 2 : 3),
        .json = options->json,
        .json_path = options->report_path,
        .progress = (enum conv_when)options->progress,
        .explain = conv_hints_explain,
        .filters = options->operands[0],
        .device = run->device.name,
        .device_async = run->device.ops->async,
        .device_count = run->device.ops->async ? run->device.count : 0,
        .spare = run->device.spare_ops ? run->device.spare_ops->name : NULL,
        .jobs = options->jobs,
        .streams = conv_options_streams(options, run->device.decode_on != CONV_CODER_CPU),
        .samples = run->page.file ? &run->kept : NULL,
        .start_ns = run->start_ns, // what a user waits for is more than images
    };
    status = conv_report_open(&run->report, &run->config, err);
    return status ? status : open_sink(run, stop, err);
}

// Which device did how much, where several did something.
static void describe_shares(struct run *run, const struct conv_totals *totals)
{
    char text[512] = "", name[16];
    double share;
    if (!conv_figures_device(&run->config, totals, 1, name, &share))
        return;
    for (int i = 0; conv_figures_device(&run->config, totals, i, name, &share); i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %.0f %%", i ? ", " : "", name, 100 * share);
    }
    conv_page_fact(&run->page, "shares", "%s", text);
}

static void describe_run(struct run *run, const struct conv_totals *totals)
{
    const struct conv_options *options = &run->options;
    struct conv_page_job *page = &run->page;
    conv_page_fact(page, "images", "%g Mpix, %.4g MB read, %.4g MB written",
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
                                   int code, struct conv_err *err)
{
    struct conv_page *page = &run->page.page;
    char *record = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&record, &size);
    if (!memory)
        return conv_err_errno(err, errno, "cannot write the page");
    conv_json_summary(memory, &run->config, totals, code);
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
    page->samples = &run->kept;
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
static enum conv_status finish(struct run *run, int stop, bool failed, int *code,
                               struct conv_err *err)
{
    struct conv_totals totals;
    struct conv_err later;
    struct conv_report_rest rest;
    conv_report_totals(run->report, &totals);
    *code = exit_code(&totals, stop);
    if (stop > 0) {
        count_rest(&run->options, run->walk, &totals, &rest);
        conv_report_interrupted(run->report, &rest);
    } else if (*code == CONV_EXIT_NOTHING && !failed) {
        conv_stall_begin(true);
        struct conv_walk_count count = conv_walk_count(run->walk);
        print_nothing_found(&run->options, &count);
        conv_stall_end(true);
    }
    enum conv_status status = conv_report_close(run->report, *code, &totals, err);
    enum conv_status traced = conv_trace_finish(run->trace, status ? &later : err);
    status = status ? status : traced;
    enum conv_status paged = CONV_OK;
    if (run->page.file)
        paged = write_page(run, &totals, stop, *code, status ? &later : err);
    return status ? status : paged;
}

int conv_run_main(const struct conv_options *options)
{
    struct conv_err err = {0}, later = {0};
    int code = CONV_EXIT_OK;
    uint64_t start_ns = conv_clock_ns();
    struct run *run = calloc(1, sizeof *run);
    if (!run) {
        conv_err_set(&err, CONV_ERR_MEMORY, "no memory for the run");
        return conv_commands_fail(&err);
    }
    run->start_ns = start_ns;
    // Before the handlers are there: a filter may be read from a pipe that nobody writes to.
    enum conv_status status = conv_commands_parse_chain(options, options->operands[0], run->filters,
                                                        &run->filter_count, &err);
    atomic_int *stop = conv_signals_install();
    conv_stall_begin(true); // for the reader of a report that is a pipe, say; nothing is done yet
    if (!status)
        status = prepare(run, options, stop, &err);
    conv_stall_end(true);
    if (!status)
        status = conv_run_images(&run->options, &run->device, conv_walk_source(run->walk),
                                 run->sink, run->expected, run->report, run->trace, stop, &err);
    conv_signals_watch(NULL);
    enum conv_status finished = conv_sink_finish(run->sink, status ? &later : &err);
    status = status ? status : finished;
    if (run->report) {
        enum conv_status closed =
            finish(run, atomic_load(stop), status != CONV_OK, &code, status ? &later : &err);
        conv_stall_begin(true); // everything is written
        status = status ? status : closed;
    }
    conv_page_close(&run->page);
    conv_trace_free(run->trace);
    conv_samples_free(&run->kept);
    conv_journal_close(run->journal);
    conv_device_close(&run->device);
    conv_walk_close(run->walk);
    free(run);
    return status ? conv_commands_fail(&err) : code;
}
