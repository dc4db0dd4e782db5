// SPDX-License-Identifier: MIT
// The scheduler. One lock guards all lists; it is held for list operations only, never while a
// picture is read, coded, filtered or reported.
//
// Order of a worker's preferences on an async backend: encode (it sets staging memory free), place
// and decode a picture that waits for memory, read a new one. So the pipeline cannot fill up: what
// is nearer to its end goes first.
#include "pipeline/pipeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline/output.h"
#include "pipeline/pool.h"
#include "pipeline/steps.h"

// A group that is not full is sent off when no picture has come for so long.
#define IDLE_NS 5000000

struct job_list {
    struct conv_job *first, **end;
};

struct pipeline {
    const struct conv_pipeline_config *config;
    struct conv_walk *walk;
    struct conv_report *report;
    size_t table_bytes;
    bool filter_alpha;

    pthread_mutex_t report_lock;
    pthread_mutex_t lock;     // guards all below
    pthread_cond_t changed;   // workers wait on it
    pthread_cond_t lane_work; // lanes wait on it
    struct conv_pool pool;
    struct conv_slot *open;               // takes decoded pictures
    struct conv_slot *ready, **ready_end; // sealed groups for the lanes
    struct job_list parked;               // read, waiting for staging memory
    struct job_list to_encode;
    struct conv_job *spare_jobs;
    struct conv_file *spare_files;
    int live;     // jobs handed out and not finished
    bool walking; // a worker is in conv_walk_next
    bool walked;  // no more pictures will come
    bool lanes_end;
    struct conv_err failure; // what ended the run itself, if anything did
};

struct worker {
    struct pipeline *pipeline;
    int index;
    struct conv_png_codec *codec;
    struct conv_lane *lane; // of a backend that is not async
    pthread_t thread;
    bool started;
};

struct lane {
    struct pipeline *pipeline;
    struct conv_lane *lane;
    pthread_t thread;
    bool started;
};

// --- lists ---------------------------------------------------------------------------------------

static void list_init(struct job_list *list)
{
    list->first = NULL;
    list->end = &list->first;
}

static void list_push(struct job_list *list, struct conv_job *job)
{
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
}

static struct conv_job *list_pop(struct job_list *list)
{
    struct conv_job *job = list->first;
    if (job) {
        list->first = job->next;
        if (!list->first)
            list->end = &list->first;
    }
    return job;
}

// --- jobs: all called with the lock held, unless they say otherwise
// -------------------------------

static bool is_stopping(const struct pipeline *p)
{
    return atomic_load(p->config->stop) != 0;
}

static struct conv_job *new_job(struct pipeline *p)
{
    struct conv_job *job = p->spare_jobs;
    if (job)
        p->spare_jobs = job->next;
    else
        job = calloc(1, sizeof *job);
    struct conv_file *file = p->spare_files;
    if (file)
        p->spare_files = file->next;
    else
        file = calloc(1, sizeof *file);
    if (!job || !file) {
        free(job);
        free(file);
        return NULL;
    }
    struct conv_png_meta meta = job->meta; // keeps its memory
    job->err.text[0] = '\0';
    job->outcome = CONV_OUTCOME_DONE;
    job->reason = NULL;
    job->header = (struct conv_png_header){0};
    job->meta = meta;
    job->slot = NULL;
    job->bytes_in = job->bytes_out = 0;
    memset(job->ns, 0, sizeof job->ns);
    job->file = file;
    file->size = 0;
    return job;
}

static void drop_file(struct pipeline *p, struct conv_job *job)
{
    if (job->file) {
        job->file->next = p->spare_files;
        p->spare_files = job->file;
        job->file = NULL;
    }
}

static void drop_job(struct pipeline *p, struct conv_job *job)
{
    drop_file(p, job);
    job->next = p->spare_jobs;
    p->spare_jobs = job;
    p->live--;
    pthread_cond_broadcast(&p->changed);
}

static void seal(struct pipeline *p, struct conv_slot *slot)
{
    slot->sealed = true;
    if (p->open == slot)
        p->open = NULL;
    if (slot->decoding > 0)
        return; // the last decoder will come here again
    if (!slot->jobs) {
        conv_pool_release(slot);
        pthread_cond_broadcast(&p->changed);
        return;
    }
    slot->next = NULL;
    *p->ready_end = slot;
    p->ready_end = &slot->next;
    pthread_cond_signal(&p->lane_work);
}

