// SPDX-License-Identifier: MIT
// One lock for the source, the order of results, the memory and the report: an image takes
// milliseconds, these take microseconds.
#include "pipeline/layer_images.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/lock.h"
#include "io/paths.h"

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
    int64_t spare;      // bytes for images larger than a worker's share
    int64_t next_turn;  // of `collect`: the image whose turn it is
    int64_t next_index; // among the results
    bool has_writer;
    struct conv_tensor_writer writer;
    struct conv_tensor_shape shape; // of the first result
    enum conv_status status;        // why the run ends early
    struct conv_err err;
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

// The next image with its number. CONV_SOURCE_END also if the run is over.
static enum conv_source_step take_item(struct run *run, struct worker *worker)
    CONV_TAKES(run->taking)
{
    conv_lock_acquire(&run->taking);
    enum conv_source_step step = CONV_SOURCE_END;
    if (!run->source_ended && !is_over(run))
        step = conv_source_next(run->source, &worker->item, &worker->err);
    if (step == CONV_SOURCE_END)
        run->source_ended = true;
    else
        worker->turn = run->taken++;
    conv_lock_release(&run->taking);
    return step;
}

// NAME.png becomes NAME.npy in the item's target.
static enum conv_status retarget(struct conv_item *item, struct conv_err *err)
{
    char target[PATH_MAX];
    size_t name = strlen(item->name) + 1;
    snprintf(target, sizeof target, "%s", conv_item_target(item));
    char *dot = strrchr(target, '.'), *slash = strrchr(target, '/');
    if (dot && dot > (slash ? slash + 1 : target))
        *dot = '\0';
    size_t length = strlen(target);
    if (name + length + sizeof ".npy" > sizeof item->name)
        return conv_err_set(err, CONV_ERR_LIMIT, "path too long");
    memcpy(item->name + name, target, length);
    strcpy(item->name + name + length, ".npy");
    item->target = name;
    return CONV_OK;
}

// --- what need not be done -----------------------------------------------------------------------

static bool is_newer_or_same(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec >= b->tv_nsec;
}

static bool set_outcome(struct worker *worker, enum conv_outcome outcome, const char *reason)
{
    worker->record.outcome = outcome;
    worker->record.reason = reason;
    return true;
}

// True if the image is skipped or only planned.
static bool is_planned(struct worker *worker)
{
    const struct conv_layer_images *config = worker->run->config;
    const struct conv_item *item = &worker->item;
    struct conv_existing existing = {0};
    struct stat in;
    if (!config->dry_run && !config->skip_existing && !config->update)
        return false;
    if (config->sink)
        conv_sink_look(config->sink, &worker->output, &existing);
    if (existing.exists && S_ISREG(existing.info.st_mode) && config->skip_existing)
        return set_outcome(worker, CONV_OUTCOME_SKIPPED, "the output exists");
    if (existing.exists && S_ISREG(existing.info.st_mode) && config->update &&
        item->ops->identify && item->ops->identify(item, &in) &&
        is_newer_or_same(&existing.info.st_mtim, &in.st_mtim))
        return set_outcome(worker, CONV_OUTCOME_SKIPPED, "the output is up to date");
    return config->dry_run && set_outcome(worker, CONV_OUTCOME_PLANNED,
                                          existing.exists ? "replaces the output" : "new");
}

// --- memory --------------------------------------------------------------------------------------

// Half of the limit is shared by the workers, who keep their share. The other half is for larger
// images, whose memory is freed at once.
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
           !(run->config->collect && run->next_turn == worker->turn))
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

// The run ends early for that reason. Returns what the worker's image is reported as: it is not to
// blame.
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
    enum conv_element element = conv_layer_context_layer(image->context)->output;
    size_t size = conv_npy_write(header, element, &image->out, 0);
    const struct conv_encoded file = {
        .part = {{header, size}, {image->result, image->result_bytes}},
        .size = size + image->result_bytes,
    };
    worker->record.bytes_out = file.size;
    return config->sink->ops->write(config->sink, worker->number, &worker->item,
                                    &image->reader.info, &worker->output, &file, &result,
                                    &worker->err);
}

