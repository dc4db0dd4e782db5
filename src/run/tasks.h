// SPDX-License-Identifier: MIT
// What workers do, one task at a time. worker.c chooses the task.
#ifndef CONV_RUN_TASKS_H
#define CONV_RUN_TASKS_H

#include "run/worker.h"

// All release the lock while they name, read, code, filter or write. A job that fails is finished.

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

// Parts of the above, for small_files.c:

// Reads the file of an announced job into the buffer that it has got, if there was memory.
enum conv_status conv_tasks_read_file(struct conv_scheduler *s, struct conv_worker *worker,
                                      struct conv_job *job) CONV_TAKES(s->lock);

// The job leaves the decoders of its group: for the stream with the group, for a worker to decode
// it after all (on_cpu), or because it failed.
void conv_tasks_end_decode(struct conv_scheduler *s, struct conv_job *job, enum conv_status status,
                           bool on_cpu) CONV_NEEDS(s->lock);

#endif
