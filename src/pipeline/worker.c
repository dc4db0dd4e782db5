// SPDX-License-Identifier: MIT
// The workers: what each thread does next.
//
// Order of a worker's preferences on an async backend: encode (it sets staging memory free), place
// and decode an image that waits for memory, read a new one, after a walk when few are found. So
// the pipeline cannot fill up: what is nearer to its end goes first.
#include "base/cancel.h"
#include "base/clock.h"
#include "pipeline/fetch.h"
#include "pipeline/need.h"
#include "pipeline/phase.h"
#include "pipeline/plan.h"
#include "pipeline/scheduler.h"
#include "pipeline/stages.h"

// A group that is not full is sent off when no image has come for so long.
#define IDLE_NS 5000000

// Images that a walk fetches at once.
#define WALK_BATCH 8

// Files that are fetched from the disk ahead of those who read.
#define AHEAD 16

// The next image of the source, with a place for its output.
static enum conv_source_step next_job(struct conv_scheduler *s, struct conv_job *job)
{
    const struct conv_sink *sink = s->config->sink;
    enum conv_source_step step = conv_source_next(s->source, &job->item, &job->err);
    // What is bad may have no name below the sink: the list itself, say.
    bool has_place = step != CONV_SOURCE_END && sink && conv_item_target(&job->item)[0];
    if (has_place && sink->ops->place(sink, &job->item, &job->output,
                                      step == CONV_SOURCE_ITEM ? &job->err : NULL) &&
        step == CONV_SOURCE_ITEM)
        step = CONV_SOURCE_BAD;
    return step;
}

// Fetches images from the walk, several at once: a walk for each would have all workers wait for
// each other where images are small. Called and returns with the lock.
static void walk_on(struct conv_scheduler *s)
{
    struct conv_job *jobs[WALK_BATCH];
    enum conv_source_step steps[WALK_BATCH];
    int made = 0, count = 0;
    bool more = true;
    while (made < WALK_BATCH && (jobs[made] = conv_jobs_new(s)))
        made++;
    if (made == 0) {
        conv_err_set(&s->failure, CONV_ERR_MEMORY, "no memory for another image");
        conv_scheduler_stop(s);
        return;
    }
    s->walking = true;
    pthread_mutex_unlock(&s->lock);
    while (more && count < made && (count == 0 || !conv_source_may_wait(s->source))) {
        steps[count] = next_job(s, jobs[count]);
        more = steps[count] != CONV_SOURCE_END;
        count += more;
    }
    pthread_mutex_lock(&s->lock);
    s->walking = false;
    s->walked = !more;
    for (int i = count; i < made; i++)
        conv_jobs_put_away(s, jobs[i]);
    for (int i = 0; i < count; i++) {
        if (steps[i] == CONV_SOURCE_ITEM) {
            conv_jobs_push(&s->found, jobs[i]);
        } else {
            s->live++;
        }
    }
    pthread_cond_signal(&s->changed);
    for (int i = 0; i < count; i++) {
        if (steps[i] == CONV_SOURCE_ITEM)
            continue;
        bool repeated = steps[i] == CONV_SOURCE_REPEATED;
        if (repeated) {
            jobs[i]->outcome = CONV_OUTCOME_SKIPPED;
            jobs[i]->reason = "listed again; only the first counts";
            jobs[i]->notable = true;
        }
        pthread_mutex_unlock(&s->lock);
        conv_jobs_finish(s, jobs[i], repeated ? CONV_OK : jobs[i]->err.status);
    }
}

// Called with the lock: the slot's count of decoders goes down, the job is ready for the stream, to
// be decoded on the CPU, or finished. Returns with the lock.
static void after_decode(struct conv_scheduler *s, struct conv_job *job, enum conv_status status,
                         bool on_cpu)
{
    struct conv_slot *slot = job->slot;
    slot->touched_at = conv_clock_ns();
    slot->decoding--;
    if (!status && !slot->group.decoded)
        conv_groups_note_decoded(s, job);
    if (!status && !on_cpu) {
        conv_jobs_drop_file(s, job);
        job->next = slot->jobs;
        slot->jobs = job;
    } else {
        job->slot = NULL;
        slot->unfinished--;
    }
    if (on_cpu) {
        job->on_cpu = true;
        conv_jobs_push(&s->parked, job);
        pthread_cond_signal(&s->changed);
    }
    if (slot->sealed)
        conv_groups_seal(s, slot);
    else if (slot->decoding == 0 && !s->minding)
        pthread_cond_signal(&s->changed); // an idle worker may want to mind it
    if (status) {
        pthread_mutex_unlock(&s->lock);
        conv_jobs_finish(s, job, status);
    }
}

