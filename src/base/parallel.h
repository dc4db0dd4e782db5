// SPDX-License-Identifier: MIT
// Work on one image that several threads may share: an interface, so that codecs and backends need
// not know where the threads come from. pipeline/helpers.h implements it with idle workers.
#ifndef CONV_BASE_PARALLEL_H
#define CONV_BASE_PARALLEL_H

#include <stddef.h>

struct conv_parallel {
    int most; // threads that may take part at once, the calling one included; at least 1
    // Calls work(context) on the calling thread and, meanwhile, on up to most - 1 others, each once
    // or several times; returns when all calls have returned. `work` takes items until none is left
    // and must return then: the first return means that no further thread is needed. It may happen
    // to be called on the calling thread alone, so no call may wait for another one to begin.
    void (*run)(struct conv_parallel *parallel, void (*work)(void *context), void *context);
    void *owner; // of the implementation
};

// NULL: on the calling thread alone.
static inline void conv_parallel_run(struct conv_parallel *parallel, void (*work)(void *context),
                                     void *context)
{
    if (parallel && parallel->most > 1)
        parallel->run(parallel, work, context);
    else
        work(context);
}

static inline int conv_parallel_most(const struct conv_parallel *parallel)
{
    return parallel ? parallel->most : 1;
}

#endif
