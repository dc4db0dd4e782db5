// SPDX-License-Identifier: MIT
// One lock for the source, the order of results, the memory and the report: an image takes
// milliseconds, these take microseconds.
#include "run/layer_images.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/lock.h"
#include "run/layer_collect.h"
#include "run/layer_output.h"

#define WAIT_NS 100000000u // a signal handler cannot wake a condition

struct run {
    const struct conv_layer_images *config;
    struct conv_report *report;
    struct conv_lock taking; // of the source, whose next image may be long in coming
    struct conv_source *source;
    bool source_ended;
    int64_t taken;

    struct conv_lock lock; // of all below
    pthread_cond_t changed;
    int64_t spare;           // bytes for images larger than a worker's share
    enum conv_status status; // why the run ends early
    struct conv_err err;

    struct conv_layer_collect collect; // if config->collect
};

struct worker {
    pthread_t thread;
    bool has_thread;
    int number;
    struct run *run;
    struct conv_layer_image image;
    struct conv_item item;
    int64_t turn;
    struct conv_output output;
    struct conv_record record;
    struct conv_err err;
    char collected[PATH_MAX + 32]; // "features.npy[3]"
};

// --- the source ----------------------------------------------------------------------------------

static bool is_over(struct run *run)
{
    bool failed;
    conv_lock_acquire(&run->lock);
    failed = run->status != CONV_OK;
    conv_lock_release(&run->lock);
    return failed || atomic_load(run->config->stop) != 0;
}

// The results of NAME.png are in NAME.npy.
static enum conv_status name_output(struct run *run, struct worker *worker) CONV_NEEDS(run->taking)
{
    enum conv_sink_claim claim;
    enum conv_status status = conv_item_set_format(&worker->item, NULL, true, &worker->err);
    return status ? status
                  : conv_sink_claim(run->config->sink, &worker->item, &claim, &worker->err);
}

// The next image with its number. CONV_SOURCE_END also if the run is over.
static enum conv_source_step take_item(struct run *run, struct worker *worker)
    CONV_TAKES(run->taking)
{
    conv_lock_acquire(&run->taking);
    enum conv_source_step step = CONV_SOURCE_END;
    if (!run->source_ended && !is_over(run))
        step = conv_source_next(run->source, &worker->item, &worker->err);
    if (step == CONV_SOURCE_ITEM && run->config->sink && name_output(run, worker))
        step = CONV_SOURCE_BAD;
    if (step == CONV_SOURCE_END)
        run->source_ended = true;
    else
        worker->turn = run->taken++;
    conv_lock_release(&run->taking);
    return step;
}

// --- memory --------------------------------------------------------------------------------------

// Half of the limit is divided among the workers, which keep their share. The other half is for
// larger images, whose memory is freed at once.
static size_t share_of(const struct run *run)
{
    return run->config->mem_limit / 2 / (size_t)run->config->jobs;
}

static enum conv_status take_memory(struct worker *worker, size_t bytes)
    CONV_TAKES(worker->run->lock)
{
    struct run *run = worker->run;
    struct conv_err *err = &worker->err;
    size_t most = run->config->mem_limit / 2;
    if (bytes <= share_of(run))
        return CONV_OK;
    if (bytes > most)
        return conv_err_hint(err, CONV_HINT_MEM_LIMIT, 2 * (uint64_t)bytes,
                             conv_err_set(err, CONV_ERR_LIMIT,
                                          "the image and its result take %zu MiB, half of the "
                                          "limit is %zu",
                                          (bytes >> 20) + 1, most >> 20));
    conv_lock_acquire(&run->lock);
    // Later images may hold the memory until this one has its place among the results: it does not
    // wait for them.
    while (run->spare < (int64_t)bytes && !run->status &&
           !(run->config->collect && conv_layer_collect_is_turn(&run->collect, worker->turn)))
        (void)conv_lock_wait(&run->lock, &run->changed, WAIT_NS);
    run->spare -= run->status ? 0 : (int64_t)bytes;
    bool failed = run->status != CONV_OK;
    conv_lock_release(&run->lock);
    return failed ? conv_err_set(err, CONV_ERR_CANCELLED, "the run has failed") : CONV_OK;
}

static void give_memory(struct worker *worker, size_t bytes)
{
    struct run *run = worker->run;
    if (bytes <= share_of(run))
        return;
    conv_layer_image_trim(&worker->image);
    conv_lock_acquire(&run->lock);
    run->spare += (int64_t)bytes;
    pthread_cond_broadcast(&run->changed);
    conv_lock_release(&run->lock);
}

// Ends the run early for that reason. Returns the status with which the worker's image is reported,
// since it is not the cause.
static enum conv_status fail_run(struct run *run, enum conv_status status,
                                 const struct conv_err *err) CONV_NEEDS(run->lock)
{
    if (!run->status) {
        run->status = status;
        run->err = *err;
    }
    pthread_cond_broadcast(&run->changed);
    return CONV_ERR_CANCELLED;
}