// From now on the worker computes on this job.
static void take_job(struct conv_worker *worker, struct conv_job *job, bool decodes)
{
    worker->job = job;
    worker->decodes = decodes;
    worker->reserved = 0;
    job->row = worker->row;
    job->phase = &worker->phase;
}

bool conv_worker_leave(struct conv_worker *worker)
{
    struct conv_scheduler *s = worker->scheduler;
    if (!conv_phase_leave(&worker->phase))
        return false;
    // Its memory stays as it is, the slot among it; what others may wait for is set free.
    conv_budget_release(worker->job->budget, &worker->job->share);
    if (worker->reserved > 0)
        conv_budget_unreserve(&s->files, worker->reserved);
    struct conv_slot *slot = worker->job->slot;
    if (worker->decodes) {
        slot->left = true;
        slot->decoding--;
        if (slot->sealed)
            conv_groups_seal(s, slot);
    }
    s->live--;
    s->working--;
    pthread_cond_broadcast(&s->changed);
    pthread_cond_broadcast(&s->room);
    return true;
}

// Called and returns with the lock; the job has its place in a slot.
static void decode_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    take_job(worker, job, true);
    pthread_mutex_unlock(&s->lock);
    enum conv_status status = CONV_OK;
    bool on_cpu = false;
    if (job->slot->group.decoded)
        on_cpu = !conv_stages_pass_on(job);
    else
        status = conv_stages_decode(s->config, worker->codec, job);
    pthread_mutex_lock(&s->lock);
    after_decode(s, job, status, on_cpu);
}

// Called and returns with the lock.
static void encode_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    take_job(worker, job, false);
    pthread_mutex_unlock(&s->lock);
    enum conv_status status = conv_stages_encode(s->config, worker->codec, worker->index, job);
    pthread_mutex_lock(&s->lock);
    conv_groups_leave(s, job);
    pthread_mutex_unlock(&s->lock);
    conv_jobs_finish(s, job, status);
}

// Plans a new image and has its file fetched; without the lock the file is being opened. Called
// and returns with the lock.
static void announce_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    s->live++;
    s->begun++;
    pthread_mutex_unlock(&s->lock);
    job->row = worker->row;
    enum conv_status status = conv_plan_job(s->config, job);
    if (status || job->outcome != CONV_OUTCOME_DONE) {
        conv_jobs_finish(s, job, status);
        return;
    }
    conv_fetch_announce(s->config, job);
    status = conv_plan_check_output(s->config, job);
    if (status) {
        conv_jobs_finish(s, job, status);
        return;
    }
    pthread_mutex_lock(&s->lock);
    conv_jobs_push(&s->announced, job);
}

// Called and returns with the lock; true if the image goes on.
static bool read_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    int begun = s->live - s->announced.count, to_encode = s->to_encode.count;
    bool has_file = conv_jobs_take_file(s, job);
    pthread_mutex_unlock(&s->lock);
    conv_trace_queues(worker->row, begun, to_encode);
    job->row = worker->row;
    enum conv_status status = CONV_OK;
    if (!has_file)
        status = conv_err_set(&job->err, CONV_ERR_MEMORY, "no memory for the file");
    else if (!s->config->spare_ops && conv_devices_are_lost(s, &job->err))
        status = job->err.status;
    if (!status)
        status = conv_stages_read(s->config, job);
    if (status == CONV_ERR_CANCELLED) { // not begun
        pthread_mutex_lock(&s->lock);
        conv_jobs_drop(s, job);
        return false;
    }
    if (status) {
        conv_jobs_finish(s, job, status);
        return false;
    }
    pthread_mutex_lock(&s->lock);
    return true;
}

// Async backend: the image gets a place and is decoded, or is parked. With the lock.
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

// Without the lock: the file is decoded, its buffer may serve others.
static void give_file_back(struct conv_scheduler *s, struct conv_job *job)
{
    pthread_mutex_lock(&s->lock);
    conv_jobs_drop_file(s, job);
    pthread_mutex_unlock(&s->lock);
}

