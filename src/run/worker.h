// SPDX-License-Identifier: MIT
// A worker: a thread that reads, decodes, encodes and writes images, and filters them where the
// backend is not async.
#ifndef CONV_RUN_WORKER_H
#define CONV_RUN_WORKER_H

#include "base/parallel.h"
#include "engine/filter_image.h"
#include "run/codecs.h"
#include "run/scheduler.h"

struct conv_worker {
    struct conv_scheduler *scheduler;
    int index;
    struct conv_codecs *codecs;
    struct conv_filter_context *context; // on a backend that is not async; else NULL
    struct conv_trace_track *track;
    pthread_t thread;
    bool started;
    atomic_int phase;     // phase.h
    struct conv_job *job; // on which it computes, while it does; NULL: it only helps another one
    bool decodes;         // for a group with other images
    size_t reserved;      // of s->files, for the job
    struct conv_parallel parallel; // for its image: helpers.h
};

void *conv_worker_main(void *worker); // struct conv_worker

// From now on the worker computes on this job; `decodes`: it decodes it for a group with other
// images.
void conv_worker_take(struct conv_worker *worker, struct conv_job *job, bool decodes);

// True if the worker was computing: then it is abandoned together with its job, and the others
// continue.
bool conv_worker_leave(struct conv_scheduler *s, struct conv_worker *worker) CONV_NEEDS(s->lock);

#endif
