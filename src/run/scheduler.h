// SPDX-License-Identifier: MIT
// The state that the threads of a run share. `lock` guards the lists of images and groups, the pool
// and the states of devices. It is held for operations on these only, never while an image is read,
// coded, filtered or reported.
#ifndef CONV_RUN_SCHEDULER_H
#define CONV_RUN_SCHEDULER_H

#include "base/lock.h"
#include "run/config.h"
#include "run/decode_policy.h"
#include "run/job.h"
#include "run/pool.h"

// Queues of images by their next task, first in, first out; and jobs and buffers for reuse.
struct conv_jobs {
    struct conv_job_list found;     // in the source; nothing is done yet
    struct conv_job_list announced; // the system fetches their files, which are not yet read
    struct conv_job_list parked;    // read, waiting for staging memory
    struct conv_job_list links;     // announced, and not due yet: struct conv_item
    struct conv_job_list to_encode;
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
    size_t table_bytes; // conv_backend_ops.table_bytes
    bool filter_alpha;
    int most_live;                             // images in the pipeline at once
    int most_streams;                          // of each device
    int slots_per_stream;                      // 0: the backend has no streams
    struct conv_stream_thread *stream_threads; // of all devices: device * most + index
    struct conv_budget files; // has its own lock: buffers of input files, and images in flight

    // Acquired before `lock` where both are held.
    struct conv_lock report_lock;
    struct conv_report *report; // guarded by report_lock

    struct conv_lock lock; // guards all below
    struct conv_wakeups wake;
    struct conv_jobs jobs;
    struct conv_groups groups;
    struct conv_help *helps; // requests for help: helpers.h
    struct conv_pool pool;
    struct conv_decode_policy policy;
    enum conv_source_state source_state; // OVER: no more images will come
    struct conv_device_state *devices;   // config->device_count of them
    int working;                         // workers that have not ended
    bool streams_end;                    // no more groups will come
    struct conv_err failure;             // what ended the run itself, if anything did
};

// Creates the locks and the empty lists; the caller sets the other members, which are zero. On
// failure there is nothing to destroy.
enum conv_status conv_scheduler_init(struct conv_scheduler *s,
                                     const struct conv_pipeline_config *config,
                                     struct conv_source *source, struct conv_report *report,
                                     struct conv_err *err);
void conv_scheduler_destroy(struct conv_scheduler *s);

// True if no new image is to be begun.
bool conv_scheduler_is_stopping(const struct conv_scheduler *s);

// No new image is begun from now on. A signal that came earlier is not overwritten. Any thread.
void conv_scheduler_stop(const struct conv_scheduler *s);

// conv_lock_wait with the scheduler's lock. No wait is longer than CONV_SCHEDULER_LOOK_NS:
// pthread_cond_signal() of glibc 2.25 to 2.40 may wake no thread when several wait
// (sourceware.org/bugzilla 25847), rarely, but a run may last all night.
bool conv_scheduler_wait(struct conv_scheduler *s, pthread_cond_t *condition, uint64_t ns)
    CONV_NEEDS(s->lock);
#define CONV_SCHEDULER_LOOK_NS 1000000000

#endif
