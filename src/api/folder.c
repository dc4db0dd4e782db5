// SPDX-License-Identifier: MIT
// The program's main job as a function: as src/cli/run.c, without a terminal, signals, or settings
// of the process.
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/lock.h"
#include "filter/filter.h"
#include "io/files/formats.h"
#include "io/files/paths.h"
#include "io/walk/operands.h"
#include "io/walk/walk.h"
#include "run/pipeline.h"

#define PROGRESS_NS 100000000u // between two calls of the callback

struct run {
    conv_context *context;
    const char *filter, *output; // of the caller
    const char *const *inputs;
    int input_count;
    conv_folder_options options;
    enum conv_status status;      // of the call
    const struct conv_format *to; // of outputs; NULL: as the inputs
    struct conv_filter *filters;
    struct conv_backend_config backend_config;
    struct conv_backend *backend;
    struct conv_walk *walk;
    struct conv_shard_plan *plan; // NULL: all images
    struct conv_report_total found;
    struct conv_sink *sink;
    struct conv_report *report;
    struct conv_limits limits;
    struct conv_division memory;
    struct conv_lock lock; // of the callback and what it is given
    conv_folder_progress progress;
    uint64_t last_ns; // of the callback
    atomic_int stop;
};

static void update_found(struct run *run)
{
    run->progress.listed = atomic_load(&run->found.is_complete);
    run->progress.found = atomic_load(&run->found.images);
}

static void update_progress(struct run *run, const struct conv_totals *totals)
{
    conv_folder_progress *progress = &run->progress;
    progress->done = totals->done;
    progress->failed = totals->failed;
    progress->skipped = totals->skipped;
    update_found(run);
}

static bool is_due(const struct run *run) CONV_NEEDS(run->lock)
{
    return conv_clock_ns() - run->last_ns >= PROGRESS_NS;
}

// `failed`: the image whose failure is the cause of the call, or NULL.
static void call_back(struct run *run, const struct conv_record *failed) CONV_NEEDS(run->lock)
{
    run->last_ns = conv_clock_ns();
    run->progress.path = failed ? failed->input : NULL;
    run->progress.message = failed ? failed->reason : NULL;
    if (run->options.progress && run->options.progress(run->options.user, &run->progress))
        atomic_store(&run->stop, 1);
    run->progress.path = run->progress.message = NULL;
}

static void listen(void *user, const struct conv_totals *totals, const struct conv_record *record)
{
    struct run *run = user;
    bool failed = record->outcome == CONV_OUTCOME_FAILED;
    conv_lock_acquire(&run->lock);
    update_progress(run, totals);
    if (failed || is_due(run))
        call_back(run, failed ? record : NULL);
    conv_lock_release(&run->lock);
}

// Called between images, too, so that a callback can end a run whose images take long.
static void look(void *user)
{
    struct run *run = user;
    conv_lock_acquire(&run->lock);
    if (is_due(run)) {
        update_found(run);
        call_back(run, NULL);
    }
    conv_lock_release(&run->lock);
}

// --- opening -------------------------------------------------------------------------------------

static enum conv_status check_call(struct run *run, struct conv_err *err)
{
    const conv_folder_options *options = &run->options;
    struct conv_codec_config codec = {.level = options->level};
    if (!run->filter || !run->output || (run->input_count > 0 && !run->inputs))
        return conv_err_usage(err, "`%s` is NULL",
                              !run->filter   ? "filter"
                              : !run->output ? "output"
                                             : "inputs");
    if (run->input_count < 1)
        return conv_err_usage(err, "there are no inputs");
    for (int i = 0; i < run->input_count; i++) {
        if (!run->inputs[i])
            return conv_err_usage(err, "inputs[%d] is NULL", i);
        if (conv_paths_is_standard(run->inputs[i]))
            return conv_err_usage(
                err, "standard input is not read; for a file of the name '-' use './-'");
    }
    if (conv_paths_is_standard(run->output))
        return conv_err_usage(
            err, "standard output is not written to; for a folder of the name '-' use './-'");
    if (options->shards < 0 || options->shards > CONV_SHARD_MOST || options->shard < 0 ||
        (options->shard > 0 && options->shard >= options->shards))
        return conv_err_usage(err,
                              "`shard` is %d of %d; shards are counted from 0, up to %d of them",
                              options->shard, options->shards, CONV_SHARD_MOST);
    if (options->quality < 0 || options->quality > 100)
        return conv_err_usage(err, "quality %d is not within 1 to 100", options->quality);
    run->to = options->to ? conv_formats_of_extension(options->to) : NULL;
    if (options->to && !run->to)
        return conv_err_usage(err, "`to` is '%.16s'; outputs are %s", options->to,
                              conv_formats_written);
    return conv_png_check_level(&codec, err);
}

