// SPDX-License-Identifier: MIT
// A request for help lies on the stack of the worker that makes it. After a signal that worker may
// be left behind while it computes, and the scheduler may be gone (job.h): so it touches the
// scheduler only between two computations, and waits for its helpers with a lock of the request.
#include "run/worker.h"

#include "run/job.h"

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

bool conv_helpers_help(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
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

// --- the worker that is helped -------------------------------------------------------------------

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
    if (conv_lock_init(&help.lock) || conv_lock_init_condition(&help.done)) {
        work(context); // never on Linux: neither call takes memory
        return;
    }
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

void conv_helpers_init(struct conv_worker *worker)
{
    const struct conv_pipeline_config *config = worker->scheduler->config;
    worker->parallel = (struct conv_parallel){
        .most = config->jobs, .run = run, .owner = worker, .memory = config->memory.helpers};
}
