// SPDX-License-Identifier: MIT
// The state that the threads of a run share. `lock` guards the lists of images and groups, the pool
// and the states of devices. It is held for operations on these only, never while an image is read,
// coded, filtered or reported.
#pragma once

#include "base/lock.h"
#include "run/decode_policy.h"
#include "run/job.h"
#include "run/pipeline.h"
#include "run/pool.h"

// Queues of images by their next task, first in, first out; and jobs and buffers for reuse.
struct conv_jobs {
    struct conv_job_list found;     // in the source; nothing is done yet
    struct conv_job_list announced; // the system fetches their files, which are not yet read
    struct conv_job_list parked;    // read, waiting for staging memory
    struct conv_job_list links;     // announced, and not due yet: struct conv_item
    struct conv_job_list to_encode;
    // Where the results of a layer have an order: jobs of the source that have no place yet.
    struct {
        struct conv_job *first, *last; // linked by `before` and `after`
    } in_line;
    struct conv_job *free;
    struct conv_file *free_files;
    int live;       // begun and not finished
    uint64_t begun; // ever
};

// How the images of a group are coded. Bits: by the device.
enum { CONV_FORM_DECODED = 1, CONV_FORM_ENCODED = 2, CONV_FORM_COUNT = 4 };

struct conv_groups {
    struct conv_slot *open[CONV_FORM_COUNT]; // that take images, by form
    struct conv_slot *ready, **ready_end;    // sealed, for the streams
    int ready_count;
    int idle_threads; // of streams, that wait for groups
    bool has_sealer;  // a worker waits until the open group is old enough to be sealed
};

// What the threads wait for.
struct conv_wakeups {
    // Workers of an async backend wait for anything to do. Any of them can do whatever there is, so
    // one is woken when something comes up (images to read or to encode, a free slot), and wakes
    // the next if there is more. All are woken at the end, and to help with a large image.
    pthread_cond_t workers;
    pthread_cond_t memory;  // workers of other backends, for memory
    pthread_cond_t streams; // stream threads, for groups
    pthread_cond_t devices; // stream threads, for a device to open or to be lost
    pthread_cond_t ended;   // the main thread, for the workers
};

enum conv_source_state { CONV_SOURCE_IDLE, CONV_SOURCE_BUSY, CONV_SOURCE_OVER };

struct conv_scheduler {
    // Of the worker that set source_state to CONV_SOURCE_BUSY.
    struct conv_source *source;
    uint64_t next_number; // of an item

    // Not changed while threads run.
    const struct conv_pipeline_config *config;
    uint64_t numbered;  // images from the source, counted by the worker that uses it
    size_t table_bytes; // conv_device_ops.table_bytes
    bool filter_alpha;
    int most_streams;                          // of each device
    int slots_per_stream;                      // 0: the backend has no streams
    struct conv_stream_thread *stream_threads; // of all devices: device * most + index
    struct conv_budget budget; // has its own lock: buffers of input files, and images in flight

    // Acquired before `lock` where both are held.
    struct conv_lock report_lock;
    struct conv_report *report; // guarded by report_lock

    struct conv_lock lock; // guards all below
    struct conv_wakeups wake;
    struct conv_jobs jobs;
    struct conv_groups groups;
    struct conv_help *helps; // requests for help: worker.h
    bool in_bands;           // a worker processes an image in bands; the others help it
    struct conv_pool pool;
    struct conv_decode_policy policy;
    enum conv_source_state source_state; // OVER: no more images will come
    struct conv_device_state *devices;   // config->device_count of them
    int working;                         // workers that have not ended
    bool streams_end;                    // no more groups will come
    struct conv_err failure;             // what ended the run itself, if anything did
};

// True if no new image is to be begun.
static inline bool conv_scheduler_is_stopping(const struct conv_scheduler *s)
{
    return atomic_load(s->config->stop) != 0;
}

// No new image is begun from now on. A signal that came earlier is not overwritten. Any thread.
static inline void conv_scheduler_stop(const struct conv_scheduler *s)
{
    int expected = 0;
    atomic_compare_exchange_strong(s->config->stop, &expected, -1);
}