static enum conv_status open_plan(struct run *run, const struct conv_walk_config *config,
                                  struct conv_err *err)
{
    const struct conv_shard shard = {
        .index = run->options.shard,
        .count = run->options.shards,
        .by = run->options.shard_by_name ? CONV_SHARD_BY_NAME : CONV_SHARD_BY_BYTES,
    };
    if (shard.count == 0)
        return CONV_OK;
    enum conv_status status = conv_shard_plan_open(&run->plan, &shard, err);
    return status || shard.by == CONV_SHARD_BY_NAME
               ? status
               : conv_walk_plan_fill(run->plan, config, &run->stop, err);
}

static enum conv_status open_walk(struct run *run, struct conv_err *err)
{
    struct conv_walk_config config = {
        .operands =
            {
                .inputs = run->inputs,
                .input_count = run->input_count,
                .output = run->output,
                .npy = run->backend_config.floats,
                .format = run->to,
                .recursive = run->options.recursive != 0,
            },
        .archives = {.enabled = run->options.archives != 0,
                     .unmapped = true,
                     .most_copied = run->memory.archives,
                     .max_pixels = run->context->max_pixels},
        .whole = run->options.archives && run->input_count > 1,
        .stop = &run->stop,
    };
    enum conv_status status = open_plan(run, &config, err);
    config.plan = run->plan;
    if (!status)
        status = conv_walk_open(&run->walk, &config, err);
    bool kept = run->options.skip_existing || run->options.update;
    if (!status && kept && conv_walk_shape(run->walk)->sink == CONV_SINK_ARCHIVE)
        status = conv_walk_skip(
            run->walk, run->options.skip_existing ? CONV_ARCHIVE_EXISTS : CONV_ARCHIVE_IS_NEWER,
            NULL, err);
    return status;
}

// Creates the output folder if there is an image. Called last, when little else can fail.
static enum conv_status open_sink(struct run *run, struct conv_err *err)
{
    struct conv_sink_config config = {
        .path = run->output,
        .workers = run->context->device->threads,
        .writes = true,
        .unmapped = true,
        .stop = &run->stop,
    };
    bool is_image = false;
    conv_walk_describe_outputs(run->walk, &config);
    enum conv_status status = conv_sink_open(&run->sink, &config, err);
    if (!status && config.kind == CONV_SINK_FOLDER && !conv_paths_is_folder(run->output))
        status = conv_walk_peek(run->walk, &is_image, err);
    return is_image && !status ? conv_paths_make_folder(run->output, err) : status;
}

static enum conv_status open_report(struct run *run, struct conv_err *err)
{
    const struct conv_device_ops *ops = run->context->device->ops;
    struct conv_report_config config = {
        .listener = listen,
        .listener_user = run,
        .quiet = true,
        .progress = CONV_NEVER,
        .explain = conv_api_explain,
        .filters = run->filter,
        .device = run->context->name,
        .device_async = ops->async,
        .device_count = ops->async ? 1 : 0,
        .jobs = run->context->device->threads,
        .streams = conv_pipeline_streams(true),
        .cores = run->limits.cores,
    };
    return conv_report_open(&run->report, &config, err);
}

static enum conv_status prepare(struct run *run, struct conv_err *err)
{
    conv_filter_options options = CONV_FILTER_OPTIONS_INIT;
    enum conv_status status = CONV_API_READ_OPTIONS(&options, run->options.filter, err);
    if (status)
        return status;
    run->filters = malloc(CONV_FILTER_MAX_CHAIN * sizeof *run->filters);
    if (!run->filters)
        return conv_err_memory(err, "out of memory");
    conv_limits_read(&run->limits);
    bool async = run->context->device->ops->async;
    conv_budget_divide(&run->memory, &(struct conv_division_terms){
                                         .limits = &run->limits,
                                         .staging = conv_budget_staging(&run->limits, async),
                                         .async = async,
                                         .jobs = run->context->device->threads,
                                     });
    status = conv_api_read_chain(&run->backend_config, run->filters, run->context, run->filter,
                                 &options, err);
    if (!status)
        status = conv_filter_check_border(run->backend_config.border_value, err);
    run->backend_config.float_samples = true;
    run->backend_config.launch_bytes = conv_pipeline_group_bytes(true);
    run->backend_config.stop = &run->stop;
    if (!status)
        status = open_walk(run, err);
    if (!status)
        status = run->context->device->ops->open(&run->backend, &run->backend_config, err);
    if (!status)
        status = open_report(run, err);
    return status ? status : open_sink(run, err);
}

// --- running -------------------------------------------------------------------------------------

