// SPDX-License-Identifier: MIT
// Threads that share the work of one call with the thread that makes the call.
#ifndef CONV_ENGINE_WORKERS_H
#define CONV_ENGINE_WORKERS_H

#include <stdint.h>

#include "base/err.h"

struct conv_workers;

// Called once for each index from 0 to count - 1, in any order, by several threads at once.
// `worker` is less than the number of threads; no two calls with one worker overlap.
typedef void (*conv_workers_fn)(void *context, int worker, int index);

// At most `threads` (at least 1) take part in a call; all but the caller's own are started when
// they are first needed. CONV_ERR_MEMORY.
enum conv_status conv_workers_open(struct conv_workers **workers, int threads,
                                   struct conv_err *err);
// Ends the threads. NULL is fine.
void conv_workers_close(struct conv_workers *workers);

// How many of the `threads` are worth using for work on `samples` samples.
int conv_workers_for(int threads, uint64_t samples);

// Does all of the work and returns. At most `threads` take part; pass 1 for work that takes less
// time than a thread takes to wake up. If the system refuses to start threads, fewer do the work.
void conv_workers_run(struct conv_workers *workers, int threads, conv_workers_fn work,
                      void *context, int count);

#endif
