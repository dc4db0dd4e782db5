// SPDX-License-Identifier: MIT
// The caller posts a job, works on it itself, and waits until all threads have left it. Those that
// wake up wake others, so that many come soon. Indices are handed out by an atomic counter.
#include "engine/memory.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/lock.h"

// A wake-up takes the one who wakes 1 to 2 us, and the thread 5 to 50.
#define WOKEN_BY_EACH 4

struct job {
    conv_workers_fn work;
    void *context;
    int count;
    atomic_int next; // index to be handed out
};

struct helper {
    struct conv_workers *workers;
    pthread_t id;
    sem_t woken;
};

#define JOINED 0x10000u

struct conv_workers {
    int threads;     // that may take part, the caller included
    int started;     // of them, by this module
    struct job *job; // written while no helper may join
    // The last helper that may join it; 0 when nothing is left to hand out: helpers that wake up
    // later find that. Each one that has joined adds JOINED.
    atomic_uint state;
    atomic_bool ending;
    sem_t left; // posted by each helper that leaves the job
    struct helper helpers[];
};

// Jobs often follow each other, as the layers of a network do. A thread that spins for about as
// long as a wake-up takes, before it sleeps, starts the next one at once.
#define PAUSES 1000

static void wait_for(sem_t *semaphore)
{
    for (int n = 0; n < PAUSES; n++) {
        if (sem_trywait(semaphore) == 0)
            return;
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
    while (sem_wait(semaphore)) // a signal came
        continue;
}

static void work_on(struct job *job, int worker)
{
    int index;
    while ((index = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->count)
        job->work(job->context, worker, index);
}

// Wakes those helpers up to `last` that `number` has to wake.
static void wake_helpers(struct conv_workers *workers, unsigned number, unsigned last)
{
    unsigned first = number * WOKEN_BY_EACH;
    for (unsigned i = first; i < first + WOKEN_BY_EACH && i < last; i++)
        sem_post(&workers->helpers[i].woken);
}

static void *run_thread(void *argument)
{
    struct helper *helper = argument;
    struct conv_workers *workers = helper->workers;
    unsigned number = (unsigned)(helper - workers->helpers) + 1; // the caller is 0
    for (;;) {
        wait_for(&helper->woken);
        if (atomic_load(&workers->ending))
            return NULL;
        unsigned state = atomic_load(&workers->state);
        while (number <= state % JOINED &&
               !atomic_compare_exchange_weak(&workers->state, &state, state + JOINED))
            continue;
        if (number > state % JOINED)
            continue;
        wake_helpers(workers, number, state % JOINED);
        work_on(workers->job, (int)number);
        sem_post(&workers->left);
    }
}

enum conv_status conv_workers_open(struct conv_workers **out, int threads, struct conv_err *err)
{
    struct conv_workers *workers =
        calloc(1, sizeof *workers + (size_t)threads * sizeof workers->helpers[0]);
    if (!workers)
        return conv_err_memory(err, "no memory for threads");
    (void)sem_init(&workers->left, 0, 0); // never fails on Linux
    workers->threads = threads;
    *out = workers;
    return CONV_OK;
}

void conv_workers_close(struct conv_workers *workers)
{
    if (!workers)
        return;
    atomic_store(&workers->ending, true);
    for (int i = 0; i < workers->started; i++)
        sem_post(&workers->helpers[i].woken);
    for (int i = 0; i < workers->started; i++) {
        pthread_join(workers->helpers[i].id, NULL);
        sem_destroy(&workers->helpers[i].woken);
    }
    sem_destroy(&workers->left);
    free(workers);
}

// How many of them there are then.
static int start_threads(struct conv_workers *workers, int wanted)
{
    for (; workers->started < wanted; workers->started++) {
        struct helper *helper = &workers->helpers[workers->started];
        helper->workers = workers;
        (void)sem_init(&helper->woken, 0, 0);
        if (conv_thread_start(&helper->id, run_thread, helper))
            return workers->started;
    }
    return wanted;
}

// A thread takes about 20 us to wake up, in which another decodes, encodes or filters some thousand
// samples.
#define SAMPLES_PER_THREAD 16384

int conv_workers_for(int threads, uint64_t samples)
{
    uint64_t worth = samples / SAMPLES_PER_THREAD + 1;
    return worth < (uint64_t)threads ? (int)worth : threads;
}

void conv_workers_run(struct conv_workers *workers, int threads, conv_workers_fn work,
                      void *context, int count)
{
    struct job job = {.work = work, .context = context, .count = count};
    int most = threads > 1 && workers->threads < threads ? workers->threads : threads;
    int helpers = (most < count ? most : count) - 1;
    if (helpers > 0)
        helpers = start_threads(workers, helpers);
    if (helpers < 1) {
        work_on(&job, 0);
        return;
    }
    workers->job = &job;
    atomic_store(&workers->state, (unsigned)helpers);
    wake_helpers(workers, 0, (unsigned)helpers);
    work_on(&job, 0);
    for (unsigned inside = atomic_exchange(&workers->state, 0) / JOINED; inside > 0; inside--)
        wait_for(&workers->left);
}
