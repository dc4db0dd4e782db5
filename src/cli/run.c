// SPDX-License-Identifier: MIT
// The main job: conv FILTER [options] INPUT... OUTPUT
#include "cli/run.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/own_files.h"
#include "cli/run_inputs.h"
#include "cli/run_page.h"
#include "cli/settings.h"
#include "cli/shards.h"
#include "cli/signals.h"
#include "engine/engine.h"
#include "io/files/paths.h"
#include "io/sink.h"
#include "report/figures.h"
#include "run/pipeline.h"
#include "run/streams.h"

// --- images -------------------------------------------------------------------------------------

// Makes freed memory return to the system. By default glibc raises its threshold to the size of a
// large block that is freed, and each thread then keeps blocks of that size: sixteen workers with
// files of 10 MiB held 300 MiB that way under a limit of 24.
// Where mapped addresses count, each further arena maps 64 MiB.
static void give_memory_back(bool addresses_count)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    if (addresses_count)
        (void)mallopt(M_ARENA_MAX, 1);
#else
    (void)addresses_count;
#endif
}

enum conv_status conv_run_images(const struct conv_options *options, struct conv_device *device,
                                 const struct conv_filter *filters, struct conv_source *source,
                                 struct conv_sink *sink, uint64_t expected,
                                 struct conv_report *report, struct conv_trace *trace,
                                 atomic_int *stop, struct conv_err *err)
{
    bool decodes = device->decode_on != CONV_CODER_CPU;
    // With more streams more members finish out of order, and early ones have to be copied: 16,000
    // photographs from tar to tar take 1.21 s with 6 streams and 1.41 with 12.
    bool grows = !options->machine.streams &&
                 !(decodes && !options->outputs.no_save && conv_sink_has_order(sink));
    struct conv_pipeline_config config = {
        .ops = device->ops,
        .backends = device->backends,
        .device_count = device->count,
        .device_names = device->names,
        .openings = device->openings,
        .filter_count = device->filter_count,
        .fallback_ops = device->fallback_ops,
        .fallback = device->fallback,
        .jobs = options->machine.jobs,
        .streams = conv_options_streams(&options->machine, decodes),
        .most_streams = grows ? conv_streams_most(decodes) : 0,
        .group_bytes = conv_options_group_bytes(&options->machine, decodes),
        .max_pixels = options->inputs.max_pixels,
        .codec = options->outputs.png,
        .output_format = options->outputs.to,
        .alpha = options->filter.alpha,
        .output_type = (enum conv_output_type)options->outputs.type,
        .blend = options->filter.blend,
        .deep = conv_filter_needs_16_bits(filters, device->filter_count),
        .decode_on = device->decode_on,
        .encode_on = device->encode_on,
        .strip = options->outputs.strip,
        .first_frame = options->inputs.first_frame,
        .sink = sink,
        .expected_images = expected,
        .resume = options->outputs.resume_path != NULL,
        .skip_existing = options->outputs.skip_existing,
        .update = options->outputs.update,
        .dry_run = options->outputs.dry_run,
        .no_save = options->outputs.no_save || !sink,
        .fail_fast = options->outputs.fail_fast || options->outputs.on_error == CONV_ON_ERROR_STOP,
        .copy_failed = options->outputs.on_error == CONV_ON_ERROR_COPY,
        .trace = trace,
        .stop = stop,
        .left_threads = &device->left_threads,
        .leaves_memory = device->is_left,
    };
    config.codec.stop = stop;
    config.blend.gray = options->filter.gray;
    give_memory_back(conv_ledger_set(&config, source,
                                     conv_options_mem_limit(&options->machine, device->ops->async),
                                     options->machine.mem_limit > 0));
    return conv_pipeline_run(&config, source, report, err);
}

// --- the command ---------------------------------------------------------------------------------

// The state of conv_run_main.
struct run {
    uint64_t start_ns;
    struct conv_options options; // as they take effect
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count;
    struct conv_device device;
    struct conv_run_inputs inputs;
    struct conv_paths_id own_files[CONV_OWN_FILES_MOST];
    struct conv_sink *sink;
    struct conv_report_config config;
    struct conv_journal *journal; // of --resume
    struct conv_report *report;
    struct conv_trace *trace;
    struct conv_page page;
    struct conv_samples kept;
};

// `options`: as given.
static enum conv_status open_journal(struct run *run, const struct conv_options *options,
                                     atomic_int *stop, struct conv_err *err)
{
    struct conv_walk *walk = run->inputs.selection.walk;
    const struct conv_places *places = &run->inputs.places;
    int targets;
    struct conv_settings settings = {
        .options = options,
        .filters = run->filters,
        .filter_count = run->filter_count,
        .members = conv_walk_shape(walk)->sink == CONV_SINK_ARCHIVE,
        .inputs = places->inputs,
    };
    const struct conv_archive_target *target = conv_walk_targets(walk, &targets);
    if (settings.members && targets == 1 && strcmp(target->path, places->output) == 0)
        settings.input_count = places->input_count;
    return conv_settings_open_journal(&run->journal, &settings, stop, err);
}

