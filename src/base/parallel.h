// SPDX-License-Identifier: MIT
// Work on one image that several threads may share: an interface, so that codecs and backends need
// not know where the threads come from. run/worker.h implements it with idle workers.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct conv_parallel {
    int most; // threads that may take part at once, the calling one included; at least 1
    // Calls work(context) on the calling thread and, meanwhile, on up to threads - 1 others, each
    // once or several times; returns when all calls have returned. `work` takes items until none is
    // left and must return then: the first return means that no further thread is needed. It may
    // happen to be called on the calling thread alone, so no call may wait for another one to
    // begin.
    void (*run)(struct conv_parallel *parallel, int threads, void (*work)(void *context),
                void *context);
    void *owner;   // of the implementation
    size_t memory; // bytes that the other threads may take in total; 0: any number
};

// Threads that may take part, each but the calling one with `bytes` of memory. NULL: one.
static inline int conv_parallel_most(const struct conv_parallel *parallel, size_t bytes)
{
    if (!parallel)
        return 1;
    size_t others = (size_t)parallel->most - 1;
    if (parallel->memory > 0 && bytes > 0 && parallel->memory / bytes < others)
        others = parallel->memory / bytes;
    return (int)others + 1;
}

// On up to conv_parallel_most threads.
static inline void conv_parallel_run(struct conv_parallel *parallel, size_t bytes,
                                     void (*work)(void *context), void *context)
{
    int threads = conv_parallel_most(parallel, bytes);
    if (threads > 1)
        parallel->run(parallel, threads, work, context);
    else
        work(context);
}

// --- cancelling ----------------------------------------------------------------------------------

// How work on one image that takes long is cancelled when a signal ends the run: it reads a flag
// every few milliseconds.

// True once the flag is the number of a signal. A negative number means that no new image is begun,
// and cancels nothing. False for NULL. Any thread.
static inline bool conv_cancel_is_asked(const atomic_int *stop)
{
    return stop && atomic_load_explicit(stop, memory_order_relaxed) > 0;
}
