// SPDX-License-Identifier: MIT
// Small files that a device decodes and encodes: workers take several at a time. What they do to
// one takes a few microseconds, less than waking another worker or waiting for the lock.
#ifndef CONV_RUN_SMALL_FILES_H
#define CONV_RUN_SMALL_FILES_H

#include "run/worker.h"

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
