// SPDX-License-Identifier: MIT
// A backend that is not async: one worker decodes, filters, encodes and writes an image.
#include <assert.h>

#include "base/parallel.h"
#include "run/budget.h"
#include "run/scheduler.h"
#include "run/stages.h"
#include "run/worker.h"

#define SMALL_BYTES ((size_t)64 << 10)

// The part of the run's memory that an image holds.
struct hold {
    struct conv_slot *slot;       // NULL: in bands
    struct conv_bands_plan bands; // {0}: as a whole
    size_t reserved;              // bytes in the budget; 0 where the run's memory is not limited
};

// One attempt; *is_held: there was memory. `work` bytes are reserved unless 0.
static enum conv_status try_hold(struct conv_scheduler *s, struct conv_job *job,
                                 const struct conv_pool_need *need, size_t work, struct hold *hold,
                                 bool *is_held) CONV_NEEDS(s->lock)
{
    *is_held = false;
    hold->slot = NULL;
    hold->reserved = 0;
    if (work > 0 && !conv_budget_reserve(&s->budget, work))
        return CONV_OK;
    enum conv_status status = CONV_OK;
    bool held = false;
    if (hold->bands.rows == 0) {
        status = conv_pool_acquire(&s->pool, need, &hold->slot, &job->err);
        held = hold->slot;
    } else if (!s->in_bands && conv_pool_reserve(&s->pool, hold->bands.bytes)) {
        held = s->in_bands = true;
    }
    if (held)
        hold->reserved = work;
    else if (work > 0)
        conv_budget_unreserve(&s->budget, work);
    *is_held = held;
    return status;
}

// Fails if the image does not fit as a whole.
static enum conv_status check_whole(struct conv_scheduler *s, struct conv_job *job,
                                    const struct conv_pool_need *need, size_t peak)
    CONV_NEEDS(s->lock)
{
    const struct conv_division *memory = &s->config->memory;
    struct conv_slot *slot;
    size_t most = memory->run - memory->run / 16; // other workers keep the rest
    if (memory->refuses_beyond && peak > most)
        return conv_err_advise(&job->err, CONV_ERR_LIMIT, CONV_HINT_MEM_LIMIT_TRY,
                               "the image may need %zu MiB of memory, but only %zu MiB are left",
                               (peak >> 20) + 1, most >> 20);
    return conv_pool_is_too_much(&s->pool, need)
               ? conv_pool_acquire(&s->pool, need, &slot, &job->err)
               : CONV_OK;
}

// Plans bands for an image that failed the check. Fails as the check if that is impossible.
static enum conv_status plan_bands(struct conv_scheduler *s, const struct conv_worker *worker,
                                   struct conv_job *job, struct hold *hold) CONV_NEEDS(s->lock)
{
    const struct conv_division *memory = &s->config->memory;
    size_t most = memory->staging < memory->total ? memory->staging : memory->total;
    conv_bands_plan(&hold->bands, s, worker, job, most / 4 * 3);
    if (!hold->bands.refusal)
        return CONV_OK;
    conv_text_add(job->err.text, sizeof job->err.text, "", "; not in bands of rows: %s",
                  hold->bands.refusal);
    return CONV_ERR_LIMIT;
}

// Waits for a slot, and for its part of the run's memory where that is limited.
static enum conv_status take_hold(struct conv_scheduler *s, struct conv_worker *worker,
                                  struct conv_job *job, struct hold *hold) CONV_NEEDS(s->lock)
{
    const struct conv_pipeline_config *config = s->config;
    size_t bytes = conv_group_need(&job->header.shape, s->filter_alpha, s->table_bytes);
    struct conv_pool_need need = {{bytes, bytes}, conv_jobs_metadata_bytes(job), false};
    struct conv_need memory = {0};
    if (config->memory.run > 0)
        conv_budget_estimate(&memory, config, job, bytes);
    *hold = (struct hold){0};
    if (check_whole(s, job, &need, memory.peak) && plan_bands(s, worker, job, hold))
        return CONV_ERR_LIMIT;
    size_t work = hold->bands.rows > 0 ? hold->bands.bytes : memory.work;
    bool held, reserves = s->budget.total != SIZE_MAX;
    for (;;) {
        enum conv_status status = try_hold(s, job, &need, reserves ? work : 0, hold, &held);
        if (status || held)
            return status;
        if (!conv_worker_help(s, worker, job))
            conv_scheduler_wait(s, &s->wake.memory, CONV_SCHEDULER_LOOK_NS);
        if (conv_cancel_is_asked(config->stop))
            return conv_err_cancelled(&job->err);
    }
}

static void release_hold(struct conv_scheduler *s, const struct hold *hold) CONV_NEEDS(s->lock)
{
    struct conv_pool_buffer shed[2];
    int count = hold->slot ? conv_pool_shed(&s->pool, hold->slot, shed) : 0;
    if (count > 0) {
        conv_lock_release(&s->lock); // giving memory back takes long
        for (int i = 0; i < count; i++)
            conv_pool_free_buffer(&s->pool, &shed[i]);
        conv_lock_acquire(&s->lock);
    }
    if (hold->slot) {
        conv_pool_release(&s->pool, hold->slot);
    } else {
        conv_pool_unreserve(&s->pool, hold->bands.bytes);
        s->in_bands = false;
    }
    if (hold->reserved > 0)
        conv_budget_unreserve(&s->budget, hold->reserved);
    pthread_cond_broadcast(&s->wake.memory); // what is free now may be enough for several
    if (hold->reserved > 0 && s->jobs.announced.first)
        pthread_cond_signal(&s->wake.workers);
}

// The file is decoded: its buffer may serve other jobs. Where memory is not limited, a small one
// stays with the job for the short time until that ends, which takes the lock anyway.
static void give_file_back(struct conv_scheduler *s, struct conv_job *job) CONV_TAKES(s->lock)
{
    if (s->budget.total == SIZE_MAX && job->share.bytes <= SMALL_BYTES)
        return;
    conv_lock_acquire(&s->lock);
    conv_jobs_drop_file(s, job);
    conv_lock_release(&s->lock);
}

static enum conv_status run_stages(struct conv_scheduler *s, struct conv_worker *worker,
                                   struct conv_job *job) CONV_TAKES(s->lock)
{
    struct conv_group *group = &job->slot->group;
    bool fits =
        conv_group_place(group, &job->header.shape, s->filter_alpha, s->table_bytes, &job->placed);
    assert(fits);
    (void)fits;
    group->parallel = &worker->parallel;
    enum conv_status status = conv_stages_decode(s->config, worker->codecs, job);
    give_file_back(s, job);
    if (!status)
        status = conv_stages_filter(s->config, worker->stream, job);
    if (!status)
        status = conv_stages_encode(s->config, worker->codecs, worker->index, job);
    return status;
}

void conv_tasks_run(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
{
    struct hold hold;
    enum conv_status status = take_hold(s, worker, job, &hold);
    if (!status) {
        job->slot = hold.slot;
        conv_worker_take(worker, job, false);
        worker->reserved = hold.reserved;
        conv_lock_release(&s->lock);
        status =
            hold.slot ? run_stages(s, worker, job) : conv_bands_run(&hold.bands, s, worker, job);
        conv_lock_acquire(&s->lock);
        release_hold(s, &hold);
    }
    conv_jobs_finish(s, job, status);
}
