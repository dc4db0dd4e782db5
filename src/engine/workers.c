// SPDX-License-Identifier: MIT
// The caller publishes a job, wakes as many threads as may help, works on it itself, and then waits
// until the last thread has left it. Indices are handed out by an atomic counter.
#include "engine/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/lock.h"

struct job {
    conv_workers_fn work;
    void *context;
    int count;
    atomic_int next; // index to be handed out
};

struct conv_workers {
    int threads; // that may take part, the caller included
    int started; // of them, by this module
    pthread_t *ids;
    struct conv_lock lock;
    pthread_cond_t job_posted, job_left;
    // Protected by the lock.
    struct job *job; // NULL: none
    int open_places; // threads that may still join the job
    int inside;      // threads that have joined it
    int next_worker; // the number that the next thread gets; the caller is 0
    bool ending;
};

static void work_on(struct job *job, int worker)
{
    int index;
    while ((index = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->count)
        job->work(job->context, worker, index);
}

static void *run_thread(void *argument)
{
    struct conv_workers *workers = argument;
    conv_lock_acquire(&workers->lock);
    for (;;) {
        while (!workers->ending && workers->open_places == 0)
            (void)conv_lock_wait(&workers->lock, &workers->job_posted, UINT64_MAX);
        if (workers->ending)
            break;
        struct job *job = workers->job;
        int worker = workers->next_worker++;
        workers->open_places--;
        workers->inside++;
        conv_lock_release(&workers->lock);
        work_on(job, worker);
        conv_lock_acquire(&workers->lock);
        if (--workers->inside == 0)
            pthread_cond_signal(&workers->job_left);
    }
    conv_lock_release(&workers->lock);
    return NULL;
}

enum conv_status conv_workers_open(struct conv_workers **out, int threads, struct conv_err *err)
{
    struct conv_workers *workers = calloc(1, sizeof *workers);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    if (!workers || !ids || conv_lock_init(&workers->lock)) {
        free(ids);
        free(workers);
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for threads");
    }
    (void)conv_lock_init_condition(&workers->job_posted); // never fails on Linux
    (void)conv_lock_init_condition(&workers->job_left);
    workers->threads = threads;
    workers->ids = ids;
    *out = workers;
    return CONV_OK;
}

void conv_workers_close(struct conv_workers *workers)
{
    if (!workers)
        return;
    conv_lock_acquire(&workers->lock);
    workers->ending = true;
    pthread_cond_broadcast(&workers->job_posted);
    conv_lock_release(&workers->lock);
    for (int i = 0; i < workers->started; i++)
        pthread_join(workers->ids[i], NULL);
    pthread_cond_destroy(&workers->job_left);
    pthread_cond_destroy(&workers->job_posted);
    conv_lock_destroy(&workers->lock);
    free(workers->ids);
    free(workers);
}

static void start_threads(struct conv_workers *workers, int wanted)
{
    while (workers->started < wanted &&
           conv_thread_start(&workers->ids[workers->started], run_thread, workers) == 0)
        workers->started++;
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
    int most = threads < workers->threads ? threads : workers->threads;
    int helpers = (most < count ? most : count) - 1;
    if (helpers > 0)
        start_threads(workers, helpers);
    if (helpers > workers->started)
        helpers = workers->started;
    if (helpers < 1) {
        work_on(&job, 0);
        return;
    }
    conv_lock_acquire(&workers->lock);
    workers->job = &job;
    workers->open_places = helpers;
    workers->next_worker = 1;
    if (helpers == 1)
        pthread_cond_signal(&workers->job_posted);
    else
        pthread_cond_broadcast(&workers->job_posted);
    conv_lock_release(&workers->lock);
    work_on(&job, 0);
    conv_lock_acquire(&workers->lock);
    workers->open_places = 0; // threads that have not woken up yet find nothing
    while (workers->inside > 0)
        (void)conv_lock_wait(&workers->lock, &workers->job_left, UINT64_MAX);
    workers->job = NULL;
    conv_lock_release(&workers->lock);
}