static bool same_shape(const struct conv_tensor_shape *a, const struct conv_tensor_shape *b)
{
    return memcmp(a->side, b->side, sizeof a->side[0] * (size_t)a->axes) == 0;
}

static struct conv_tensor_shape stack(const struct conv_tensor_shape *shape, int64_t images)
{
    return (struct conv_tensor_shape){4, {images, shape->side[0], shape->side[1], shape->side[2]}};
}

// The first result: its shape is that of all, and the file is opened.
static enum conv_status open_writer(struct run *run, const struct conv_layer_image *image,
                                    struct conv_err *err) CONV_NEEDS(run->lock)
{
    const struct conv_layer_images *config = run->config;
    struct conv_tensor_shape shape = stack(&image->out, 0);
    run->shape = image->out;
    enum conv_status status = conv_tensor_writer_open(
        &run->writer, config->collect, conv_layer_context_layer(image->context)->output, &shape,
        true, config->stop, err);
    run->has_writer = !status;
    if (run->has_writer && config->watch)
        config->watch(&run->writer.sink);
    return status;
}

// Waits until the images before this one have got their places or failed; the result's place in
// *index. With `status` the image has failed and gets none.
static enum conv_status take_place(struct worker *worker, enum conv_status status, int64_t *index)
    CONV_TAKES(worker->run->lock)
{
    struct run *run = worker->run;
    const struct conv_layer_images *config = run->config;
    const struct conv_layer_image *image = &worker->image;
    conv_lock_acquire(&run->lock);
    while (run->next_turn != worker->turn)
        (void)conv_lock_wait(&run->lock, &run->changed, WAIT_NS);
    if (!status && run->status)
        status = CONV_ERR_CANCELLED;
    if (!status && !run->has_writer && !config->no_save) {
        status = open_writer(run, image, &worker->err);
        if (status)
            status = fail_run(run, status, &worker->err);
    }
    if (!status && run->next_index == 0)
        run->shape = image->out;
    char first[CONV_TENSOR_TEXT_SIZE], own[CONV_TENSOR_TEXT_SIZE];
    if (!status && !same_shape(&run->shape, &image->out))
        status = conv_err_set(&worker->err, CONV_ERR_USAGE,
                              "the result has shape %s, but %s is for results of one shape, %s; "
                              "a folder as output takes any",
                              conv_tensor_shape_text(own, &image->out), config->collect,
                              conv_tensor_shape_text(first, &run->shape));
    if (!status)
        *index = run->next_index++;
    run->next_turn++;
    pthread_cond_broadcast(&run->changed);
    conv_lock_release(&run->lock);
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
    return conv_tensor_writer_write(&run->writer, (uint64_t)index * image->result_bytes,
                                    image->result, image->result_bytes, &worker->err);
}

// --- an image ------------------------------------------------------------------------------------

static enum conv_status write_result(struct worker *worker, enum conv_status status)
{
    struct run *run = worker->run;
    const struct conv_layer_images *config = run->config;
    int64_t index;
    uint64_t start = conv_clock_ns();
    if (config->collect)
        status = take_place(worker, status, &index);
    if (!status && !config->no_save) {
        status = config->collect ? write_place(worker, index)
                 : config->sink  ? write_file(worker)
                                 : CONV_OK;
        if (status && config->collect) { // a hole in the file
            conv_lock_acquire(&run->lock);
            status = fail_run(run, status, &worker->err);
            conv_lock_release(&run->lock);
        }
    }
    worker->record.ns[CONV_STAGE_WRITE] += conv_clock_ns() - start;
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
    // After a signal an image that was not finished is left, as those that were not begun.
    if (status != CONV_ERR_CANCELLED)
        conv_report_file(run->report, record);
    if (status && run->config->fail_fast) {
        int running = 0;
        atomic_compare_exchange_strong(run->config->stop, &running, -1);
    }
    conv_lock_release(&run->lock);
}

