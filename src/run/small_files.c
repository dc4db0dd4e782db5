// SPDX-License-Identifier: MIT
// 40,000 icons on an H100 and 16 cores, coded by the GPU: 3.7 s of processors with one file at a
// time, 1.2 s with 16, in 0.62 and 0.51 s, on another machine in 0.57 and 0.58. 2026-11-26.
#include "run/worker.h"

#include "run/scheduler.h"
#include "run/stages.h"

#define SMALL_BYTES ((size_t)1 << 16)

bool conv_small_files_fits(const struct conv_scheduler *s, const struct conv_job *job)
{
    const struct conv_pipeline_config *config = s->config;
    return config->encode_on == CONV_CODER_GPU && config->decode_on != CONV_CODER_CPU &&
           job->want > 0 && job->want <= SMALL_BYTES && job->decode_on != CONV_CODER_CPU &&
           !job->item.is_copy;
}

// Takes jobs with buffers for their files out of the announced ones. Returns how many.
static int take_announced(struct conv_scheduler *s, struct conv_job *jobs[CONV_SMALL_FILES])
    CONV_NEEDS(s->lock)
{
    int count = 0;
    struct conv_job *job;
    while (count < CONV_SMALL_FILES && (job = s->jobs.announced.first) &&
           conv_small_files_fits(s, job) && conv_sink_may_begin(s->config->sink, &job->item) &&
           conv_ledger_try(&s->ledger, &job->share, job->want)) {
        conv_job_pop(&s->jobs.announced);
        (void)conv_jobs_take_file(s, job);
        jobs[count++] = job;
    }
    if (count > 0 && s->jobs.announced.first)
        pthread_cond_signal(&s->wake.workers);
    return count;
}

// Reads until a file has grown beyond its share: growing another one might wait for memory that
// these jobs have. Returns how many were read.
static int read_files(struct conv_scheduler *s, struct conv_worker *worker,
                      struct conv_job *const jobs[], enum conv_status status[], int count)
    CONV_TAKES(s->lock)
{
    int read = 0;
    bool grown = false;
    while (read < count && !grown) {
        status[read] = conv_tasks_read_file(s, worker, jobs[read]);
        grown = jobs[read]->share.bytes > jobs[read]->want;
        read++;
    }
    return read;
}

// Gives the image its place in a group. False if it gets none yet, or if a worker is to decode it,
// which would make the others wait: then it is parked.
static bool place(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock)
{
    enum conv_status status = CONV_OK;
    if (conv_groups_place(s, job, true, &status))
        return true;
    if (status) {
        conv_jobs_finish(s, job, status);
        return false;
    }
    conv_job_move(job, CONV_JOB_PARKED);
    conv_job_push(&s->jobs.parked, job);
    pthread_cond_signal(&s->wake.workers);
    return false;
}

bool conv_small_files_read(struct conv_scheduler *s, struct conv_worker *worker)
{
    struct conv_job *jobs[CONV_SMALL_FILES];
    enum conv_status status[CONV_SMALL_FILES];
    bool on_cpu[CONV_SMALL_FILES];
    int begun = s->jobs.live - s->jobs.announced.count, to_encode = s->jobs.to_encode.count;
    int count = take_announced(s, jobs), placed = 0;
    if (count == 0)
        return false;
    conv_lock_release(&s->lock);
    conv_trace_queues(worker->track, begun, to_encode);
    int read = read_files(s, worker, jobs, status, count);
    conv_lock_acquire(&s->lock);
    for (int i = read; i < count; i++) {
        conv_jobs_drop_file(s, jobs[i]);
        conv_job_insert(&s->jobs.announced, jobs[i]);
    }
    for (int i = 0; i < read; i++) {
        if (status[i])
            conv_jobs_finish(s, jobs[i], status[i]);
        else if (place(s, jobs[i]))
            jobs[placed++] = jobs[i];
    }
    conv_lock_release(&s->lock);
    for (int i = 0; i < placed; i++)
        on_cpu[i] = !conv_stages_pass_on(jobs[i]);
    conv_lock_acquire(&s->lock);
    for (int i = 0; i < placed; i++)
        conv_tasks_end_decode(s, jobs[i], CONV_OK, on_cpu[i]);
    return true;
}

// Takes jobs that a device has encoded. Returns how many.
static int take_encoded(struct conv_scheduler *s, struct conv_job *jobs[CONV_SMALL_FILES])
    CONV_NEEDS(s->lock)
{
    int count = 0;
    struct conv_job *job;
    while (count < CONV_SMALL_FILES && (job = s->jobs.to_encode.first) &&
           job->slot->group.encoded &&
           job->slot->group.images[job->image].chunks_bytes <= SMALL_BYTES) {
        conv_job_pop(&s->jobs.to_encode);
        conv_job_move(job, CONV_JOB_ENCODING);
        jobs[count++] = job;
    }
    if (count > 0 && s->jobs.to_encode.first)
        pthread_cond_signal(&s->wake.workers);
    return count;
}

bool conv_small_files_write(struct conv_scheduler *s, struct conv_worker *worker)
{
    struct conv_job *jobs[CONV_SMALL_FILES];
    enum conv_status status[CONV_SMALL_FILES];
    int count = conv_sink_has_order(s->config->sink) ? 0 : take_encoded(s, jobs), done = 0;
    if (count == 0)
        return false;
    conv_lock_release(&s->lock);
    for (int i = 0; i < count; i++) {
        jobs[i]->track = worker->track;
        jobs[i]->phase = &worker->phase;
        status[i] = conv_stages_encode(s->config, worker->codecs, worker->index, jobs[i]);
    }
    conv_lock_acquire(&s->lock);
    for (int i = 0; i < count; i++) {
        conv_groups_leave(s, jobs[i]);
        if (status[i] || jobs[i]->item.is_numbered)
            conv_jobs_finish(s, jobs[i], status[i]);
        else
            jobs[done++] = jobs[i];
    }
    conv_jobs_finish_done(s, jobs, done);
    return true;
}
