// SPDX-License-Identifier: MIT
// What a device has at its disposal: memory and threads.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "conv.h"

struct conv_device_context;

// --- pools of host and device memory: memory.c ---------------------------------------------------
// Blocks that are freed are kept and handed out again. Pools belong to one thread at a time, except
// that any thread may take and give host memory.

struct conv_memory_pools;

// Pools of the device that keep at most `keep` freed bytes each; 0: no limit. CONV_ERR_MEMORY.
enum conv_status conv_memory_open(struct conv_memory_pools **pools,
                                  struct conv_device_context *device, size_t keep,
                                  struct conv_err *err);
// Returns the freed blocks to the device, which is still open. NULL is fine.
void conv_memory_close(struct conv_memory_pools *pools);

// At least `bytes` (0 is fine) at a multiple of 256. CONV_ERR_MEMORY, also after all freed blocks
// were returned to the system; CONV_ERR_DEVICE.
enum conv_status conv_memory_take(struct conv_memory_pools *pools, conv_memory memory, size_t bytes,
                                  void **data, struct conv_err *err);
void conv_memory_give(struct conv_memory_pools *pools, conv_memory memory,
                      void *data); // NULL is fine

// --- staging memory of groups --------------------------------------------------------------------

// Plain memory, so that it is available before any device is open; it is pinned before its first
// upload (host_pin of engine.h). Any thread may call any of these.

// Whole pages, which take no memory until they are first written. CONV_ERR_MEMORY.
enum conv_status conv_staging_alloc(void **memory, size_t size, struct conv_err *err);
// Makes all pages resident, as pinning does, but on several threads at once: a driver pins one
// block at a time. The content stays.
void conv_staging_touch(void *memory, size_t size);
void conv_staging_free(void *memory, size_t size); // NULL is fine

// --- threads that share the work of one call with the thread that makes it: workers.c ------------

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
// time than a thread takes to wake up, and without workers. If the system refuses to start threads,
// fewer do the work.
void conv_workers_run(struct conv_workers *workers, int threads, conv_workers_fn work,
                      void *context, int count);