// Reports the variant of each filter, for each device, since they may differ.
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

static enum conv_status open_report(struct run *run, const struct conv_options *options,
                                    struct conv_err *err)
{
    run->config = (struct conv_report_config){
        .quiet = options->report.quiet,
        .verbose = options->report.verbose,
        .dry_run = options->outputs.dry_run,
        .each_line = options->inputs.watch,
        .single = !conv_walk_shape(run->inputs.selection.walk)->any_folder &&
                  run->inputs.places.input_count == 1,
        .json = options->report.json,
        .json_path = options->report.path,
        .progress = options->report.progress,
        .total = &run->inputs.selection.total,
        .explain = conv_errors_explain,
        .filters = options->operands[0],
        .device = run->device.name,
        .device_async = run->device.ops->async,
        .device_count = run->device.ops->async ? run->device.count : 0,
        .fallback = run->device.fallback_ops ? run->device.fallback_ops->name : NULL,
        .jobs = options->machine.jobs,
        .cores = options->machine.limits->cores,
        .streams = conv_options_streams(&options->machine, run->device.decode_on != CONV_CODER_CPU),
        .samples = run->page.file ? &run->kept : NULL,
        .shard = conv_shards_record(&options->inputs),
        .start_ns = run->start_ns, // includes start-up
        .stall = conv_signals_stall(),
    };
    return conv_report_open(&run->report, &run->config, err);
}

// Opens everything that can fail before the first image, the files of the run itself included.
static enum conv_status prepare(struct run *run, const struct conv_options *options,
                                atomic_int *stop, struct conv_err *err)
{
    conv_descriptors_raise();
    run->options = *options;
    if (options->outputs.dry_run) {
        run->options.machine.device_text = "cpu"; // nothing is filtered: no device is opened
        run->options.machine.variant = NULL;
        run->options.machine.decode_on = run->options.machine.encode_on = CONV_CODER_CPU;
    }
    enum conv_status status = conv_run_inputs_open(&run->inputs, &run->options, stop, err);
    if (!status && conv_walk_reads_archives(run->inputs.selection.walk))
        conv_signals_expect_truncation();
    if (!status)
        status = conv_device_open(&run->device, &run->options, run->filters, run->filter_count,
                                  !options->report.verbose, // print_variants needs open devices
                                  run->inputs.work, stop, err);
    if (!status && options->report.verbose && !options->outputs.dry_run)
        print_variants(&run->device, run->filters, run->filter_count);
    // --in-place without --resume keeps a journal in memory.
    if (!status && (options->outputs.resume_path || options->outputs.in_place))
        status = open_journal(run, options, stop, err);
    if (!status)
        status = conv_run_inputs_skip(&options->outputs, &run->inputs.selection, run->journal, err);
    if (!status)
        status = conv_run_page_open(&run->page, &options->report, err);
    if (!status && (options->report.trace_path || options->report.html_path))
        status = conv_trace_open(&run->trace, options->report.trace_path, run->page.file,
                                 conv_signals_stall(), err);
    if (!status)
        status = open_report(run, options, err);
    return status ? status
                  : conv_run_inputs_open_sink(&run->sink, &run->options, &run->inputs.selection,
                                              run->inputs.places.output, run->journal,
                                              run->own_files, stop, err);
}

// Each device's share of the work, if several took part.
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
    struct conv_page *page = &run->page;
    conv_run_page_describe_images(page, &options->outputs, totals);
    conv_device_look(&run->device);
    conv_run_page_describe(page, options, &run->device, run->filters, run->filter_count);
    conv_page_fact(page, "workers", "%d", options->machine.jobs);
    bool decodes = run->device.decode_on != CONV_CODER_CPU;
    if (run->device.ops->async) {
        int streams = conv_options_streams(&options->machine, decodes);
        char more[40] = "";
        if (run->config.streams > streams)
            snprintf(more, sizeof more, " at first, then up to %d", run->config.streams);
        conv_page_fact(page, "streams", "%d%s%s, groups of %zu MiB", streams, more,
                       run->device.count > 1 ? " per device" : "",
                       conv_options_group_bytes(&options->machine, decodes) >> 20);
    }
    describe_shares(run, totals);
}

static enum conv_status write_page(struct run *run, const struct conv_totals *totals, int stop,
                                   int code, struct conv_err *err)
{
    struct conv_page *page = &run->page;
    page->kind = run->options.outputs.dry_run ? "conv, a dry run" : "conv, a run";
    page->timelines[0].trace = run->trace;
    page->timeline_count = 1;
    page->samples = &run->kept;
    describe_run(run, totals);
    // With --in-place the originals are gone.
    if (!run->options.outputs.no_save && !run->options.outputs.dry_run &&
        !run->options.outputs.in_place)
        conv_page_take_pairs(&run->page, &run->kept);
    return conv_run_page_write(&run->page, "filtered with", &run->config, totals, stop, code, err);
}