// A slot for an image, and *reserved bytes of the run's memory where that is limited. Called and
// returns with the lock.
static enum conv_status take_slot(struct conv_scheduler *s, struct conv_job *job,
                                  struct conv_slot **slot, size_t *reserved)
{
    const struct conv_pipeline_config *config = s->config;
    size_t bytes = conv_group_need(&job->header.shape, s->filter_alpha, s->table_bytes);
    struct conv_pool_need need = {{bytes, bytes}, conv_jobs_carries(job), false};
    struct conv_need memory;
    conv_need_estimate(&memory, config, job, bytes);
    *slot = NULL;
    *reserved = 0;
    bool too_much = conv_pool_is_too_much(&s->pool, &need); // to be said by the pool
    size_t most = config->memory - config->memory / 16;     // the rest is what other workers keep
    if (config->refuse_beyond && memory.peak > most)
        return conv_err_hint(
            &job->err, CONV_HINT_MEM_LIMIT_TRY, 0,
            conv_err_set(&job->err, CONV_ERR_LIMIT,
                         "the image may need %zu MiB of memory, but only %zu MiB are left",
                         (memory.peak >> 20) + 1, most >> 20));
    for (;;) {
        bool reserve = s->files.total != SIZE_MAX && !too_much;
        bool granted = !reserve || conv_budget_reserve(&s->files, memory.work);
        enum conv_status status = CONV_OK;
        if (granted)
            status = conv_pool_acquire(&s->pool, &need, slot, &job->err);
        if (*slot)
            *reserved = reserve ? memory.work : 0;
        else if (granted && reserve)
            conv_budget_unreserve(&s->files, memory.work);
        if (status || *slot)
            return status;
        conv_scheduler_wait(s, &s->room, CONV_SCHEDULER_LOOK_NS);
        if (conv_cancel_is_asked(config->stop))
            return conv_err_set(&job->err, CONV_ERR_CANCELLED, CONV_CANCEL_TEXT);
    }
}

