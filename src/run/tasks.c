// SPDX-License-Identifier: MIT
#include "run/worker.h"

#include "run/devices.h"
#include "run/scheduler.h"
#include "run/stages.h"

// --- source --------------------------------------------------------------------------------------

// Images that are fetched from the source at once: with one at a time, workers would wait for each
// other where images are small.
#define WALK_BATCH 8

static void note_found(struct conv_found *found, enum conv_source_step step,
                       const struct conv_item *item)
{
    if (step == CONV_SOURCE_END)
        atomic_store(&found->listed, true);
    else if (step != CONV_SOURCE_REPEATED && !(step == CONV_SOURCE_ITEM && item->is_copy) &&
             item->holds == 0)
        atomic_fetch_add(&found->images, 1);
}

// The next step of the source. An image or copy has a name that no earlier one has.
static enum conv_source_step next_named(struct conv_scheduler *s, struct conv_job *job)
{
    const struct conv_pipeline_config *config = s->config;
    struct conv_item *item = &job->item;
    for (;;) {
        enum conv_sink_claim claim;
        item->is_copy = item->is_link = item->keeps_name = false;
        item->is_repeated = item->is_refused = item->is_numbered = item->is_result = false;
        item->archive = item->holds = 0;
        enum conv_source_step step = conv_source_next(s->source, item, &job->err);
        if (config->found)
            note_found(config->found, step, item);
        if (step != CONV_SOURCE_ITEM || !config->sink || !conv_item_target(item)[0])
            return step;
        bool npy = config->output_type == CONV_OUTPUT_F32;
        item->is_result =
            !item->is_copy &&
            (npy || (config->output_format &&
                     conv_formats_of_name(conv_item_target(item)) != config->output_format));
        if (item->is_result && conv_item_set_format(item, config->output_format, npy, &job->err))
            return CONV_SOURCE_BAD;
        if (conv_sink_claim(config->sink, item, &claim, &job->err))
            return CONV_SOURCE_BAD;
        if (claim != CONV_SINK_CLAIM_LATER)
            return claim == CONV_SINK_CLAIMED ? step : CONV_SOURCE_DONE;
        if (conv_source_hold(s->source, item, &job->err))
            return CONV_SOURCE_BAD;
    }
}

// The same, with a place for its output.
static enum conv_source_step next_job(struct conv_scheduler *s, struct conv_job *job)
{
    const struct conv_sink *sink = s->config->sink;
    enum conv_source_step step = next_named(s, job);
    job->item.number = s->next_number;
    s->next_number += step != CONV_SOURCE_END;
    // An item that cannot be read may have no name below the sink: the list itself, for example.
    bool has_place = step != CONV_SOURCE_END && sink && conv_item_target(&job->item)[0];
    if (has_place &&
        sink->ops->place(sink, &job->item, &job->output,
                         step == CONV_SOURCE_ITEM ? &job->err : NULL) &&
        step == CONV_SOURCE_ITEM)
        step = CONV_SOURCE_BAD;
    return step;
}

// Fills `jobs` and `steps` from the source, no further than it takes without waiting for a name.
// Returns how many; *over: the source has ended.
static int fill_batch(struct conv_scheduler *s, struct conv_job *jobs[],
                      enum conv_source_step steps[], int room, bool *over)
{
    int count = 0;
    *over = false;
    while (!*over && count < room &&
           (count == 0 || !(conv_source_may_wait(s->source) || conv_source_is_full(s->source)))) {
        steps[count] = next_job(s, jobs[count]);
        *over = steps[count] == CONV_SOURCE_END;
        jobs[count]->number = *over ? 0 : ++s->numbered;
        count += !*over;
    }
    return count;
}

// Reports what came from the source instead of an image: a repeated name or an error.
static void finish_unusable(struct conv_scheduler *s, struct conv_job *job,
                            enum conv_source_step step) CONV_NEEDS(s->lock)
{
    enum conv_status status = job->err.status;
    const char *reason = conv_source_skip_reason(step, &job->item);
    if (reason) {
        job->outcome = CONV_OUTCOME_SKIPPED;
        job->reason = reason;
        job->notable = step == CONV_SOURCE_REPEATED;
        if (step != CONV_SOURCE_REPEATED)
            job->output.path[0] = '\0';
        status = CONV_OK;
    }
    conv_jobs_finish(s, job, status);
}

void conv_tasks_fetch(struct conv_scheduler *s)
{
    struct conv_job *jobs[WALK_BATCH];
    enum conv_source_step steps[WALK_BATCH];
    bool over;
    int room = 0;
    while (room < WALK_BATCH && (jobs[room] = conv_jobs_new(s)))
        room++;
    if (room == 0) {
        conv_err_set(&s->failure, CONV_ERR_MEMORY, "no memory for another image");
        conv_scheduler_stop(s);
        return;
    }
    s->source_state = CONV_SOURCE_BUSY;
    conv_lock_release(&s->lock);
    int count = fill_batch(s, jobs, steps, room, &over);
    conv_lock_acquire(&s->lock);
    s->source_state = over ? CONV_SOURCE_OVER : CONV_SOURCE_IDLE;
    for (int i = count; i < room; i++)
        conv_jobs_put_away(s, jobs[i]);
    for (int i = 0; i < count; i++) {
        if (s->config->layer && s->config->layer->collect)
            conv_jobs_join_line(s, jobs[i]);
        if (steps[i] == CONV_SOURCE_ITEM)
            conv_job_push(&s->jobs.found, jobs[i]);
        else
            s->jobs.live++;
    }
    pthread_cond_signal(&s->wake.workers);
    for (int i = 0; i < count; i++)
        if (steps[i] != CONV_SOURCE_ITEM)
            finish_unusable(s, jobs[i], steps[i]);
}