// --- results -------------------------------------------------------------------------------------

static enum conv_status write_file(struct worker *worker)
{
    const struct conv_layer_images *config = worker->run->config;
    const struct conv_layer_image *image = &worker->image;
    uint8_t header[CONV_NPY_OWN_HEADER];
    enum conv_sink_result result;
    enum conv_element element = conv_operation_output(&image->contexts->of_bytes);
    size_t size = conv_npy_write(header, element, &image->out, 0);
    const struct conv_encoded file = {
        .part = {{header, size}, {image->result, image->result_bytes}},
        .size = size + image->result_bytes,
    };
    worker->record.bytes_out = file.size;
    enum conv_status status =
        config->sink->ops->write(config->sink, worker->number, &worker->item, &image->reader.info,
                                 &worker->output, &file, &result, &worker->err);
    if (!status && result == CONV_SINK_WITHOUT_LIST) {
        worker->record.reason = CONV_SINK_LIST_LOST;
        worker->record.notable = true;
    }
    return status;
}

static enum conv_status write_place(struct worker *worker, int64_t index)
{
    struct run *run = worker->run;
    const struct conv_layer_image *image = &worker->image;
    snprintf(worker->collected, sizeof worker->collected, "%s[%lld]", run->config->collect,
             (long long)index);
    worker->record.output = worker->collected;
    worker->record.bytes_out = image->result_bytes;
    enum conv_status status = conv_layer_collect_write(&run->collect, index, image->result,
                                                       image->result_bytes, &worker->err);
    if (status) { // a hole in the file
        conv_lock_acquire(&run->lock);
        status = fail_run(run, status, &worker->err);
        conv_lock_release(&run->lock);
    }
    return status;
}

// --- an image ------------------------------------------------------------------------------------

// The result's place among all; with `status` the image has failed and gets none.
static enum conv_status take_place(struct worker *worker, enum conv_status status, int64_t *index)
{
    struct run *run = worker->run;
    bool is_fatal;
    enum conv_status taken =
        conv_layer_collect_take(&run->collect, worker->turn, status ? NULL : &worker->image.out,
                                index, &is_fatal, &worker->err);
    conv_lock_acquire(&run->lock);
    if (taken && is_fatal)
        taken = fail_run(run, taken, &worker->err);
    pthread_cond_broadcast(&run->changed); // a worker that waits for memory may be next
    conv_lock_release(&run->lock);
    return status ? status : taken;
}

static enum conv_status write_result(struct worker *worker, enum conv_status status)
{
    struct run *run = worker->run;
    const struct conv_layer_images *config = run->config;
    int64_t index;
    if (config->collect)
        status = take_place(worker, status, &index);
    if (status || config->no_save || (!config->collect && !config->sink))
        return status;
    uint64_t start = conv_trace_begin(CONV_STAGE_WRITE);
    status = config->collect ? write_place(worker, index) : write_file(worker);
    conv_layer_image_end(&worker->image, CONV_STAGE_WRITE, start, worker->record.ns);
    return status;
}