static enum conv_status place_output(struct worker *worker)
{
    const struct conv_layer_images *config = worker->run->config;
    worker->record.output = config->collect;
    if (!config->sink)
        return CONV_OK;
    enum conv_status status = retarget(&worker->item, &worker->err);
    if (!status)
        status =
            config->sink->ops->place(config->sink, &worker->item, &worker->output, &worker->err);
    worker->record.output = worker->output.path;
    return status;
}

// Every image that was taken passes here once, so that the turns of `collect` have no gap.
static void process(struct worker *worker, enum conv_source_step step)
{
    const struct conv_layer_images *config = worker->run->config;
    enum conv_status status = CONV_OK;
    int64_t index;
    worker->record = (struct conv_record){
        .input = worker->item.name,
        .title = worker->item.ops ? worker->item.ops->title : NULL,
        .are_files = worker->item.ops && worker->item.ops->is_file,
    };
    if (step == CONV_SOURCE_BAD)
        status = worker->err.status;
    if (step == CONV_SOURCE_REPEATED) {
        worker->record.notable = true;
        set_outcome(worker, CONV_OUTCOME_SKIPPED, "listed before");
    }
    if (step == CONV_SOURCE_ITEM)
        status = place_output(worker);
    if (status || step != CONV_SOURCE_ITEM || is_planned(worker)) {
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
    }
    conv_layer_image_close(&worker->image);
    return NULL;
}

// --- all of them ---------------------------------------------------------------------------------

static struct worker *start_workers(struct run *run)
{
    const struct conv_layer_images *config = run->config;
    struct worker *workers = calloc((size_t)config->jobs, sizeof *workers);
    for (int i = 0; workers && i < config->jobs; i++) {
        struct worker *worker = &workers[i];
        worker->run = run;
        worker->number = i;
        worker->image.contexts = &config->contexts;
        worker->image.samples = &config->samples;
        worker->image.reader.file_limit = config->mem_limit;
        worker->image.reader.pixel_limit = config->max_pixels;
        // The first one is this thread. Others that cannot be started are done without.
        worker->has_thread = i > 0 && pthread_create(&worker->thread, NULL, work, worker) == 0;
    }
    return workers;
}

// The file of `collect` with its final shape, or nothing.
static enum conv_status end_writer(struct run *run, struct conv_err *err)
{
    const struct conv_layer_images *config = run->config;
    enum conv_status status = run->status;
    if (!run->has_writer)
        return status;
    if (!status && conv_cancel_is_asked(config->stop))
        status = conv_err_set(err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
    struct conv_tensor_shape shape = stack(&run->shape, run->next_index);
    if (!status)
        status = conv_tensor_writer_set_shape(
            &run->writer, conv_layer_context_layer(config->contexts.of_bytes)->output, &shape, err);
    enum conv_status closed =
        conv_tensor_writer_close(&run->writer, !status, config->fsync, status ? NULL : err);
    if (config->watch)
        config->watch(NULL);
    return status ? status : closed;
}

enum conv_status conv_layer_images_run(const struct conv_layer_images *config,
                                       struct conv_source *source, struct conv_report *report_to,
                                       struct conv_err *err)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the run");
    run->config = config;
    run->source = source;
    run->report = report_to;
    run->spare = (int64_t)(config->mem_limit / 2);
    int errnum = conv_lock_init(&run->lock);
    errnum = errnum ? errnum : conv_lock_init(&run->taking);
    errnum = errnum ? errnum : conv_lock_init_condition(&run->changed);
    struct worker *workers = errnum ? NULL : start_workers(run);
    if (!workers) {
        free(run);
        return conv_err_errno(err, errnum ? errnum : ENOMEM, "cannot start workers");
    }
    work(&workers[0]);
    for (int i = 1; i < config->jobs; i++)
        if (workers[i].has_thread)
            pthread_join(workers[i].thread, NULL);
    if (run->status && err)
        *err = run->err;
    enum conv_status status = end_writer(run, err);
    pthread_cond_destroy(&run->changed);
    conv_lock_destroy(&run->taking);
    conv_lock_destroy(&run->lock);
    free(workers);
    free(run);
    return status;
}
