// SPDX-License-Identifier: MIT
#include "run/worker.h"

#include "base/clock.h"
#include "run/job.h"
#include "run/scheduler.h"

// An open group is sealed when no image has come for this long.
#define IDLE_NS 5000000

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
        conv_budget_release(worker->job->budget, &worker->job->share);
    if (worker->reserved > 0)
        conv_budget_unreserve(&s->budget, worker->reserved);
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

// --- help with large images ----------------------------------------------------------------------
// A request for help lies on the stack of the worker that makes it. After a signal the run may
// end while that worker still computes, and the scheduler may be gone (job.h): so it touches the
// scheduler only between two computations, and waits for its helpers with a lock of the request.

struct conv_help {
    struct conv_help *next; // in the scheduler's list, guarded by its lock
    void (*work)(void *context);
    void *context;
    struct conv_lock lock; // guards all below; acquired after the scheduler's lock
    pthread_cond_t done;   // running == 0
    int running;           // helpers inside work()
    int room;              // for more helpers
    bool over;             // a call has returned: no item is left
};

static bool join(struct conv_help *help) CONV_TAKES(help->lock)
{
    conv_lock_acquire(&help->lock);
    bool joins = !help->over && help->room > 0;
    help->running += joins;
    help->room -= joins;
    conv_lock_release(&help->lock);
    return joins;
}

// After that the request may be gone.
static void leave(struct conv_help *help) CONV_TAKES(help->lock)
{
    conv_lock_acquire(&help->lock);
    help->over = true;
    help->room++;
    if (--help->running == 0)
        pthread_cond_signal(&help->done);
    conv_lock_release(&help->lock);
}

bool conv_worker_help(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
{
    struct conv_help *help = s->helps;
    while (help && !join(help))
        help = help->next;
    if (!help)
        return false;
    worker->job = job;
    worker->decodes = false;
    worker->reserved = 0;
    conv_lock_release(&s->lock);
    conv_phase_begin(&worker->phase);
    help->work(help->context);
    leave(help);
    conv_phase_end(&worker->phase);
    conv_lock_acquire(&s->lock);
    return true;
}

static void post(struct conv_scheduler *s, struct conv_help *help) CONV_TAKES(s->lock)
{
    conv_lock_acquire(&s->lock);
    help->next = s->helps;
    s->helps = help;
    pthread_cond_broadcast(&s->wake.workers);
    pthread_cond_broadcast(&s->wake.memory);
    conv_lock_release(&s->lock);
}

static void withdraw(struct conv_scheduler *s, struct conv_help *help) CONV_TAKES(s->lock)
{
    conv_lock_acquire(&s->lock);
    struct conv_help **at = &s->helps;
    while (*at != help)
        at = &(*at)->next;
    *at = help->next;
    conv_lock_release(&s->lock);
}

static void await(struct conv_help *help) CONV_TAKES(help->lock)
{
    conv_lock_acquire(&help->lock);
    while (help->running > 0)
        conv_lock_wait(&help->lock, &help->done, CONV_SCHEDULER_LOOK_NS);
    conv_lock_release(&help->lock);
}

static void run(struct conv_parallel *parallel, int threads, void (*work)(void *context),
                void *context)
{
    struct conv_worker *worker = parallel->owner;
    struct conv_scheduler *s = worker->scheduler;
    struct conv_help help = {.work = work, .context = context, .room = threads - 1};
    conv_lock_init(&help.lock);
    conv_lock_init_condition(&help.done);
    conv_phase_end(&worker->phase);
    post(s, &help);
    conv_phase_begin(&worker->phase);
    work(context);
    conv_phase_end(&worker->phase);
    withdraw(s, &help);
    conv_phase_begin(&worker->phase);
    await(&help);
    conv_lock_destroy(&help.lock);
    pthread_cond_destroy(&help.done);
}

void conv_worker_init_help(struct conv_worker *worker)
{
    const struct conv_pipeline_config *config = worker->scheduler->config;
    worker->parallel = (struct conv_parallel){
        .most = config->jobs, .run = run, .owner = worker, .memory = config->memory.helpers};
}

// --- the thread ----------------------------------------------------------------------------------

void *conv_worker_main(void *argument)
{
    struct conv_worker *worker = argument;
    struct conv_scheduler *s = worker->scheduler;
    conv_lock_acquire(&s->lock);
    for (;;) {
        bool stopping = conv_scheduler_is_stopping(s); // one answer for the whole round
        if (conv_tasks_do(s, worker, stopping) || conv_worker_help(s, worker, NULL))
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
