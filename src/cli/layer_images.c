// SPDX-License-Identifier: MIT
// conv layer WEIGHTS IMAGE... OUTPUT: images and folders, one .npy file each or one for all.
#include <string.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "cli/commands.h"
#include "cli/layer_command.h"
#include "cli/own_files.h"
#include "cli/run_inputs.h"
#include "cli/settings.h"
#include "cli/shards.h"
#include "cli/signals.h"
#include "engine/engine.h"
#include "io/files/paths.h"
#include "io/walk/operands.h"
#include "run/layer_stage.h"
#include "run/pipeline.h"
#include "run/workload.h"

struct images_run {
    const struct conv_options *options;
    const struct conv_places *places;
    const char *output;           // NULL: next to the inputs
    struct conv_shard_plan *plan; // of --shard, or NULL
    bool whole;                   // archives are divided as a whole
    struct conv_selection selection;
    bool collects; // all results go into one file, in a stable order
    struct conv_layer_target target;
    struct conv_layer_stage stage;
    struct conv_layer_collect collect;
    struct conv_sink *sink; // NULL: `collect`, or none
    struct conv_paths_id own_files[CONV_OWN_FILES_MOST];
    struct conv_journal *journal; // of --resume
    struct conv_layer_report report;
};

// --- operands ------------------------------------------------------------------------------------

static bool is_npy(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".npy") == 0;
}

static struct conv_walk_config make_walk(const struct images_run *run, atomic_int *stop)
{
    const struct conv_options *options = run->options;
    struct conv_walk_config config;
    conv_places_fill_walk(run->places, options, &config);
    config.operands.npy = true;
    if (run->collects)
        config.operands.output = NULL;
    config.archives =
        (struct conv_archive_settings){.enabled = true, .as_files = true, .images_only = true};
    config.plan = run->plan;
    config.whole = run->whole;
    config.stop = stop;
    return config;
}

static enum conv_status check_archives(const struct images_run *run, struct conv_err *err)
{
    struct conv_walk *walk = run->selection.walk;
    bool images;
    if (conv_walk_shape(walk)->sink == CONV_SINK_ARCHIVE)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "results are .npy files, not members of an archive: name a folder, or "
                            "a .npy file for all, instead of %s",
                            run->output);
    if (!conv_walk_reads_archives(walk))
        return CONV_OK;
    conv_signals_expect_truncation();
    return run->options->inputs.shard_text && !conv_walk_allows_another(walk, &images)
               ? conv_shards_check(&run->options->inputs, run->whole, err)
               : CONV_OK;
}

// An output whose name ends in .npy is a file, with one result or with all of them.
static enum conv_status open_walk(struct images_run *run, atomic_int *stop, struct conv_err *err)
{
    const struct conv_options *options = run->options;
    const struct conv_places *places = run->places;
    struct conv_own_files_use use = {options->operands[0], places->inputs, places->input_count,
                                     run->output};
    enum conv_status status = conv_own_files_check(options, &use, err);
    if (!status)
        status = conv_places_check_standard(options, run->output, "tensor", err);
    if (status)
        return status;
    bool any = options->inputs.files_from || places->input_count > 1;
    for (int i = 0; i < places->input_count; i++)
        any = any || conv_paths_is_folder(places->inputs[i]) ||
              conv_archive_of_path(places->inputs[i]);
    run->collects = any && run->output && is_npy(run->output);
    if (run->collects && conv_paths_is_folder(run->output))
        return conv_err_set(err, CONV_ERR_USAGE, "the output %s is a folder", run->output);
    if (run->collects && (options->outputs.update || options->outputs.resume_path))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--%s compares files; %s is one file for all images",
                            options->outputs.update ? "update" : "resume", run->output);
    struct conv_walk_config config = make_walk(run, stop);
    status = conv_shards_divide(&run->whole, options, &config, stop, err);
    config.whole = run->whole;
    if (!status)
        status = conv_shards_plan(&run->plan, &options->inputs, &config, stop, err);
    config.plan = run->plan;
    if (!status)
        status = conv_selection_open(&run->selection, &config, options, run->collects, err);
    if (!status)
        status = check_archives(run, err);
    return status || run->collects
               ? status
               : conv_places_check(&options->outputs, conv_walk_shape(run->selection.walk), err);
}

