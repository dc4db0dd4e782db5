// SPDX-License-Identifier: MIT
// The main job: conv FILTER [options] INPUT... OUTPUT, and that of conv layer over images.
#include "cli/run.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "cli/commands.h"
#include "cli/run_inputs.h"
#include "cli/signals.h"
#include "io/files/paths.h"
#include "io/sink.h"
#include "report/record.h"
#include "run/pipeline.h"

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
                                 struct conv_source *source, struct conv_sink *sink,
                                 uint64_t expected, struct conv_report *report,
                                 struct conv_trace *trace, atomic_int *stop, struct conv_err *err)
{
    const struct conv_layer_stage *layer = device->layer;
    bool decodes = device->decode_on != CONV_CODER_CPU, async = device->ops->async;
    int ordinal;
    if (layer)
        async = conv_operation_device(&layer->of_bytes, &ordinal)->async;
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
        .layer = layer,
        .jobs = options->machine.jobs,
        .streams = conv_options_streams(&options->machine, decodes),
        .most_streams = grows ? conv_pipeline_most_streams(decodes) : 0,
        .group_bytes = conv_options_group_bytes(&options->machine, decodes),
        .max_pixels = options->inputs.max_pixels,
        .maps_inputs = true,
        .codec = options->outputs.codec,
        .output_format = options->outputs.to,
        .alpha = options->filter.alpha,
        .output_type = layer ? CONV_OUTPUT_F32 : (enum conv_output_type)options->outputs.type,
        .blend = options->filter.blend,
        .decode_on = device->decode_on,
        .encode_on = device->encode_on,
        .strip = options->outputs.strip,
        .reproducible = options->outputs.reproducible,
        .auto_orient = options->outputs.auto_orient,
        .first_frame = options->inputs.first_frame,
        .sink = sink,
        .expected_images = expected,
        .resume = options->outputs.resume_path != NULL,
        .skip_existing = options->outputs.skip_existing,
        .update = options->outputs.update,
        .dry_run = options->outputs.dry_run,
        .no_save = options->outputs.no_save || !(sink || (layer && layer->collect)),
        .fail_fast = options->outputs.fail_fast || options->outputs.on_error == CONV_ON_ERROR_STOP,
        .trace = trace,
        .stop = stop,
        .left_threads = layer ? NULL : &device->left_threads,
        .leaves_memory = device->is_left,
    };
    config.codec.stop = stop;
    if (layer) // which takes the luminance itself
        config.blend.gray = false;
    bool addresses_count =
        conv_budget_set(&config, source, conv_options_mem_limit(&options->machine, async),
                        options->machine.mem_limit > 0);
    if (!layer)
        give_memory_back(addresses_count);
    return conv_pipeline_run(&config, source, report, err);
}

// --- the command ---------------------------------------------------------------------------------

struct run {
    uint64_t start_ns;
    struct conv_options options; // as they take effect
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count;
    const struct conv_layer_setup *setup; // instead of filters; or NULL
    struct conv_layer_images layer;
    struct conv_device device;
    struct conv_run_inputs inputs;
    struct conv_paths_id own_files[CONV_OWN_FILES_MOST];
    struct conv_sink *sink;
    struct conv_journal *journal; // of --resume and --in-place
    char own_journal[PATH_MAX];   // of --in-place without --resume; "": in memory
    char advice[PATH_MAX + 32], where[PATH_MAX + 8]; // conv_report_config.where
    struct conv_run_report report;
};

// With fewer descriptors the run needs all of them for images.
#define LEAST_DESCRIPTORS 64