static enum conv_status run_item(struct worker *worker)
{
    struct run *run = worker->run;
    struct conv_layer_image *image = &worker->image;
    struct conv_record *record = &worker->record;
    size_t taken = 0;
    enum conv_status status = conv_layer_image_read(image, &worker->item, record->ns, &worker->err);
    const struct conv_image *shape = &image->reader.header.shape;
    record->bytes_in = image->reader.file.size;
    if (!status) {
        record->width = shape->width;
        record->height = shape->height;
        record->channels = shape->channels;
        record->depth = shape->depth;
        size_t needed = image->bytes + image->reader.file.size;
        status = take_memory(worker, needed);
        taken = status ? 0 : needed;
    }
    if (!status && conv_cancel_is_asked(run->config->stop))
        status = conv_err_set(&worker->err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
    if (!status)
        status = conv_layer_image_compute(image, record->ns, &worker->err);
    status = write_result(worker, status);
    give_memory(worker, taken);
    return status;
}

static void report(struct worker *worker, enum conv_status status) CONV_TAKES(worker->run->lock)
{
    struct run *run = worker->run;
    struct conv_record *record = &worker->record;
    conv_lock_acquire(&run->lock);
    if (status) {
        record->outcome = CONV_OUTCOME_FAILED;
        record->reason = worker->err.text;
        record->err = &worker->err;
    }
    if (status == CONV_ERR_DEVICE)
        status = fail_run(run, status, &worker->err);
    // After a signal, an image that was not finished is not reported, like those that were not
    // begun.
    if (status != CONV_ERR_CANCELLED)
        conv_report_file(run->report, record);
    if (status && run->config->fail_fast) {
        int running = 0;
        atomic_compare_exchange_strong(run->config->stop, &running, -1);
    }
    conv_lock_release(&run->lock);
}

// Called once for every image that was taken, so that the turns of `collect` have no gap.
static void process(struct worker *worker, enum conv_source_step step)
{
    const struct conv_layer_images *config = worker->run->config;
    enum conv_status status = CONV_OK;
    int64_t index;
    worker->record = (struct conv_record){
        .number = (uint64_t)worker->turn + 1,
        .input = worker->item.name,
        .title = worker->item.ops ? worker->item.ops->title : NULL,
        .are_files = worker->item.ops && worker->item.ops->is_file,
    };
    if (step == CONV_SOURCE_BAD)
        status = worker->err.status;
    worker->record.reason = conv_source_skip_reason(step, &worker->item);
    if (worker->record.reason) {
        worker->record.outcome = CONV_OUTCOME_SKIPPED;
        worker->record.notable = step == CONV_SOURCE_REPEATED;
    }
    if (step == CONV_SOURCE_ITEM)
        status = conv_layer_output_plan(config, &worker->item, &worker->output, &worker->record,
                                        &worker->err);
    if (status || worker->record.outcome != CONV_OUTCOME_DONE) {
        if (config->collect) // gives up its turn
            (void)take_place(worker, status ? status : CONV_ERR_CANCELLED, &index);
    } else {
        status = run_item(worker);
    }
    report(worker, status);
}

static void *work(void *data)
{
    struct worker *worker = data;
    for (;;) {
        enum conv_source_step step = take_item(worker->run, worker);
        if (step == CONV_SOURCE_END)
            break;
        process(worker, step);
        conv_item_release(&worker->item);
    }
    conv_layer_image_close(&worker->image);
    return NULL;
}

// --- all of them ---------------------------------------------------------------------------------

static void start_workers(struct run *run, struct worker *workers)
{
    const struct conv_layer_images *config = run->config;
    for (int i = 0; i < config->jobs; i++) {
        struct worker *worker = &workers[i];
        worker->run = run;
        worker->number = i;
        worker->image.contexts = &config->contexts;
        worker->image.samples = &config->samples;
        worker->image.track = conv_trace_add_track(config->trace, "worker", i, "");
        worker->image.reader.file_limit = config->mem_limit;
        worker->image.reader.pixel_limit = config->max_pixels;
        // The first worker is this thread. If others cannot be started, the run continues without
        // them.
        worker->has_thread = i > 0 && pthread_create(&worker->thread, NULL, work, worker) == 0;
    }
}

// 0, or an error number; then nothing is left to destroy.
static int init_locks(struct run *run)
{
    int errnum = conv_lock_init(&run->lock);
    if (errnum)
        return errnum;
    errnum = conv_lock_init(&run->taking);
    if (!errnum) {
        errnum = conv_lock_init_condition(&run->changed);
        if (errnum)
            conv_lock_destroy(&run->taking);
    }
    if (errnum)
        conv_lock_destroy(&run->lock);
    return errnum;
}

static void destroy_locks(struct run *run)
{
    pthread_cond_destroy(&run->changed);
    conv_lock_destroy(&run->taking);
    conv_lock_destroy(&run->lock);
}

static enum conv_status open_collect(struct run *run, struct conv_err *err)
{
    const struct conv_layer_images *config = run->config;
    struct conv_layer_collect *collect = &run->collect;
    if (!config->collect)
        return CONV_OK;
    collect->path = config->collect;
    collect->element = conv_operation_output(&config->contexts.of_bytes);
    collect->no_save = config->no_save || config->dry_run;
    collect->fsync = config->fsync;
    collect->writer.force = config->force;
    collect->stop = config->stop;
    collect->watch = config->watch;
    return conv_layer_collect_open(collect, err);
}

static enum conv_status close_collect(struct run *run, enum conv_status status,
                                      struct conv_err *err)
{
    if (!run->config->collect)
        return status;
    if (!status && conv_cancel_is_asked(run->config->stop))
        status = conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
    enum conv_status closed = conv_layer_collect_close(&run->collect, !status, status ? NULL : err);
    return status ? status : closed;
}

enum conv_status conv_layer_images_run(const struct conv_layer_images *config,
                                       struct conv_source *source, struct conv_report *report_to,
                                       struct conv_err *err)
{
    struct run *run = calloc(1, sizeof *run);
    struct worker *workers = calloc((size_t)config->jobs, sizeof *workers);
    int errnum = run && workers ? init_locks(run) : 0;
    enum conv_status status = !run || !workers ? conv_err_workers(err, config->jobs)
                              : errnum         ? conv_err_errno(err, errnum, "cannot start workers")
                                               : CONV_OK;
    if (status)
        goto out;
    run->config = config;
    run->source = source;
    run->report = report_to;
    run->spare = (int64_t)(config->mem_limit / 2);
    status = open_collect(run, err);
    if (!status) {
        start_workers(run, workers);
        work(&workers[0]);
        for (int i = 1; i < config->jobs; i++)
            if (workers[i].has_thread)
                pthread_join(workers[i].thread, NULL);
        if (run->status && err)
            *err = run->err;
        status = close_collect(run, run->status, err);
    }
    destroy_locks(run);
out:
    free(workers);
    free(run);
    return status;
}
