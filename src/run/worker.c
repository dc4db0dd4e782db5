// SPDX-License-Identifier: MIT
// What a worker does next. The order of preference on an async backend: encode (which frees staging
// memory), place and decode an image that waits for memory, read a new one, after a walk when few
// are found. The image that is nearest to its end goes first, so that the pipeline cannot fill up.
#include "run/worker.h"

#include "base/clock.h"
#include "run/job.h"
#include "run/scheduler.h"

// An open group is sealed when no image has come for this long.
#define IDLE_NS 5000000

// Files that the system fetches ahead of those that are read.
#define AHEAD 16

// While a worker reads or writes a file of this size, others have time to wake up.
#define LARGE_BYTES 32768

void conv_worker_take(struct conv_worker *worker, struct conv_job *job, bool decodes)
{
    worker->job = job;
    worker->decodes = decodes;
    worker->reserved = 0;
    job->track = worker->track;
    job->phase = &worker->phase;
}

bool conv_worker_leave(struct conv_scheduler *s, struct conv_worker *worker)
{
    if (!conv_phase_leave(&worker->phase))
        return false;
    // Its memory and the slot's stay as they are; locks and shares that others may wait for are
    // released.
    if (worker->job)
        conv_ledger_release(worker->job->ledger, &worker->job->share);
    if (worker->reserved > 0)
        conv_ledger_unreserve(&s->ledger, worker->reserved);
    if (worker->decodes)
        conv_groups_end_decode(s, worker->job->slot);
    s->jobs.live -= worker->job != NULL;
    s->working--;
    pthread_cond_broadcast(&s->wake.workers);
    pthread_cond_broadcast(&s->wake.memory);
    return true;
}

// --- waiting and waking --------------------------------------------------------------------------

// Waits for something to do. One idle worker at a time, the sealer, waits for a shorter time: it
// seals an open group that gets no more images.
static void wait_for_work(struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    struct conv_slot *open = conv_groups_find_idle(s);
    bool last = s->source_state == CONV_SOURCE_OVER || conv_scheduler_is_stopping(s) ||
                s->jobs.live >= (int)s->config->memory.live;
    if (!open || (s->groups.has_sealer && !last)) {
        conv_scheduler_wait(s, &s->wake.workers, CONV_SCHEDULER_LOOK_NS);
        return;
    }
    if (last) {
        conv_groups_seal(s, open);
        return;
    }
    s->groups.has_sealer = true;
    bool woken = conv_scheduler_wait(s, &s->wake.workers, IDLE_NS);
    s->groups.has_sealer = false;
    // Images for other groups wake the sealer too, however long this one has waited.
    if (open->state == CONV_SLOT_OPEN && open->decoding == 0 &&
        conv_clock_ns() - open->touched_at >= IDLE_NS)
        conv_groups_seal(s, open);
    if (woken)
        pthread_cond_signal(&s->wake.workers); // another worker may have to become the sealer
}

// A worker that takes a job from a list wakes another worker for the next. If jobs end before a
// thread has woken up, few threads are woken. If they take longer, each worker wakes two others: a
// group releases many jobs at once, and the last worker would start late if each woke only one.
static void wake_for(struct conv_scheduler *s, const struct conv_job_list *list) CONV_NEEDS(s->lock)
{
    if (!list->first)
        return;
    pthread_cond_signal(&s->wake.workers);
    if (list->first->next && list->first->bytes_in >= LARGE_BYTES)
        pthread_cond_signal(&s->wake.workers);
}

// Waits until there may be room in a group for a parked image. A worker that waits for a device to
// decode counts as idle: the decode policy spends that time.
static void wait_for_room(struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    uint64_t start = conv_clock_ns();
    conv_scheduler_wait(s, &s->wake.workers, conv_decode_policy_wait_limit_ns(&s->policy));
    conv_decode_policy_note_idle(&s->policy, conv_clock_ns() - start);
}

// --- choosing ------------------------------------------------------------------------------------

static bool may_begin(const struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    return s->jobs.found.first && s->jobs.live < (int)s->config->memory.live;
}

// True if enough files are being fetched that the first is to be read.
static bool is_ripe(const struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    const struct conv_job *first = s->jobs.announced.first;
    if (!first)
        return false;
    int more = conv_small_files_fits(s, first) ? CONV_SMALL_FILES - 1 : 0;
    return s->jobs.announced.count > AHEAD + more || !may_begin(s);
}

// A walk that may wait for the next name does so only when all images found so far are read, and
// with a single worker, finished.
static bool may_fetch(const struct conv_scheduler *s) CONV_NEEDS(s->lock)
{
    if (s->source_state != CONV_SOURCE_IDLE || conv_source_is_full(s->source))
        return false;
    bool others_wait = s->jobs.announced.first || (s->config->jobs == 1 && s->jobs.live > 0);
    return !others_wait || !conv_source_may_wait(s->source);
}

// Each of the following functions does one task, or returns false if there is none of its kind.

static bool encode_next(struct conv_scheduler *s, struct conv_worker *worker) CONV_NEEDS(s->lock)
{
    if (conv_small_files_write(s, worker))
        return true;
    struct conv_job *job = conv_job_pop(&s->jobs.to_encode);
    if (!job)
        return false;
    wake_for(s, &s->jobs.to_encode);
    conv_tasks_encode(s, worker, job);
    return true;
}