// Takes the picture out of its slot, which is free again once it was the last.
static void leave_slot(struct pipeline *p, struct conv_job *job)
{
    struct conv_slot *slot = job->slot;
    job->slot = NULL;
    if (--slot->unfinished == 0 && slot->sealed && slot->decoding == 0) {
        conv_pool_release(slot);
        pthread_cond_broadcast(&p->changed);
    }
}

// Reports the job and takes it back. Called WITHOUT the lock, returns with it.
static void finish_job(struct pipeline *p, struct conv_job *job, enum conv_status status)
{
    if (status) {
        job->outcome = CONV_OUTCOME_FAILED;
        job->reason = job->err.text;
        if (p->config->fail_fast)
            atomic_store(p->config->stop, -1);
    }
    struct conv_record record = {
        .input = job->path.input,
        .output = job->path.output[0] ? job->path.output : NULL,
        .outcome = job->outcome,
        .reason = job->reason,
        .width = job->header.width,
        .height = job->header.height,
        .channels = job->header.shape.channels,
        .depth = job->header.shape.depth,
        .bytes_in = job->bytes_in,
        .bytes_out = job->bytes_out,
    };
    memcpy(record.ns, job->ns, sizeof record.ns);
    pthread_mutex_lock(&p->report_lock);
    conv_report_file(p->report, &record);
    pthread_mutex_unlock(&p->report_lock);
    pthread_mutex_lock(&p->lock);
    drop_job(p, job);
}

// Gives the picture its place in a group: true with job->slot set, or false if it has to wait. On
// failure *status is set.
static bool place(struct pipeline *p, struct conv_job *job, enum conv_status *status)
{
    const struct conv_image *shape = &job->header.shape;
    size_t need = conv_group_need(shape, p->filter_alpha, p->table_bytes);
    struct conv_slot *slot = p->open;
    if (slot) {
        size_t used = slot->group.front + slot->group.back;
        bool full = used > 0 && used + need > p->config->group_bytes;
        if (full || !conv_group_place(&slot->group, shape, p->filter_alpha, p->table_bytes,
                                      &job->in, job->out_offset)) {
            seal(p, slot);
            slot = NULL;
        }
    }
    if (!slot) {
        *status = conv_pool_acquire(&p->pool, need, &slot, &job->err);
        if (!slot)
            return false;
        p->open = slot;
        conv_group_place(&slot->group, shape, p->filter_alpha, p->table_bytes, &job->in,
                         job->out_offset);
    }
    job->slot = slot;
    slot->decoding++;
    slot->unfinished++;
    return true;
}

// --- workers -------------------------------------------------------------------------------------

// Fetches the next picture from the walk. Called and returns with the lock; NULL if there is none.
static struct conv_job *take_job(struct pipeline *p)
{
    struct conv_job *job = new_job(p);
    if (!job) {
        conv_err_set(&p->failure, CONV_ERR_MEMORY, "no memory for another picture");
        atomic_store(p->config->stop, -1);
        return NULL;
    }
    p->live++;
    p->walking = true;
    pthread_mutex_unlock(&p->lock);
    enum conv_walk_step step = conv_walk_next(p->walk, &job->path, &job->err);
    pthread_mutex_lock(&p->lock);
    p->walking = false;
    if (step == CONV_WALK_ENTRY) {
        pthread_cond_signal(&p->changed); // another may walk now
        return job;
    }
    if (step == CONV_WALK_END) {
        p->walked = true;
        drop_job(p, job);
        return NULL;
    }
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    finish_job(p, job, job->err.status);
    return NULL;
}

// Called with the lock: the slot's count of decoders goes down, the job is ready for the lane or
// finished. Returns with the lock.
static void after_decode(struct pipeline *p, struct conv_job *job, enum conv_status status)
{
    struct conv_slot *slot = job->slot;
    slot->decoding--;
    drop_file(p, job);
    if (!status) {
        job->next = slot->jobs;
        slot->jobs = job;
    } else {
        job->slot = NULL;
        slot->unfinished--;
    }
    if (slot->sealed)
        seal(p, slot);
    else
        pthread_cond_signal(&p->changed); // an idle worker may want to seal it
    if (status) {
        pthread_mutex_unlock(&p->lock);
        finish_job(p, job, status);
    }
}

