// SPDX-License-Identifier: MIT
// Lists of jobs, their creation and reuse, and their end in a record of the report.
#ifndef CONV_RUN_JOBS_H
#define CONV_RUN_JOBS_H

#include "run/scheduler.h"

// Empty lists.
void conv_jobs_init(struct conv_jobs *jobs);

// The lists belong to the caller or are guarded by the scheduler's lock. A job is in one at a time.
void conv_jobs_push(struct conv_job_list *list, struct conv_job *job);
void conv_jobs_put_back(struct conv_job_list *list, struct conv_job *job); // at the front
void conv_jobs_insert(struct conv_job_list *list, struct conv_job *job);   // by item.number
struct conv_job *conv_jobs_pop(struct conv_job_list *list);                // NULL if it is empty

// Adds jobs that are linked by `next` at the end, or `by_number`, if both are sorted, in order.
void conv_jobs_join(struct conv_job_list *list, struct conv_job *first, bool by_number);

// Sorts jobs that are linked by `next` by their items' numbers.
struct conv_job *conv_jobs_sort(struct conv_job *first);

// Takes an empty job, which is not live yet, or NULL without memory; and returns it if it was not
// used.
struct conv_job *conv_jobs_new(struct conv_scheduler *s) CONV_NEEDS(s->lock);
void conv_jobs_put_away(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);

// Gives the job a buffer for its file. False without memory.
bool conv_jobs_take_file(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);
// Returns the buffer, if the job has one, and the job's share of the budget for files.
void conv_jobs_drop_file(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);

// A device could not decode the image: its file is read again, for a worker to decode.
void conv_jobs_read_again(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);

// Ends a live job without a record in the report.
void conv_jobs_drop(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);

// Reports a live job, whose slot has been left, and ends it. Releases the lock while it reports.
// CONV_ERR_CANCELLED: as conv_jobs_drop.
void conv_jobs_finish(struct conv_scheduler *s, struct conv_job *job, enum conv_status status)
    CONV_NEEDS(s->lock) CONV_TAKES(s->report_lock);

// The same for jobs that have not failed, all at once.
void conv_jobs_finish_done(struct conv_scheduler *s, struct conv_job *const jobs[], int count)
    CONV_NEEDS(s->lock) CONV_TAKES(s->report_lock);

// Bytes of metadata that the image carries from its input to its output, as the pool counts them: 0
// if they are too few to matter.
size_t conv_jobs_metadata_bytes(const struct conv_job *job);

// After the threads have ended.
void conv_jobs_free(struct conv_jobs *jobs);

#endif