static enum conv_status run_pipeline(struct run *run, struct conv_err *err)
{
    const conv_context *context = run->context;
    const struct conv_device_ops *ops = context->device->ops;
    bool coders = ops->takes_stream != NULL;
    bool encodes = coders && run->options.level == -1 && !run->backend_config.floats;
    struct conv_pipeline_config config = {
        .ops = ops,
        .backends = &run->backend,
        .device_count = 1,
        .device_names = &context->name,
        .filter_count = run->backend_config.filter_count,
        .alpha = run->backend_config.alpha,
        .jobs = context->device->threads,
        .streams = conv_pipeline_streams(coders),
        .most_streams = conv_pipeline_most_streams(coders),
        .group_bytes = conv_pipeline_group_bytes(coders),
        .max_pixels = context->max_pixels,
        .codec = {.level = run->options.level,
                  .quality = run->options.quality,
                  .progressive = run->options.progressive != 0,
                  .optimize = run->options.optimize != 0},
        .auto_orient = run->options.auto_orient != 0,
        .output_format = run->to,
        .blend = {.gray = run->options.gray != 0,
                  .luma = run->options.luma != 0,
                  .linear = run->options.linear != 0},
        .output_type = run->backend_config.floats ? CONV_OUTPUT_F32 : CONV_OUTPUT_SAME,
        .decode_on = coders ? CONV_CODER_AUTO : CONV_CODER_CPU,
        .encode_on = encodes ? CONV_CODER_GPU : CONV_CODER_CPU,
        .strip = run->options.strip == 0   ? CONV_STRIP_NONE
                 : run->options.strip == 2 ? CONV_STRIP_ALL
                                           : CONV_STRIP_MOST,
        .sink = run->sink,
        .skip_existing = run->options.skip_existing != 0,
        .update = run->options.update != 0,
        .stop = &run->stop,
        .found = &run->found,
        .look = look,
        .look_user = run,
    };
    config.codec.stop = &run->stop;
    (void)conv_budget_set(&config, conv_walk_source(run->walk), run->memory.staging, false);
    return conv_pipeline_run(&config, conv_walk_source(run->walk), run->report, err);
}

// Closes everything, also after a failure; `status` is that of the run so far.
static enum conv_status finish(struct run *run, enum conv_status status, struct conv_err *err)
{
    struct conv_err later;
    struct conv_totals totals = {0};
    enum conv_status finished = conv_sink_finish(run->sink, status ? &later : err);
    status = status ? status : finished;
    if (run->report) {
        conv_pipeline_settle(run->report, run->walk, status ? err : NULL);
        enum conv_status closed = conv_report_close(run->report, 0, &totals, status ? &later : err);
        status = status ? status : closed;
        update_progress(run, &totals);
    }
    conv_walk_close(run->walk);
    conv_shard_plan_close(run->plan);
    if (run->backend)
        run->context->device->ops->close(run->backend);
    free(run->filters);
    if (!status && atomic_load(&run->stop) > 0)
        status = conv_err_set(err, CONV_ERR_CANCELLED, "the callback stopped the run");
    return status;
}

static void *run_call(void *argument)
{
    struct run *run = argument;
    struct conv_device_context *device = run->context->device;
    struct conv_err *err = &run->context->err;
    int previous = 0;
    enum conv_status status = device->ops->enter(device, &previous, err);
    bool entered = !status;
    if (!status)
        status = prepare(run, err);
    if (!status)
        status = run_pipeline(run, err);
    run->status = finish(run, status, err);
    if (entered)
        device->ops->leave(device, previous);
    return NULL;
}

conv_status conv_filter_folder(conv_context *context, const char *filter, const char *const *inputs,
                               int input_count, const char *output,
                               const conv_folder_options *options, conv_folder_progress *result)
{
    if (!context)
        return CONV_ERR_USAGE;
    struct conv_err *err = &context->err;
    enum conv_status status = conv_api_begin(context);
    struct run *run = calloc(1, sizeof *run);
    if (!status && !run)
        status = conv_err_memory(err, "out of memory");
    if (status) {
        free(run);
        return conv_api_end(context, status);
    }
    conv_lock_init(&run->lock);
    run->context = context;
    run->filter = filter;
    run->inputs = inputs;
    run->input_count = input_count;
    run->output = output;
    run->progress.size = sizeof run->progress;
    run->options = (conv_folder_options)CONV_FOLDER_OPTIONS_INIT;
    size_t least = offsetof(conv_folder_options, optimize); // bytes of version 1.0
    status = conv_api_read_options(&run->options, sizeof run->options, options, least,
                                   offsetof(conv_folder_options, reserved), err);
    if (!status && result && result->size < sizeof *result)
        status = conv_err_usage(err, "`size` of the result is not set");
    if (!status)
        status = check_call(run, err);
    if (!status) { // in a thread of the library, whose signals are not the caller's
        pthread_t thread;
        int errnum = conv_thread_start(&thread, run_call, run);
        if (errnum == 0)
            pthread_join(thread, NULL);
        status = errnum ? conv_err_thread(err, errnum) : run->status;
    }
    if (result && result->size >= sizeof *result) { // a newer program's has more members
        run->progress.size = result->size;
        memcpy(result, &run->progress, sizeof *result);
    }
    conv_lock_destroy(&run->lock);
    free(run);
    return conv_api_end(context, status);
}
