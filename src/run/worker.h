// SPDX-License-Identifier: MIT
// A worker: a thread that reads, decodes, encodes and writes images, and filters them where the
// backend is not async.
#ifndef CONV_RUN_WORKER_H
#define CONV_RUN_WORKER_H

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
    size_t reserved;      // in the ledger, for the job
    struct conv_parallel parallel; // for its image: worker.h
};

void *conv_worker_main(void *worker); // struct conv_worker

// From now on the worker computes on this job; `decodes`: it decodes it for a group with other
// images.
void conv_worker_take(struct conv_worker *worker, struct conv_job *job, bool decodes);

// True if the worker was computing: then it is abandoned together with its job, and the others
// continue.
bool conv_worker_leave(struct conv_scheduler *s, struct conv_worker *worker) CONV_NEEDS(s->lock);

// --- help with large images: helpers.c -----------------------------------------------------------
// Workers without an image of their own help with a large one: they take rows to filter and bands
// to encode. A worker with an image of its own never helps, so a folder of many images keeps one
// core per image.

// Makes worker->parallel, whose `run` may be called while the worker computes (job.h) and holds
// no lock.
void conv_helpers_init(struct conv_worker *worker);

// Helps with an image, if one needs help; else returns false. Releases the lock meanwhile. `job` is
// the image that the worker has read and cannot begin for lack of memory; NULL: none.
bool conv_helpers_help(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

// --- tasks: tasks.c, whole_image.c ---------------------------------------------------------------
// What workers do, one task at a time; worker.c chooses it. All release the lock while they name,
// read, code, filter or write. A job that fails is finished.

// Fetches the next images from the source. s->source_state is not CONV_SOURCE_BUSY.
void conv_tasks_fetch(struct conv_scheduler *s) CONV_NEEDS(s->lock);

// Begins a job that was found: finishes it if it is to be skipped, else has the system fetch its
// file and appends it to the announced ones.
void conv_tasks_announce(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

// Reads the job's file. False if that has ended the job.
bool conv_tasks_read(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

// Copies an item that is not an image to the output, and finishes the job.
void conv_tasks_copy(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

// Async backend: decodes a job that has been read and has its place in a group.
void conv_tasks_decode(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

// Async backend: encodes and writes a filtered job, and finishes it.
void conv_tasks_encode(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

// Another backend: decodes, filters, encodes and writes a job that has been read, so that its image
// stays in one core's cache, and finishes it. Waits for memory. whole_image.c
void conv_tasks_run(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

// --- small files: tasks.c ------------------------------------------------------------------------
// Small files that a device decodes and encodes: workers take several at a time. What they do to
// one takes a few microseconds, less than waking another worker or waiting for the lock.

// Files taken at a time from a list.
#define CONV_SMALL_FILES 16

// True for an announced job that conv_small_files_read takes when its turn comes.
bool conv_small_files_fits(const struct conv_scheduler *s, const struct conv_job *job)
    CONV_NEEDS(s->lock);

// Reads the first announced jobs and gives them their places in groups, as conv_tasks_read and
// conv_tasks_decode; those that a worker has to decode are parked. False if the first one does not
// fit, or its turn has not come.
bool conv_small_files_read(struct conv_scheduler *s, struct conv_worker *worker)
    CONV_NEEDS(s->lock);

// As conv_tasks_encode, for the first jobs to be encoded. False if a worker has to encode the first
// one, if it is large, or if the sink has an order, so that jobs may have to wait for each other.
bool conv_small_files_write(struct conv_scheduler *s, struct conv_worker *worker)
    CONV_NEEDS(s->lock);

#endif