// Called and returns without the lock.
static void release_slot(struct conv_scheduler *s, struct conv_slot *slot, size_t reserved)
{
    struct conv_pool_buffer shed[2];
    pthread_mutex_lock(&s->lock);
    int count = conv_pool_shed(&s->pool, slot, shed);
    if (count > 0) {
        pthread_mutex_unlock(&s->lock);
        for (int i = 0; i < count; i++)
            conv_pool_give_up(&s->pool, &shed[i]);
        pthread_mutex_lock(&s->lock);
    }
    conv_pool_release(&s->pool, slot);
    if (reserved > 0)
        conv_budget_unreserve(&s->files, reserved);
    pthread_cond_broadcast(&s->room); // what is free now may do for several
    if (reserved > 0 && s->announced.first)
        pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

// Other backends: one worker, one image, all the way. With the lock.
static void run_job(struct conv_worker *worker, struct conv_job *job)
{
    struct conv_scheduler *s = worker->scheduler;
    const struct conv_image *shape = &job->header.shape;
    struct conv_slot *slot;
    size_t reserved;
    enum conv_status status = take_slot(s, job, &slot, &reserved);
    take_job(worker, job, false);
    worker->reserved = reserved;
    pthread_mutex_unlock(&s->lock);
    if (!status) {
        job->slot = slot;
        conv_group_place(&slot->group, shape, s->filter_alpha, s->table_bytes, &job->in,
                         job->out_offset);
        status = conv_stages_decode(s->config, worker->codec, job);
        give_file_back(s, job);
    }
    if (!status)
        status = conv_stages_filter(s->config, worker->stream, job);
    if (!status)
        status = conv_stages_encode(s->config, worker->codec, worker->index, job);
    if (slot)
        release_slot(s, slot, reserved);
    conv_jobs_finish(s, job, status);
}

// Waits for something to do. A group that waits for company is sent off when none is coming.
static void wait_for_work(struct conv_scheduler *s)
{
    struct conv_slot *open = conv_groups_find_idle(s);
    bool last = s->walked || conv_scheduler_is_stopping(s) || s->live >= s->most;
    if (!open || (s->minding && !last)) {
        conv_scheduler_wait(s, &s->changed, CONV_SCHEDULER_LOOK_NS);
        return;
    }
    if (last) {
        conv_groups_seal(s, open);
        return;
    }
    s->minding = true;
    bool woken = conv_scheduler_wait(s, &s->changed, IDLE_NS);
    s->minding = false;
    // Images for other groups wake who minds this one, however long it has waited.
    if (conv_groups_is_open(s, open) && open->decoding == 0 &&
        conv_clock_ns() - open->touched_at >= IDLE_NS)
        conv_groups_seal(s, open);
    if (woken)
        pthread_cond_signal(&s->changed); // for another to mind what is open meanwhile
}

// Files of which a worker reads or writes one while others wake up.
#define LARGE_BYTES 32768

// Who takes a job wakes another worker for the next: where jobs are over before a thread has woken
// up, few are woken. Where they are longer, two: a group sets many free at once, and the last of a
// row who wake each other would come late.
static void wake_for(struct conv_scheduler *s, const struct conv_job_list *list)
{
    if (!list->first)
        return;
    pthread_cond_signal(&s->changed);
    if (list->first->next && list->first->bytes_in >= LARGE_BYTES)
        pthread_cond_signal(&s->changed);
}

static bool may_begin(const struct conv_scheduler *s)
{
    return s->found.first && s->live < s->most;
}

// So many files are on their way that the first is to be read.
static bool is_ripe(const struct conv_scheduler *s)
{
    return s->announced.first && (s->announced.count > AHEAD || !may_begin(s));
}

// Takes the first of them, unless its buffer has to wait for others to be given back.
static struct conv_job *take_ripe(struct conv_scheduler *s)
{
    struct conv_job *job = s->announced.first;
    return conv_budget_try(&s->files, &job->share, job->want) ? conv_jobs_pop(&s->announced) : NULL;
}

// Names that may be long in coming are waited for when all that came are read, and where one worker
// is all there is, done.
static bool may_walk(const struct conv_scheduler *s)
{
    if (s->walked || s->walking)
        return false;
    bool others_wait = s->announced.first || (s->config->jobs == 1 && s->live > 0);
    return !others_wait || !conv_source_may_wait(s->source);
}

// After a stop nothing new is begun.
static void drop_waiting(struct conv_scheduler *s)
{
    while (s->found.first)
        conv_jobs_put_away(s, conv_jobs_pop(&s->found));
    while (s->announced.first)
        conv_jobs_drop(s, conv_jobs_pop(&s->announced));
}

// One task, or one wait. False when there is nothing left to do. With the lock.
static bool do_task(struct conv_worker *worker)
{
    struct conv_scheduler *s = worker->scheduler;
    bool stopping = conv_scheduler_is_stopping(s);
    struct conv_job *job = conv_jobs_pop(&s->to_encode);
    if (job) {
        wake_for(s, &s->to_encode);
        encode_job(worker, job);
    } else if (s->parked.first && stopping) {
        conv_jobs_drop(s, conv_jobs_pop(&s->parked)); // read, but not begun
    } else if (s->parked.first) {
        // Taken out first: while this worker decodes, others must not see it.
        job = conv_jobs_pop(&s->parked);
        enum conv_status status = CONV_OK;
        if (conv_groups_place(s, job, &status)) {
            pthread_cond_signal(&s->changed); // there may be room for another, or for new ones
            decode_job(worker, job);
        } else if (status) {
            pthread_cond_signal(&s->changed);
            pthread_mutex_unlock(&s->lock);
            conv_jobs_finish(s, job, status);
        } else {
            uint64_t start = conv_clock_ns(), wait = conv_decode_policy_wait_limit_ns(&s->balance);
            conv_jobs_put_back(&s->parked, job);
            conv_scheduler_wait(s, &s->changed,
                                wait < CONV_SCHEDULER_LOOK_NS ? wait : CONV_SCHEDULER_LOOK_NS);
            conv_decode_policy_note_idle(&s->balance, conv_clock_ns() - start);
        }
    } else if (s->found.count < s->config->jobs && may_walk(s) && !stopping) {
        walk_on(s);
    } else if (stopping && (s->found.first || s->announced.first)) {
        drop_waiting(s);
    } else if (is_ripe(s) && (job = take_ripe(s))) {
        wake_for(s, &s->announced);
        if (read_job(worker, job)) {
            if (s->config->ops->async)
                start_job(worker, job);
            else
                run_job(worker, job);
        }
    } else if (may_begin(s) && !is_ripe(s)) {
        job = conv_jobs_pop(&s->found);
        wake_for(s, &s->found);
        announce_job(worker, job);
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
    s->working--;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