// --- device --------------------------------------------------------------------------------------

// Bytes of a PNG file per pixel, for photographs.
#define BYTES_PER_PIXEL 1.5

// Estimates the operations for all images from the sizes of their files, up to the number from
// which a device certainly pays off.
static double estimate_flops(const struct images_run *run, const struct conv_layer_setup *setup)
{
    const struct conv_layer *layer = &setup->layer;
    double per_pixel = setup->bank.map_count
                           ? 2 * conv_bank_cost(&setup->bank)
                           : 2.0 * layer->maps * layer->channels * layer->kernel_height *
                                 layer->kernel_width / layer->stride / layer->stride;
    double bytes = conv_layer_setup_much(&run->options->machine) / per_pixel * BYTES_PER_PIXEL;
    struct conv_workload_choice much = {
        .plain.byte = 1, .others.byte = 1, .cost = bytes, .name = 1638};
    struct conv_walk_config config = make_walk(run, NULL);
    struct conv_workload workload;
    struct conv_walk *walk;
    struct conv_err err;
    bool images;
    config.archives.enabled = conv_walk_allows_another(run->selection.walk, &images);
    if (!images || !conv_walk_is_repeatable(&config) || conv_walk_open(&walk, &config, &err))
        return 0;
    conv_workload_measure(&workload, conv_walk_source(walk), &much);
    conv_walk_close(walk);
    return workload.kind == CONV_WORKLOAD_LARGE ? 2 * conv_layer_setup_much(&run->options->machine)
                                                : 0;
}

static enum conv_status open_contexts(struct images_run *run, const struct conv_layer_setup *setup,
                                      struct conv_err *err)
{
    const struct conv_options *options = run->options;
    struct conv_layer_stage *stage = &run->stage;
    float divisor = conv_layer_setup_divisor(options, CONV_ELEMENT_U8, true);
    double flops = options->machine.device_text ? 0 : estimate_flops(run, setup);
    stage->pool = setup->pool;
    enum conv_status status = conv_layer_setup_choose(&run->target, &options->machine, flops, err);
    if (!status)
        status = conv_layer_setup_operation(&stage->of_bytes, &run->target, options, setup,
                                            CONV_ELEMENT_U8, divisor, err);
    if (!status)
        status = conv_layer_setup_operation(&stage->of_floats, &run->target, options, setup,
                                            CONV_ELEMENT_F32, 1, err);
    return status;
}

// --- the run -------------------------------------------------------------------------------------

static enum conv_status finish(struct images_run *run, const atomic_int *stop, bool failed,
                               int *code, struct conv_err *err)
{
    int signal = atomic_load(stop);
    *code = conv_run_inputs_exit_code(run->options, &run->selection, run->report.report, signal,
                                      failed, !run->collects); // into one file nothing was written
    conv_run_inputs_report_passed(run->selection.walk, run->report.report);
    conv_shards_report(&run->options->inputs, run->plan, run->selection.walk, run->report.report);
    return conv_layer_report_finish(&run->report, &run->target, NULL, signal, *code, err);
}

static bool exists(const struct images_run *run)
{
    return run->collects && run->options->outputs.skip_existing && conv_paths_exists(run->output);
}

static enum conv_status prepare(struct images_run *run, const struct conv_layer_setup *setup,
                                uint64_t start, atomic_int *stop, struct conv_err *err)
{
    const struct conv_options *options = run->options;
    const struct conv_settings settings = {.options = options, .layer = setup};
    enum conv_status status = open_walk(run, stop, err);
    if (!status)
        status = open_contexts(run, setup, err);
    if (!status && options->outputs.resume_path)
        status = conv_settings_open_journal(&run->journal, &settings, stop, err);
    run->report.total = &run->selection.total;
    if (!status)
        status = conv_layer_report_prepare(&run->report, options, setup, err);
    if (!status)
        status = conv_layer_report_open(&run->report, &run->stage.of_bytes,
                                        !conv_walk_shape(run->selection.walk)->any_folder &&
                                            run->places->input_count == 1,
                                        start, err);
    if (!status && !run->collects)
        status = conv_run_inputs_open_sink(&run->sink, options, &run->selection, run->output,
                                           run->journal, run->own_files, stop, err);
    return status;
}