static bool place_parked(struct conv_scheduler *s, struct conv_worker *worker, bool stopping)
    CONV_NEEDS(s->lock)
{
    // Taken out first: while this worker decodes, others must not see it.
    struct conv_job *job = conv_job_pop(&s->jobs.parked);
    enum conv_status status = CONV_OK;
    if (!job)
        return false;
    if (stopping) {
        conv_jobs_drop(s, job); // read, but not begun
    } else if (conv_groups_place(s, job, false, &status)) {
        pthread_cond_signal(&s->wake.workers); // there may be room for another, or for new ones
        conv_tasks_decode(s, worker, job);
    } else if (status) {
        pthread_cond_signal(&s->wake.workers);
        conv_jobs_finish(s, job, status);
    } else {
        conv_job_put_back(&s->jobs.parked, job);
        wait_for_room(s);
    }
    return true;
}

static bool fetch_next(struct conv_scheduler *s, bool stopping) CONV_NEEDS(s->lock)
{
    if (s->jobs.found.count >= s->config->jobs || !may_fetch(s) || stopping)
        return false;
    conv_tasks_fetch(s);
    return true;
}

// After a stop nothing new is begun.
static bool drop_waiting(struct conv_scheduler *s, bool stopping) CONV_NEEDS(s->lock)
{
    if (!stopping || !(s->jobs.found.first || s->jobs.announced.first || s->jobs.links.first))
        return false;
    while (s->jobs.found.first)
        conv_jobs_put_away(s, conv_job_pop(&s->jobs.found));
    while (s->jobs.announced.first)
        conv_jobs_drop(s, conv_job_pop(&s->jobs.announced));
    while (s->jobs.links.first)
        conv_jobs_drop(s, conv_job_pop(&s->jobs.links));
    return true;
}

static void park(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock)
{
    conv_job_move(job, CONV_JOB_PARKED);
    conv_job_push(&s->jobs.parked, job);
}

// Async backend: the image that was read gets a place and is decoded, or is parked.
static void begin(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock)
{
    enum conv_status status = CONV_OK;
    if (conv_groups_place(s, job, false, &status))
        conv_tasks_decode(s, worker, job);
    else if (status)
        conv_jobs_finish(s, job, status);
    else
        park(s, job);
}

// A link waits outside the queue, so that others can be begun meanwhile.
static bool copy_link(struct conv_scheduler *s, struct conv_worker *worker, bool stopping)
    CONV_NEEDS(s->lock)
{
    while (s->jobs.announced.first && s->jobs.announced.first->item.is_link)
        conv_job_insert(&s->jobs.links, conv_job_pop(&s->jobs.announced));
    struct conv_job *job = s->jobs.links.first;
    if (!job || stopping || !conv_sink_is_due(s->config->sink, &job->item))
        return false;
    conv_job_pop(&s->jobs.links);
    conv_tasks_copy(s, worker, job);
    return true;
}

static bool read_next(struct conv_scheduler *s, struct conv_worker *worker) CONV_NEEDS(s->lock)
{
    struct conv_job *job = s->jobs.announced.first;
    if (is_ripe(s) && conv_small_files_read(s, worker))
        return true;
    // Its output may have to wait until others are written, its buffer until others are released.
    if (!is_ripe(s) || !conv_sink_may_begin(s->config->sink, &job->item) ||
        !conv_ledger_try(job->ledger, &job->share, job->want))
        return false;
    conv_job_pop(&s->jobs.announced);
    wake_for(s, &s->jobs.announced);
    if (job->item.is_copy) {
        conv_tasks_copy(s, worker, job);
        return true;
    }
    if (!conv_tasks_read(s, worker, job))
        return true;
    if (s->config->layer)
        conv_layer_stage_run(s, worker, job);
    else if (s->config->ops->async)
        begin(s, worker, job);
    else
        conv_tasks_run(s, worker, job);
    return true;
}

static bool announce_next(struct conv_scheduler *s, struct conv_worker *worker) CONV_NEEDS(s->lock)
{
    if (!may_begin(s) || is_ripe(s))
        return false;
    struct conv_job *job = conv_job_pop(&s->jobs.found);
    wake_for(s, &s->jobs.found);
    conv_tasks_announce(s, worker, job);
    return true;
}

static bool do_task(struct conv_scheduler *s, struct conv_worker *worker, bool stopping)
    CONV_NEEDS(s->lock)
{
    return encode_next(s, worker) || place_parked(s, worker, stopping) ||
           copy_link(s, worker, stopping) || fetch_next(s, stopping) || drop_waiting(s, stopping) ||
           read_next(s, worker) || announce_next(s, worker) || conv_helpers_help(s, worker, NULL);
}

void *conv_worker_main(void *argument)
{
    struct conv_worker *worker = argument;
    struct conv_scheduler *s = worker->scheduler;
    conv_lock_acquire(&s->lock);
    for (;;) {
        bool stopping = conv_scheduler_is_stopping(s); // one answer for the whole round
        if (do_task(s, worker, stopping))
            continue;
        if ((s->source_state == CONV_SOURCE_OVER || stopping) && s->jobs.live == 0)
            break;
        wait_for_work(s);
    }
    pthread_cond_broadcast(&s->wake.workers);
    s->working--;
    pthread_cond_signal(&s->wake.ended);
    conv_lock_release(&s->lock);
    return NULL;
}
