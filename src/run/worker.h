// SPDX-License-Identifier: MIT
// A worker: a thread that reads, decodes, encodes and writes images, and filters them where the
// backend is not async.
#pragma once

#include "base/parallel.h"
#include "engine/engine.h"
#include "run/layer_stage.h"
#include "run/stages.h"

struct conv_worker {
    struct conv_scheduler *scheduler;
    int index;
    struct conv_codecs *codecs;
    struct conv_stream *stream;     // of a backend that is not async; else NULL
    struct conv_layer_worker layer; // where a layer takes the place of filters
    struct conv_trace_track *track;
    pthread_t thread;
    bool started;
    atomic_int phase;     // job.h
    struct conv_job *job; // on which it computes, while it does; NULL: it only helps another one
    bool decodes;         // for a group with other images
    size_t reserved;      // in the budget, for the job
    struct conv_parallel parallel; // for its image: worker.h
};

void *conv_worker_main(void *worker); // struct conv_worker

// From now on the worker computes on this job; `decodes`: it decodes it for a group with other
// images.
void conv_worker_take(struct conv_worker *worker, struct conv_job *job, bool decodes);

// True if the worker was computing: then it is abandoned together with its job, and the others
// continue.
bool conv_worker_leave(struct conv_scheduler *s, struct conv_worker *worker) CONV_NEEDS(s->lock);

// --- help with large images ----------------------------------------------------------------------
// Workers without an image of their own help with a large one: they take rows to filter and bands
// to encode. A worker with an image of its own never helps, so a folder of many images keeps one
// core per image.

// Makes worker->parallel, whose `run` may be called while the worker computes (job.h) and holds
// no lock.
void conv_worker_init_help(struct conv_worker *worker);

// Helps with an image, if one needs help; else returns false. Releases the lock meanwhile. `job` is
// the image that the worker has read and cannot begin for lack of memory; NULL: none.
bool conv_worker_help(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

// --- tasks: worker_tasks.c, cpu_image.c ----------------------------------------------------------

// Does a task, or returns false if there is none. `stopping`: nothing new is begun.
bool conv_tasks_do(struct conv_scheduler *s, struct conv_worker *worker, bool stopping)
    CONV_NEEDS(s->lock);

// A backend that is not async: decodes, filters, encodes and writes a job that has been read, so
// that its image stays in one core's cache, and finishes it. Waits for memory. cpu_image.c
void conv_tasks_run(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

// --- images that do not fit the memory: bands.c --------------------------------------------------
// They are decoded, filtered and encoded in bands of rows, on a backend that is not async.

struct conv_bands_plan {
    const char *refusal; // why the image has to be processed as a whole; NULL: it has not
    int rows;            // of a band, those around it not counted
    int reach, grid;     // of conv_device_ops.reach
    size_t bytes;        // of memory
};

// How the image is processed with at most `most` bytes, besides its file.
void conv_bands_plan(struct conv_bands_plan *plan, const struct conv_scheduler *s,
                     const struct conv_worker *worker, const struct conv_job *job, size_t most);

// Decodes, filters and encodes the image while its output is written. The output is the one of the
// whole image, or there is none. CONV_ERR_IO also if there are too few threads.
enum conv_status conv_bands_run(const struct conv_bands_plan *plan, const struct conv_scheduler *s,
                                struct conv_worker *worker, struct conv_job *job);
