// SPDX-License-Identifier: MIT
// The workers: what each thread does next.
//
// Order of a worker's preferences on an async backend: encode (it sets staging memory free), place
// and decode a picture that waits for memory, read a new one. So the pipeline cannot fill up: what
// is nearer to its end goes first.
#include <time.h>

#include "pipeline/scheduler.h"
#include "pipeline/steps.h"

// A group that is not full is sent off when no picture has come for so long.
#define IDLE_NS 5000000

// Fetches the next picture from the walk. Called and returns with the lock; NULL if there is none.
static struct conv_job *take_job(struct conv_scheduler *s)
{
    struct conv_job *job = conv_jobs_new(s);
    if (!job) {
        conv_err_set(&s->failure, CONV_ERR_MEMORY, "no memory for another picture");
        conv_scheduler_stop(s);
        return NULL;
    }
    s->live++;
    s->walking = true;
    pthread_mutex_unlock(&s->lock);
    enum conv_walk_step step = conv_walk_next(s->walk, &job->path, &job->err);
    pthread_mutex_lock(&s->lock);
    s->walking = false;
    if (step == CONV_WALK_ENTRY) {
        pthread_cond_signal(&s->changed); // another may walk now
        return job;
    }
    if (step == CONV_WALK_END) {
        s->walked = true;
        conv_jobs_drop(s, job);
        return NULL;
    }
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    conv_jobs_finish(s, job, job->err.status);
    return NULL;
}

// Called with the lock: the slot's count of decoders goes down, the job is ready for the lane or
// finished. Returns with the lock.
static void after_decode(struct conv_scheduler *s, struct conv_job *job, enum conv_status status)
{
    struct conv_slot *slot = job->slot;
    slot->decoding--;
    conv_jobs_drop_file(s, job);
    if (!status) {
        job->next = slot->jobs;
        slot->jobs = job;
    } else {
        job->slot = NULL;
        slot->unfinished--;
    }
    if (slot->sealed)
        conv_groups_seal(s, slot);
    else
        pthread_cond_signal(&s->changed); // an idle worker may want to seal it
    if (status) {
        pthread_mutex_unlock(&s->lock);
        conv_jobs_finish(s, job, status);
    }
}

// Called and returns with the lock; the job has its place in a slot.
static void decode_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    pthread_mutex_unlock(&s->lock);
    job->row = worker->row;
    enum conv_status status = conv_steps_decode(s->config, worker->codec, job);
    pthread_mutex_lock(&s->lock);
    after_decode(s, job, status);
}

// Called and returns with the lock.
static void encode_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    pthread_mutex_unlock(&s->lock);
    job->row = worker->row;
    enum conv_status status = conv_steps_encode(s->config, worker->codec, worker->index, job);
    pthread_mutex_lock(&s->lock);
    conv_groups_leave(s, job);
    pthread_mutex_unlock(&s->lock);
    conv_jobs_finish(s, job, status);
}

// Plans and reads a new picture. Called and returns with the lock; true if the picture goes on.
static bool read_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    int live = s->live, to_encode = s->to_encode.count;
    pthread_mutex_unlock(&s->lock);
    conv_trace_queues(worker->row, live, to_encode);
    job->row = worker->row;
    enum conv_status status = conv_steps_plan(s->config, job);
    bool wanted = !status && job->outcome == CONV_OUTCOME_DONE;
    if (wanted && !s->config->spare_ops && conv_lane_is_lost(s, &job->err))
        status = job->err.status;
    if (wanted && !status)
        status = conv_steps_read(s->config, job);
    if (status == CONV_ERR_CANCELLED) { // not begun
        pthread_mutex_lock(&s->lock);
        conv_jobs_drop(s, job);
        return false;
    }
    if (!wanted || status) {
        conv_jobs_finish(s, job, status);
        return false;
    }
    pthread_mutex_lock(&s->lock);
    return true;
}

// Async backend: the picture gets a place and is decoded, or is parked. With the lock.
static void start_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    enum conv_status status = CONV_OK;
    if (conv_groups_place(s, job, &status)) {
        decode_job(worker, job);
    } else if (status) {
        pthread_mutex_unlock(&s->lock);
        conv_jobs_finish(s, job, status);
    } else {
        conv_jobs_push(&s->parked, job);
    }
}

// Other backends: one worker, one picture, all the way. With the lock.
static void run_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    const struct conv_image *shape = &job->header.shape;
    size_t need = conv_group_need(shape, s->filter_alpha, s->table_bytes);
    struct conv_slot *slot = NULL;
    enum conv_status status = conv_pool_acquire(&s->pool, need, &slot, &job->err);
    while (!status && !slot) {
        pthread_cond_wait(&s->changed, &s->lock);
        status = conv_pool_acquire(&s->pool, need, &slot, &job->err);
    }
    pthread_mutex_unlock(&s->lock);
    if (!status) {
        job->slot = slot;
        conv_group_place(&slot->group, shape, s->filter_alpha, s->table_bytes, &job->in,
                         job->out_offset);
        status = conv_steps_decode(s->config, worker->codec, job);
    }
    if (!status)
        status = conv_steps_filter(s->config, worker->lane, job);
    if (!status)
        status = conv_steps_encode(s->config, worker->codec, worker->index, job);
    if (slot) {
        pthread_mutex_lock(&s->lock);
        conv_pool_release(slot);
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    conv_jobs_finish(s, job, status);
}

// Waits for something to do. A group that waits for company is sent off when none is coming.
static void wait_for_work(struct conv_scheduler *s)
{
    struct conv_slot *open = s->open;
    if (!open || open->decoding > 0) {
        pthread_cond_wait(&s->changed, &s->lock);
        return;
    }
    if (s->walked || conv_scheduler_is_stopping(s)) {
        conv_groups_seal(s, open);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += IDLE_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    if (pthread_cond_timedwait(&s->changed, &s->lock, &until) != 0 && s->open == open &&
        open->decoding == 0)
        conv_groups_seal(s, open);
}

// One task, or one wait. False when there is nothing left to do. With the lock.
static bool do_task(struct conv_worker *worker)
{
    struct conv_scheduler *s = worker->scheduler;
    bool stopping = conv_scheduler_is_stopping(s);
    struct conv_job *job = conv_jobs_pop(&s->to_encode);
    if (job) {
        encode_job(worker, job);
    } else if (s->parked.first && stopping) {
        conv_jobs_drop(s, conv_jobs_pop(&s->parked)); // read, but not begun
    } else if (s->parked.first) {
        // Taken out first: while this worker decodes, others must not see it.
        job = conv_jobs_pop(&s->parked);
        enum conv_status status = CONV_OK;
        if (conv_groups_place(s, job, &status)) {
            decode_job(worker, job);
        } else if (status) {
            pthread_mutex_unlock(&s->lock);
            conv_jobs_finish(s, job, status);
        } else {
            conv_jobs_put_back(&s->parked, job);
            pthread_cond_wait(&s->changed, &s->lock);
        }
    } else if (!s->walked && !s->walking && !stopping) {
        job = take_job(s);
        if (job && read_job(worker, job)) {
            if (s->config->ops->async)
                start_job(worker, job);
            else
                run_job(worker, job);
        }
    } else if ((s->walked || stopping) && s->live == 0) {
        return false;
    } else {
        wait_for_work(s);
    }
    return true;
}

void *conv_worker_main(void *argument)
{
    struct conv_worker *worker = argument;
    struct conv_scheduler *s = worker->scheduler;
    pthread_mutex_lock(&s->lock);
    while (do_task(worker))
        ;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