static void fill_stage(struct images_run *run, const struct conv_layer_setup *setup,
                       const atomic_int *stop)
{
    const struct conv_options *options = run->options;
    struct conv_layer_stage *stage = &run->stage;
    stage->gray = options->filter.gray || setup->bank.map_count;
    stage->to_255 =
        conv_options_given(options, "range") && options->filter.layer.range == CONV_LAYER_RANGE_255;
    stage->collect = run->collects ? &run->collect : NULL;
    run->collect = (struct conv_layer_collect){
        .path = run->output,
        .element = conv_operation_output(&stage->of_bytes),
        .no_save = options->outputs.no_save || options->outputs.dry_run,
        .fsync = options->outputs.fsync,
        .stop = stop,
        .watch = conv_signals_watch,
        .writer = {.force = options->outputs.force},
    };
}

static enum conv_status filter_images(struct images_run *run, atomic_int *stop,
                                      struct conv_err *err)
{
    const struct conv_options *options = run->options;
    struct conv_backend *none[1] = {NULL};
    struct conv_pipeline_config config = {
        .ops = &conv_device_cpu, // each worker has images of its own
        .backends = none,
        .device_count = 1,
        .layer = &run->stage,
        .jobs = options->machine.jobs,
        .streams = 1,
        .max_pixels = options->inputs.max_pixels,
        .codec = {.level = -1, .stop = stop},
        .output_type = CONV_OUTPUT_F32,
        .first_frame = options->inputs.first_frame,
        .sink = run->sink,
        .resume = options->outputs.resume_path != NULL,
        .skip_existing = options->outputs.skip_existing,
        .update = options->outputs.update,
        .dry_run = options->outputs.dry_run,
        .no_save = options->outputs.no_save || (!run->sink && !run->collects),
        .fail_fast = options->outputs.fail_fast,
        .trace = run->report.trace,
        .stop = stop,
    };
    bool async = run->target.place != CONV_ON_CPU;
    (void)conv_ledger_set(&config, run->selection.source,
                          conv_options_mem_limit(&options->machine, async),
                          options->machine.mem_limit > 0);
    enum conv_status status =
        conv_pipeline_run(&config, run->selection.source, run->report.report, err);
    if (!status && run->collects && conv_cancel_is_asked(stop))
        status = conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
    enum conv_status closed = conv_layer_collect_close(&run->collect, !status, status ? NULL : err);
    return status ? status : closed;
}

enum conv_status conv_layer_run_images(const struct conv_options *options,
                                       const struct conv_places *places,
                                       struct conv_layer_setup *setup, atomic_int *stop, int *code,
                                       struct conv_err *err)
{
    struct images_run run = {
        .options = options,
        .places = places,
        .output = places->output,
    };
    struct conv_err later;
    conv_signals_begin_work(); // a layer of one image may take long
    enum conv_status status = prepare(&run, setup, conv_clock_ns(), stop, err);
    if (!status)
        fill_stage(&run, setup, stop);
    if (!status && exists(&run)) {
        struct conv_record record = {
            .input = places->input_count > 0 ? places->inputs[0] : options->inputs.files_from,
            .output = run.output,
            .outcome = CONV_OUTCOME_SKIPPED,
            .reason = CONV_SINK_EXISTS,
        };
        conv_report_file(run.report.report, &record);
    } else if (!status) {
        if (conv_report_has_progress(run.report.report))
            conv_selection_count_ahead(&run.selection);
        status = filter_images(&run, stop, err);
    }
    conv_signals_end_work();
    conv_signals_watch(NULL);
    enum conv_status finished = conv_sink_finish(run.sink, status ? &later : err);
    status = status ? status : finished;
    if (run.report.report) {
        enum conv_status closed =
            finish(&run, stop, status != CONV_OK, code, status ? &later : err);
        status = status ? status : closed;
    }
    conv_operation_close(&run.stage.of_bytes);
    conv_operation_close(&run.stage.of_floats);
    conv_layer_report_close(&run.report);
    conv_journal_close(run.journal);
    conv_selection_close(&run.selection);
    conv_shard_plan_close(run.plan);
    return status;
}