// Called and returns with the lock; the job has its place in a slot.
static void decode_job(struct worker *worker, struct conv_job *job)
{
    struct pipeline *p = worker->pipeline;
    pthread_mutex_unlock(&p->lock);
    enum conv_status status = conv_steps_decode(p->config, worker->codec, job);
    pthread_mutex_lock(&p->lock);
    after_decode(p, job, status);
}

// Called and returns with the lock.
static void encode_job(struct worker *worker, struct conv_job *job)
{
    struct pipeline *p = worker->pipeline;
    pthread_mutex_unlock(&p->lock);
    enum conv_status status = conv_steps_encode(p->config, worker->codec, worker->index, job);
    pthread_mutex_lock(&p->lock);
    leave_slot(p, job);
    pthread_mutex_unlock(&p->lock);
    finish_job(p, job, status);
}

// Plans and reads a new picture. Called and returns with the lock; true if the picture goes on.
static bool read_job(struct pipeline *p, struct conv_job *job)
{
    pthread_mutex_unlock(&p->lock);
    enum conv_status status = conv_steps_plan(p->config, job);
    bool wanted = !status && job->outcome == CONV_OUTCOME_DONE;
    if (wanted)
        status = conv_steps_read(p->config, job);
    if (status == CONV_ERR_CANCELLED) { // not begun
        pthread_mutex_lock(&p->lock);
        drop_job(p, job);
        return false;
    }
    if (!wanted || status) {
        finish_job(p, job, status);
        return false;
    }
    pthread_mutex_lock(&p->lock);
    return true;
}

// Async backend: the picture gets a place and is decoded, or is parked. With the lock.
static void start_job(struct worker *worker, struct conv_job *job)
{
    struct pipeline *p = worker->pipeline;
    enum conv_status status = CONV_OK;
    if (place(p, job, &status)) {
        decode_job(worker, job);
    } else if (status) {
        pthread_mutex_unlock(&p->lock);
        finish_job(p, job, status);
    } else {
        list_push(&p->parked, job);
    }
}