// conv_lock_wait with the scheduler's lock. No wait is longer than CONV_SCHEDULER_LOOK_NS:
// pthread_cond_signal() of glibc 2.25 to 2.40 may wake no thread when several wait
// (sourceware.org/bugzilla 25847), rarely, but a run may last all night.
#define CONV_SCHEDULER_LOOK_NS 1000000000
static inline bool conv_scheduler_wait(struct conv_scheduler *s, pthread_cond_t *condition,
                                       uint64_t ns) CONV_NEEDS(s->lock)
{
    uint64_t most = CONV_SCHEDULER_LOOK_NS;
    return conv_lock_wait(&s->lock, condition, ns < most ? ns : most);
}

// --- jobs: jobs.c --------------------------------------------------------------------------------
// Their creation and reuse, and their end in a record of the report.

// Empty lists.
void conv_jobs_init(struct conv_jobs *jobs);

// Takes an empty job, which is not live yet, or NULL without memory; and returns it if it was not
// used.
struct conv_job *conv_jobs_new(struct conv_scheduler *s) CONV_NEEDS(s->lock);
void conv_jobs_put_away(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);

// Gives the job a buffer for its file. False without memory.
bool conv_jobs_take_file(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);
// Returns the buffer, if the job has one, and the job's share of the memory for files.
void conv_jobs_drop_file(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);

// A device could not decode the image: its file is read again, for a worker to decode.
void conv_jobs_read_again(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);

// The job is the last one in line, or no longer in line if it was.
void conv_jobs_join_line(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);
void conv_jobs_leave_line(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);

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

// --- groups: groups.c ----------------------------------------------------------------------------
// Groups of images for an async backend: how an image gets into one, and out of it again.

// Measurements for the decode policy: a worker has decoded the image; a stream has run the group,
// and the device has decoded it or not.
void conv_groups_note_decoded(struct conv_scheduler *s, const struct conv_job *job)
    CONV_NEEDS(s->lock);
void conv_groups_note_run(struct conv_scheduler *s, struct conv_slot *slot, bool decoded)
    CONV_NEEDS(s->lock);

// Gives an image that has been read its place in a group: true with job->slot set, or false if it
// has to wait or, with `device_only`, if a worker is to decode it. *status is the reason if it can
// never get one.
bool conv_groups_place(struct conv_scheduler *s, struct conv_job *job, bool device_only,
                       enum conv_status *status) CONV_NEEDS(s->lock);

// An open group that no worker decodes into. NULL if there is none.
struct conv_slot *conv_groups_find_idle(const struct conv_scheduler *s) CONV_NEEDS(s->lock);

// The open group takes no more images; once the last one is decoded it goes to the streams.
void conv_groups_seal(struct conv_scheduler *s, struct conv_slot *slot) CONV_NEEDS(s->lock);

// A worker has finished decoding an image of the group, which is or was open. Called after the job
// has been added to slot->jobs, or taken out of the slot.
void conv_groups_end_decode(struct conv_scheduler *s, struct conv_slot *slot) CONV_NEEDS(s->lock);

// The queue of groups for the streams; a thread that takes one runs it or puts it back. NULL if it
// is empty.
void conv_groups_put_ready(struct conv_scheduler *s, struct conv_slot *slot) CONV_NEEDS(s->lock);
struct conv_slot *conv_groups_take_ready(struct conv_scheduler *s) CONV_NEEDS(s->lock);

// A thread runs a group that it has taken, slots[0]: takes up to `most` - 1 further ones that can
// run together with it, if no other thread waits for groups. Links their groups and slots, and
// returns how many it has. After the run conv_groups_end_together is due with that number.
int conv_groups_take_together(struct conv_scheduler *s, struct conv_slot *slots[], int most)
    CONV_NEEDS(s->lock);
void conv_groups_end_together(struct conv_scheduler *s, int count) CONV_NEEDS(s->lock);

// True once all images have gone to the streams; only images that a device could not decode may
// still come back.
bool conv_groups_are_over(const struct conv_scheduler *s) CONV_NEEDS(s->lock);

// Takes a filtered image out of its slot, which is released with the last one.
void conv_groups_leave(struct conv_scheduler *s, struct conv_job *job) CONV_NEEDS(s->lock);