// In the folder of the user for such files. "" if there is none, or it cannot be made.
static void name_own_journal(char path[PATH_MAX])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool is_set = state && state[0] == '/', is_home = home && home[0] == '/';
    struct rlimit files;
    bool enough = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur >= LEAST_DESCRIPTORS;
    int length = snprintf(path, PATH_MAX, "%s%s/conv/in-place-%lld-%d.journal",
                          is_set    ? state
                          : is_home ? home
                                    : "",
                          is_set ? "" : "/.local/state", (long long)time(NULL), (int)getpid());
    if (!enough || (!is_set && !is_home) || length >= PATH_MAX ||
        conv_paths_make_parent(path, NULL))
        path[0] = '\0';
}

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
        .layer = run->setup,
        .members = conv_walk_shape(walk)->sink == CONV_SINK_ARCHIVE,
        .inputs = places->inputs,
        .journal = options->outputs.resume_path,
    };
    const struct conv_archive_target *target = conv_walk_targets(walk, &targets);
    if (settings.members && targets == 1 && strcmp(target->path, places->output) == 0)
        settings.input_count = places->input_count;
    bool several = conv_walk_shape(walk)->any_folder || places->input_count > 1;
    if (!settings.journal && several && !options->outputs.dry_run && !options->outputs.no_save) {
        settings.journal = run->own_journal;
        name_own_journal(run->own_journal);
        if (run->own_journal[0] && !conv_settings_open_journal(&run->journal, &settings, stop, err))
            return CONV_OK;
        run->own_journal[0] = '\0';
        settings.journal = NULL;
        if (!options->report.quiet)
            conv_report_say("there is no place for a journal, so that an interrupted run cannot be "
                            "continued (--resume FILE keeps one)");
    }
    return conv_settings_open_journal(&run->journal, &settings, stop, err);
}

