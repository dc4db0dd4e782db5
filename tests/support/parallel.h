// SPDX-License-Identifier: MIT
// A conv_parallel of threads that are started for each call.
#pragma once

#include <pthread.h>

#include "base/parallel.h"

#define TEST_PARALLEL_MOST 4

struct parallel_call {
    void (*work)(void *context);
    void *context;
};

static void *parallel_thread(void *argument)
{
    const struct parallel_call *call = argument;
    call->work(call->context);
    return NULL;
}

static void parallel_run(struct conv_parallel *parallel, int count, void (*work)(void *context),
                         void *context)
{
    struct parallel_call call = {work, context};
    pthread_t threads[TEST_PARALLEL_MOST];
    int started = 0;
    (void)parallel;
    while (started < count - 1 &&
           pthread_create(&threads[started], NULL, parallel_thread, &call) == 0)
        started++;
    work(context);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}