// --- announce and read ---------------------------------------------------------------------------

void conv_tasks_announce(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
{
    s->jobs.live++;
    s->jobs.begun++;
    conv_lock_release(&s->lock);
    job->track = worker->track;
    enum conv_status status = conv_plan_job(s->config, job);
    bool goes_on = !status && job->outcome == CONV_OUTCOME_DONE;
    if (goes_on) {
        conv_stages_announce(s->config, job);
        status = conv_plan_check_output(s->config, job);
    }
    conv_lock_acquire(&s->lock);
    if (status || !goes_on) {
        conv_jobs_finish(s, job, status);
        return;
    }
    conv_job_move(job, CONV_JOB_ANNOUNCED);
    conv_job_insert(&s->jobs.announced, job);
}

// Reads the file of an announced job into the buffer that it has got, if there was memory.
static enum conv_status read_file(struct conv_scheduler *s, struct conv_worker *worker,
                                  struct conv_job *job) CONV_TAKES(s->lock)
{
    conv_job_move(job, CONV_JOB_READING);
    job->track = worker->track;
    if (!job->file)
        return conv_err_set(&job->err, CONV_ERR_MEMORY, "no memory for the file");
    if (!s->config->fallback_ops && conv_devices_are_lost(s, &job->err))
        return job->err.status;
    return conv_stages_read(s->config, job);
}

bool conv_tasks_read(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
{
    int begun = s->jobs.live - s->jobs.announced.count, to_encode = s->jobs.to_encode.count;
    (void)conv_jobs_take_file(s, job);
    conv_worker_take(worker, job, false);
    job->parallel = &worker->parallel;
    conv_lock_release(&s->lock);
    conv_trace_queues(worker->track, begun, to_encode);
    enum conv_status status = read_file(s, worker, job);
    job->parallel = NULL;
    conv_lock_acquire(&s->lock);
    if (status)
        conv_jobs_finish(s, job, status);
    return !status;
}

void conv_tasks_copy(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
{
    conv_job_move(job, CONV_JOB_READING);
    conv_lock_release(&s->lock);
    job->track = worker->track;
    enum conv_status status = conv_stages_copy(s->config, worker->index, job);
    conv_lock_acquire(&s->lock);
    if (!status)
        job->outcome = CONV_OUTCOME_COPIED;
    conv_jobs_finish(s, job, status);
}

// --- decode and encode for a group ---------------------------------------------------------------

// The job leaves the decoders of its group: for the stream with the group, for a worker to decode
// it after all (on_cpu), or because it failed.
static void end_decode(struct conv_scheduler *s, struct conv_job *job, enum conv_status status,
                       bool on_cpu) CONV_NEEDS(s->lock)
{
    struct conv_slot *slot = job->slot;
    if (!status && !slot->group.decoded)
        conv_groups_note_decoded(s, job);
    if (!status && !on_cpu) {
        conv_job_move(job, CONV_JOB_DECODED);
        conv_jobs_drop_file(s, job);
        job->next = slot->jobs;
        slot->jobs = job;
    } else {
        job->slot = NULL;
        slot->unfinished--;
    }
    if (on_cpu) {
        conv_job_move(job, CONV_JOB_PARKED);
        job->decode_on = CONV_CODER_CPU;
        conv_job_push(&s->jobs.parked, job);
        pthread_cond_signal(&s->wake.workers);
    }
    conv_groups_end_decode(s, slot);
    if (status)
        conv_jobs_finish(s, job, status);
}

void conv_tasks_decode(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
{
    conv_worker_take(worker, job, true);
    conv_lock_release(&s->lock);
    enum conv_status status = CONV_OK;
    bool on_cpu = false;
    if (job->slot->group.decoded)
        on_cpu = !conv_stages_pass_on(job);
    else
        status = conv_stages_decode(s->config, worker->codecs, job);
    conv_lock_acquire(&s->lock);
    end_decode(s, job, status, on_cpu);
}

void conv_tasks_encode(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
{
    conv_job_move(job, CONV_JOB_ENCODING);
    conv_worker_take(worker, job, false);
    conv_lock_release(&s->lock);
    enum conv_status status = conv_stages_encode(s->config, worker->codecs, worker->index, job);
    conv_lock_acquire(&s->lock);
    conv_groups_leave(s, job);
    conv_jobs_finish(s, job, status);
}

// --- several small files at a time ---------------------------------------------------------------
// 40,000 icons on an H100 and 16 cores, coded by the GPU: 3.7 s of processors with one file at a
// time, 1.2 s with 16, in 0.62 and 0.51 s, on another machine in 0.57 and 0.58. 2026-11-26.

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
        status[read] = read_file(s, worker, jobs[read]);
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
        end_decode(s, jobs[i], CONV_OK, on_cpu[i]);
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
