// SPDX-License-Identifier: MIT
// Workers without an image of their own help with a large one: they take rows to filter and bands
// to encode. A worker with an image of its own never helps, so a folder of many images keeps one
// core per image.
#ifndef CONV_RUN_HELPERS_H
#define CONV_RUN_HELPERS_H

#include "run/worker.h"

// Makes worker->parallel, whose `run` may be called while the worker computes (phase.h) and holds
// no lock.
void conv_helpers_init(struct conv_worker *worker);

// Helps with an image, if one needs help; else returns false. Releases the lock meanwhile. `job` is
// the image that the worker has read and cannot begin for lack of memory; NULL: none.
bool conv_helpers_help(struct conv_scheduler *s, struct conv_worker *worker, struct conv_job *job)
    CONV_NEEDS(s->lock);

#endif