// A journal that the run itself has named is kept for what a signal or failures have left to be
// done: without it, done images would be filtered again.
static void keep_own_journal(struct run *run, bool is_cut)
{
    const struct conv_totals *totals = conv_report_totals(run->report.report);
    if (!run->own_journal[0] || totals->done == 0 || (!is_cut && totals->failed == 0))
        return;
    snprintf(run->advice, sizeof run->advice, "--resume %s continues", run->own_journal);
    run->inputs.advice = run->advice;
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

static enum conv_status open_device(struct run *run, const struct conv_options *options,
                                    atomic_int *stop, struct conv_err *err)
{
    if (run->setup)
        return conv_layer_images_open(&run->layer, &run->device, options, run->setup, &run->inputs,
                                      stop, err);
    enum conv_status status =
        conv_device_open(&run->device, &run->options, run->filters, run->filter_count,
                         !options->report.verbose, // print_variants needs open devices
                         run->inputs.work, stop, err);
    if (!status && options->report.verbose && !options->outputs.dry_run)
        print_variants(&run->device, run->filters, run->filter_count);
    return status;
}

static enum conv_status open_report(struct run *run, const struct conv_options *options,
                                    struct conv_err *err)
{
    const struct conv_device *device = &run->device;
    enum conv_sink_kind sink = conv_walk_shape(run->inputs.selection.walk)->sink;
    const char *output = run->inputs.places.output;
    bool is_folder = sink == CONV_SINK_FOLDER && !run->inputs.collects;
    if (options->outputs.in_place)
        strcpy(run->where, options->outputs.no_save ? "" : " replaced");
    else if (output && sink != CONV_SINK_STANDARD && !options->outputs.no_save)
        snprintf(run->where, sizeof run->where, " -> %s%s", output,
                 is_folder && output[strlen(output) - 1] != '/' ? "/" : "");
    run->report.config = (struct conv_report_config){
        .single = !conv_walk_shape(run->inputs.selection.walk)->any_folder &&
                  run->inputs.places.input_count == 1,
        .progress = options->report.progress,
        .total = &run->inputs.selection.total,
        .device = device->name,
        .where = run->where,
        .device_async = device->ops->async,
        .device_count = device->ops->async ? device->count : 0,
        .fallback = device->fallback_ops ? device->fallback_ops->name : NULL,
        .streams = conv_options_streams(&options->machine, device->decode_on != CONV_CODER_CPU),
        .start_ns = run->start_ns, // includes start-up
    };
    return conv_run_report_open(&run->report, options, err);
}

// Opens everything that can fail before the first image, the files of the run itself included.
static enum conv_status prepare(struct run *run, const struct conv_options *options,
                                atomic_int *stop, struct conv_err *err)
{
    struct conv_workload_choice choice;
    conv_descriptors_raise();
    run->options = *options;
    if (!run->setup)
        conv_options_choose_alpha(&run->options.filter, options, run->filters, run->filter_count);
    if (options->outputs.dry_run && !run->setup) {
        run->options.machine.device_text = "cpu"; // nothing is filtered: no device is opened
        run->options.machine.variant = NULL;
        run->options.machine.decode_on = run->options.machine.encode_on = CONV_CODER_CPU;
    }
    bool chooses = run->setup ? conv_layer_images_choice(&run->options, run->setup, &choice)
                              : conv_device_choice(&run->options, &choice);
    enum conv_status status =
        conv_run_inputs_open(&run->inputs, &run->options, chooses ? &choice : NULL, stop, err);
    conv_signals_expect_truncation();
    if (!status)
        status = open_device(run, options, stop, err);
    if (!status && (options->outputs.resume_path || options->outputs.in_place))
        status = open_journal(run, options, stop, err);
    if (!status)
        status = conv_run_inputs_skip(&options->outputs, &run->inputs.selection, run->journal, err);
    if (!status)
        status = open_report(run, options, err);
    return status || run->inputs.collects
               ? status
               : conv_run_inputs_open_sink(&run->sink, &run->options, &run->inputs.selection,
                                           run->inputs.places.output, run->journal, run->own_files,
                                           stop, err);
}

// --- the page ------------------------------------------------------------------------------------

// Each device's share of the work, if several took part.
static void describe_shares(struct conv_run_report *report)
{
    char text[512] = "", name[16];
    double share;
    if (!conv_figures_device(&report->config, &report->totals, 1, name, &share))
        return;
    for (int i = 0; conv_figures_device(&report->config, &report->totals, i, name, &share); i++)
        conv_text_add(text, sizeof text, ", ", "%s %.0f %%", name, 100 * share);
    conv_page_fact(&report->page, "shares", "%s", text);
}

static void describe_run(struct run *run)
{
    const struct conv_options *options = &run->options;
    struct conv_device *device = &run->device;
    struct conv_page *page = &run->report.page;
    bool decodes = device->decode_on != CONV_CODER_CPU;
    conv_device_look(device);
    conv_page_describe(page, &(struct conv_page_setting){
                                 .filters = run->filters,
                                 .filter_count = run->filter_count,
                                 .border = options->filter.border,
                                 .border_value = options->filter.border_value,
                                 .names = device->names,
                                 .ordinals = device->ordinals,
                                 .backends = device->backends,
                                 .device_count = device->count,
                                 .ops = device->ops,
                                 .fallback_ops = device->fallback_ops,
                                 .fallback = device->fallback,
                                 .limits = options->machine.limits,
                             });
    conv_page_fact(page, "workers", "%d", options->machine.jobs);
    if (device->ops->async) {
        int streams = conv_options_streams(&options->machine, decodes);
        char more[40] = "";
        if (run->report.config.streams > streams)
            snprintf(more, sizeof more, " at first, then up to %d", run->report.config.streams);
        conv_page_fact(page, "streams", "%d%s%s, groups of %zu MiB", streams, more,
                       device->count > 1 ? " per device" : "",
                       conv_options_group_bytes(&options->machine, decodes) >> 20);
    }
    describe_shares(&run->report);
    // With --in-place the originals are gone.
    if (!options->outputs.no_save && !options->outputs.dry_run && !options->outputs.in_place)
        conv_page_take_pairs(page, &run->report.samples);
}

// --- the command ---------------------------------------------------------------------------------

// Ends the report, even if a part of it fails. `failure`: of the run, or NULL. Returns the exit
// code.
static int finish(struct run *run, int stop, const struct conv_err *failure)
{
    struct conv_run_report *report = &run->report;
    conv_pipeline_settle(report->report, run->inputs.selection.walk, failure);
    keep_own_journal(run, stop > 0 || failure);
    int code = conv_run_inputs_finish(&run->inputs, &run->options, report->report, stop, failure);
    conv_run_report_finish(report, stop, code, failure);
    if (!run->options.report.quiet && !run->setup && conv_places_was_replaced(&run->inputs.places))
        conv_report_say("replaced %s", run->inputs.places.output);
    if (report->page.file) {
        conv_run_report_describe_images(report);
        if (run->setup)
            conv_layer_describe(report, run->setup, &run->layer.target, NULL);
        else
            describe_run(run);
    }
    code = conv_run_report_end(report);
    if (stop <= 0 && run->advice[0])
        conv_report_say("%s", run->advice);
    return code;
}

static enum conv_status process_images(struct run *run, atomic_int *stop, struct conv_err *err)
{
    struct conv_source *source = run->inputs.selection.source;
    if (run->setup && conv_layer_images_exist(&run->inputs, &run->options, run->report.report))
        return CONV_OK;
    if (conv_report_has_progress(run->report.report))
        conv_selection_count_ahead(&run->inputs.selection);
    run->device.is_left = !run->setup && conv_device_may_be_left(&run->device);
    enum conv_status status =
        conv_run_images(&run->options, &run->device, source, run->sink, run->inputs.expected,
                        run->report.report, run->report.trace, stop, err);
    return run->setup ? conv_layer_images_finish(&run->layer, status, stop, err) : status;
}

static void close_run(struct run *run)
{
    conv_run_report_close(&run->report);
    conv_journal_close(run->journal);
    if (run->own_journal[0] && !run->advice[0])
        unlink(run->own_journal);
    conv_layer_images_close(&run->layer);
    if (!run->setup)
        conv_device_close(&run->device);
    conv_run_inputs_close(&run->inputs);
}

static int run_images(struct run *run, const struct conv_options *options)
{
    struct conv_err err = {0}, later = {0};
    atomic_int *stop = conv_signals_install();
    conv_stall_begin(conv_signals_stall()); // opening a report that is a pipe may wait
    conv_signals_begin_work();
    enum conv_status status = prepare(run, options, stop, &err);
    conv_stall_end(conv_signals_stall());
    if (!run->setup) // a layer of one image may take long, and is not cancelled
        conv_signals_end_work();
    if (!status)
        status = process_images(run, stop, &err);
    if (run->setup)
        conv_signals_end_work();
    conv_signals_watch(NULL);
    enum conv_status finished = conv_sink_finish(run->sink, status ? &later : &err);
    status = status ? status : finished;
    int signal = atomic_load(stop), code = CONV_EXIT_SIGNAL + signal;
    if (run->report.report) {
        code = finish(run, signal, status ? &err : NULL);
        conv_signals_set_final(code);
        conv_stall_begin(conv_signals_stall()); // everything is written
    } else if (signal <= 0 || status != CONV_ERR_CANCELLED) {
        code = conv_errors_fail(&err);
    }
    close_run(run);
    return code;
}

int conv_run_layer(const struct conv_options *options, const struct conv_layer_setup *setup)
{
    struct conv_err err = {0};
    uint64_t start_ns = conv_clock_ns();
    struct run *run = calloc(1, sizeof *run);
    enum conv_status status = run ? CONV_OK : conv_err_memory(&err, "no memory for the run");
    // Before the handlers are installed: reading a filter from a pipe without a writer then ends at
    // the first signal.
    if (!status && !setup) {
        conv_device_set_up_process(&options->machine);
        status = conv_commands_parse_chain(options, options->operands[0], run->filters,
                                           &run->filter_count, &err);
    }
    if (!status) {
        run->start_ns = start_ns;
        run->setup = setup;
    }
    int code = status ? conv_errors_fail(&err) : run_images(run, options);
    free(run);
    return code;
}

int conv_run_main(const struct conv_options *options)
{
    return conv_run_layer(options, NULL);
}