// Other backends: one worker, one picture, all the way. With the lock.
static void run_job(struct worker *worker, struct conv_job *job)
{
    struct pipeline *p = worker->pipeline;
    const struct conv_image *shape = &job->header.shape;
    size_t need = conv_group_need(shape, p->filter_alpha, p->table_bytes);
    struct conv_slot *slot = NULL;
    enum conv_status status = conv_pool_acquire(&p->pool, need, &slot, &job->err);
    while (!status && !slot) {
        pthread_cond_wait(&p->changed, &p->lock);
        status = conv_pool_acquire(&p->pool, need, &slot, &job->err);
    }
    pthread_mutex_unlock(&p->lock);
    if (!status) {
        job->slot = slot;
        conv_group_place(&slot->group, shape, p->filter_alpha, p->table_bytes, &job->in,
                         job->out_offset);
        status = conv_steps_decode(p->config, worker->codec, job);
    }
    if (!status)
        status = p->config->ops->lane_run(worker->lane, &slot->group, &job->err);
    if (!status) {
        job->ns[CONV_STAGE_KERNEL] = slot->group.ns_kernel;
        status = conv_steps_encode(p->config, worker->codec, worker->index, job);
    }
    if (slot) {
        pthread_mutex_lock(&p->lock);
        conv_pool_release(slot);
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    finish_job(p, job, status);
}

// Waits for something to do. A group that waits for company is sent off when none is coming.
static void wait_for_work(struct pipeline *p)
{
    struct conv_slot *open = p->open;
    if (!open || open->decoding > 0) {
        pthread_cond_wait(&p->changed, &p->lock);
        return;
    }
    if (p->walked || is_stopping(p)) {
        seal(p, open);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += IDLE_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    if (pthread_cond_timedwait(&p->changed, &p->lock, &until) != 0 && p->open == open &&
        open->decoding == 0)
        seal(p, open);
}

// One task, or one wait. False when there is nothing left to do. With the lock.
static bool do_task(struct worker *worker)
{
    struct pipeline *p = worker->pipeline;
    bool stopping = is_stopping(p);
    struct conv_job *job = list_pop(&p->to_encode);
    if (job) {
        encode_job(worker, job);
    } else if (p->parked.first && stopping) {
        drop_job(p, list_pop(&p->parked)); // read, but not begun
    } else if (p->parked.first) {
        // Taken out first: while this worker decodes, others must not see it.
        job = list_pop(&p->parked);
        enum conv_status status = CONV_OK;
        if (place(p, job, &status)) {
            decode_job(worker, job);
        } else if (status) {
            pthread_mutex_unlock(&p->lock);
            finish_job(p, job, status);
        } else {
            job->next = p->parked.first; // back to the front
            if (!job->next)
                p->parked.end = &job->next;
            p->parked.first = job;
            pthread_cond_wait(&p->changed, &p->lock);
        }
    } else if (!p->walked && !p->walking && !stopping) {
        job = take_job(p);
        if (job && read_job(p, job)) {
            if (p->config->ops->async)
                start_job(worker, job);
            else
                run_job(worker, job);
        }
    } else if ((p->walked || stopping) && p->live == 0) {
        return false;
    } else {
        wait_for_work(p);
    }
    return true;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct pipeline *p = worker->pipeline;
    pthread_mutex_lock(&p->lock);
    while (do_task(worker))
        ;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

// --- lanes ---------------------------------------------------------------------------------------

// Shares the group's times out to a picture by its bytes.
static void share_times(struct conv_job *job, const struct conv_group *group)
{
    size_t bytes = 0;
    for (int c = 0; c < job->in.channels; c++)
        if (job->out_offset[c] != SIZE_MAX)
            bytes += conv_image_plane_bytes(job->in.width, job->in.height, job->in.depth);
    double share = group->front ? (double)bytes / (double)group->front : 0;
    job->ns[CONV_STAGE_COPY_IN] = (uint64_t)((double)group->ns_copy_in * share);
    job->ns[CONV_STAGE_KERNEL] = (uint64_t)((double)group->ns_kernel * share);
    job->ns[CONV_STAGE_COPY_OUT] = (uint64_t)((double)group->ns_copy_out * share);
}

// Called and returns with the lock: pictures of a group that the lane has run (or could not run).
static void after_lane(struct pipeline *p, struct conv_slot *slot, enum conv_status status,
                       const struct conv_err *err)
{
    struct conv_job *next;
    for (struct conv_job *job = slot->jobs; job; job = next) {
        next = job->next;
        share_times(job, &slot->group);
        if (!status) {
            list_push(&p->to_encode, job);
        } else {
            job->err = *err;
            leave_slot(p, job);
            pthread_mutex_unlock(&p->lock);
            finish_job(p, job, status);
        }
    }
    pthread_cond_broadcast(&p->changed);
}

static void *lane_main(void *argument)
{
    struct lane *lane = argument;
    struct pipeline *p = lane->pipeline;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct conv_slot *slot = p->ready;
        if (slot) {
            p->ready = slot->next;
            if (!p->ready)
                p->ready_end = &p->ready;
            pthread_mutex_unlock(&p->lock);
            struct conv_err err = {0};
            enum conv_status status = p->config->ops->lane_run(lane->lane, &slot->group, &err);
            pthread_mutex_lock(&p->lock);
            after_lane(p, slot, status, &err);
        } else if (p->lanes_end) {
            break;
        } else {
            pthread_cond_wait(&p->lane_work, &p->lock);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

// --- the run -------------------------------------------------------------------------------------

static void free_spares(struct pipeline *p)
{
    for (struct conv_job *job = p->spare_jobs, *next; job; job = next) {
        next = job->next;
        conv_png_meta_free(&job->meta);
        free(job);
    }
    for (struct conv_file *file = p->spare_files, *next; file; file = next) {
        next = file->next;
        free(file->data);
        free(file);
    }
}

static enum conv_status init_locks(struct pipeline *p, struct conv_err *err)
{
    pthread_condattr_t attributes;
    int errnum = pthread_condattr_init(&attributes);
    if (!errnum)
        errnum = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!errnum)
        errnum = pthread_cond_init(&p->changed, &attributes);
    if (!errnum)
        errnum = pthread_cond_init(&p->lane_work, NULL);
    if (!errnum)
        errnum = pthread_mutex_init(&p->lock, NULL);
    if (!errnum)
        errnum = pthread_mutex_init(&p->report_lock, NULL);
    pthread_condattr_destroy(&attributes);
    return errnum ? conv_err_errno(err, errnum, "cannot make locks") : CONV_OK;
}

// Slots: for the lanes, as many again to fill, and some to drain. A worker of a backend that is not
// async holds one.
static int slot_count(const struct conv_pipeline_config *config)
{
    return config->ops->async ? 2 * config->streams + 2 : config->jobs;
}

static enum conv_status open_lane(struct pipeline *p, struct conv_lane **lane, struct conv_err *err)
{
    const struct conv_pipeline_config *config = p->config;
    return config->ops->lane_open(config->backend, lane, config->group_bytes, err);
}

static enum conv_status start_threads(struct pipeline *p, struct worker *workers,
                                      struct lane *lanes, int lane_count, struct conv_err *err)
{
    const struct conv_pipeline_config *config = p->config;
    enum conv_status status = CONV_OK;
    for (int i = 0; i < lane_count && !status; i++) {
        lanes[i].pipeline = p;
        status = open_lane(p, &lanes[i].lane, err);
    }
    for (int i = 0; i < config->jobs && !status; i++) {
        workers[i].pipeline = p;
        workers[i].index = i;
        status = conv_png_codec_open(&workers[i].codec, &config->png, err);
        if (!status && !config->ops->async)
            status = open_lane(p, &workers[i].lane, err);
    }
    for (int i = 0; i < lane_count && !status; i++) {
        int errnum = pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]);
        lanes[i].started = errnum == 0;
        if (errnum)
            status = conv_err_errno(err, errnum, "cannot start a thread");
    }
    for (int i = 0; i < config->jobs && !status; i++) {
        int errnum = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        workers[i].started = errnum == 0;
        if (errnum && i == 0) // fewer workers than wanted are fine, none is not
            status = conv_err_errno(err, errnum, "cannot start a thread");
    }
    return status;
}

static void stop_threads(struct pipeline *p, struct worker *workers, struct lane *lanes,
                         int lane_count)
{
    const struct conv_backend_ops *ops = p->config->ops;
    for (int i = 0; i < p->config->jobs; i++)
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
    pthread_mutex_lock(&p->lock);
    p->lanes_end = true;
    pthread_cond_broadcast(&p->lane_work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < lane_count; i++) {
        if (lanes[i].started)
            pthread_join(lanes[i].thread, NULL);
        ops->lane_close(lanes[i].lane);
    }
    for (int i = 0; i < p->config->jobs; i++) {
        ops->lane_close(workers[i].lane);
        conv_png_codec_close(workers[i].codec);
    }
}

enum conv_status conv_pipeline_run(const struct conv_pipeline_config *config,
                                   struct conv_walk *walk, struct conv_report *report,
                                   struct conv_err *err)
{
    struct pipeline p = {
        .config = config,
        .walk = walk,
        .report = report,
        .table_bytes = config->ops->table_bytes(config->backend),
        .filter_alpha = config->alpha != CONV_ALPHA_KEEP,
    };
    p.ready_end = &p.ready;
    list_init(&p.parked);
    list_init(&p.to_encode);
    enum conv_status status = init_locks(&p, err);
    if (status)
        return status;

    int lane_count = config->ops->async ? config->streams : 0;
    struct worker *workers = calloc((size_t)config->jobs, sizeof *workers);
    struct lane *lanes = calloc((size_t)lane_count + 1, sizeof *lanes);
    if (!workers || !lanes)
        status = conv_err_set(err, CONV_ERR_MEMORY, "no memory for %d workers", config->jobs);
    if (!status)
        status = conv_output_open(config->jobs, err);
    if (!status)
        status = conv_pool_open(&p.pool, config->ops, config->backend, slot_count(config),
                                config->group_bytes, config->mem_limit, err);
    if (!status) {
        status = start_threads(&p, workers, lanes, lane_count, err);
        stop_threads(&p, workers, lanes, lane_count);
        if (!status && p.failure.status)
            status = conv_err_set(err, p.failure.status, "%s", p.failure.text);
    }
    conv_pool_close(&p.pool);
    conv_output_close();
    free_spares(&p);
    free(workers);
    free(lanes);
    pthread_mutex_destroy(&p.report_lock);
    pthread_mutex_destroy(&p.lock);
    pthread_cond_destroy(&p.lane_work);
    pthread_cond_destroy(&p.changed);
    return status;
}