// The archives that are not complete yet will not be.
static void settle(struct run *run, const struct conv_err *failure)
{
    char text[CONV_ERRORS_SIZE] = "";
    bool lost = failure && failure->status != CONV_ERR_CANCELLED;
    if (lost)
        conv_errors_explain(text, sizeof text, failure);
    conv_pipeline_settle(run->report, run->inputs.selection.walk, lost ? text : NULL);
}

// A failure that is not one image's. *code: of the run so far.
static void say_failure(struct run *run, const struct conv_err *failure, int *code)
{
    char text[CONV_ERRORS_SIZE];
    bool interrupted = *code >= CONV_EXIT_SIGNAL;
    if (!failure->status || (interrupted && failure->status == CONV_ERR_CANCELLED))
        return;
    conv_report_warn(run->report, conv_errors_explain(text, sizeof text, failure));
    *code = interrupted ? *code : conv_errors_code_of(failure);
}

// Closes the trace, the page and the report, each even if another fails. `failure`: of the run, or
// NULL. The closing line follows all messages. Returns the exit code.
static int finish(struct run *run, int stop, const struct conv_err *failure)
{
    struct conv_totals totals;
    struct conv_err err = {0};
    settle(run, failure);
    int code = conv_run_inputs_exit_code(&run->options, &run->inputs.selection, run->report, stop,
                                         failure, true);
    if (failure)
        say_failure(run, failure, &code);
    conv_run_inputs_report_passed(run->inputs.selection.walk, run->report);
    conv_shards_report(&run->options.inputs, run->inputs.plan, run->inputs.selection.walk,
                       run->report);
    if (!run->options.report.quiet && conv_places_was_replaced(&run->inputs.places))
        conv_report_say("replaced %s", run->inputs.places.output);
    run->config.streams = conv_report_most_streams(run->report); // for the page
    if (conv_trace_finish(run->trace, &err))
        say_failure(run, &err, &code);
    conv_report_finish(run->report, &totals);
    if (run->page.file && write_page(run, &totals, stop, code, &err))
        say_failure(run, &err, &code);
    if (conv_report_summarize(run->report, code, NULL, &err))
        say_failure(run, &err, &code);
    conv_report_end(run->report);
    return code;
}

static void close_run(struct run *run)
{
    conv_page_close(&run->page);
    conv_trace_free(run->trace);
    conv_samples_free(&run->kept);
    conv_journal_close(run->journal);
    conv_device_close(&run->device);
    struct conv_shard_plan *plan = run->inputs.plan;
    conv_run_inputs_close(&run->inputs);
    conv_shard_plan_close(plan);
    free(run);
}

int conv_run_main(const struct conv_options *options)
{
    struct conv_err err = {0}, later = {0};
    uint64_t start_ns = conv_clock_ns();
    struct run *run = calloc(1, sizeof *run);
    if (!run) {
        conv_err_set(&err, CONV_ERR_MEMORY, "no memory for the run");
        return conv_errors_fail(&err);
    }
    run->start_ns = start_ns;
    conv_device_set_up_process(&options->machine);
    // Before the handlers are installed: reading a filter from a pipe without a writer then ends at
    // the first signal.
    enum conv_status status = conv_commands_parse_chain(options, options->operands[0], run->filters,
                                                        &run->filter_count, &err);
    if (!status && options->outputs.type == CONV_OUTPUT_F32)
        status = conv_filter_check_floats(run->filters, run->filter_count, &err);
    atomic_int *stop = conv_signals_install();
    conv_stall_begin(conv_signals_stall()); // opening a report that is a pipe may wait
    conv_signals_begin_work();
    if (!status)
        status = prepare(run, options, stop, &err);
    conv_signals_end_work();
    conv_stall_end(conv_signals_stall());
    if (!status && conv_report_has_progress(run->report))
        conv_selection_count_ahead(&run->inputs.selection);
    if (!status) {
        run->device.is_left = conv_device_may_be_left(&run->device);
        status =
            conv_run_images(&run->options, &run->device, run->filters, run->inputs.selection.source,
                            run->sink, run->inputs.expected, run->report, run->trace, stop, &err);
    }
    conv_signals_watch(NULL);
    enum conv_status finished = conv_sink_finish(run->sink, status ? &later : &err);
    status = status ? status : finished;
    int signal = atomic_load(stop), code = CONV_EXIT_SIGNAL + signal;
    if (run->report) {
        code = finish(run, signal, status ? &err : NULL);
        conv_signals_set_final(code);
        conv_stall_begin(conv_signals_stall()); // everything is written
    } else if (signal <= 0 || status != CONV_ERR_CANCELLED) {
        code = conv_errors_fail(&err);
    }
    close_run(run);
    return code;
}
