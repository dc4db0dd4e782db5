// SPDX-License-Identifier: MIT
// What the threads of a run share (private to src/pipeline/): pipeline.c starts and ends them,
// worker.c and stream_thread.c say what they do, jobs.c and groups.c keep the lists, devices.c
// knows which device is of use. One lock guards all lists; it is held for list operations only,
// never while an image is read, coded, filtered or reported. Functions here are called with the
// lock held, unless they say otherwise.
#ifndef CONV_PIPELINE_SCHEDULER_H
#define CONV_PIPELINE_SCHEDULER_H

#include <pthread.h>

#include "pipeline/config.h"
#include "pipeline/decode_policy.h"
#include "pipeline/job.h"
#include "pipeline/pool.h"

struct conv_job_list {
    struct conv_job *first, **end;
    int count;
};

// How a group is coded.
enum { CONV_FORM_DECODED = 1, CONV_FORM_ENCODED = 2, CONV_FORM_COUNT = 4 }; // bits: by the device

// A device of an async backend.
struct conv_device_state {
    struct conv_backend *backend; // set before `streams`
    bool welcomed;                // a thread opens its streams, or has
    int streams; // opened, fewer than asked for where memory was short; 0: the device is not open
                 // yet
    struct conv_err lost; // why it is of no use any more; status CONV_OK: it is
    bool crowded;         // it had no room for a group, which was said
    bool uncoded;         // it had no room for a group's coders, which was said
};

struct conv_scheduler {
    const struct conv_pipeline_config *config;
    struct conv_source *source;
    struct conv_report *report;
    size_t table_bytes;
    bool filter_alpha;
    struct conv_stream_thread *stream_threads; // of all devices: device * streams + index
    struct conv_budget files; // what buffers of input files take, and images in work

    pthread_mutex_t report_lock; // taken before `lock`, where both are
    pthread_mutex_t lock;        // guards all below
    // Workers wait on it for anything to do. Any of them can do whatever there is, so one is woken
    // when something comes up (images to read or to encode, a slot set free), and wakes the next
    // if there is more. All are woken for the end only.
    pthread_cond_t changed;
    pthread_cond_t room;        // workers of a backend that is not async wait on it for memory
    pthread_cond_t stream_work; // streams wait on it
    pthread_cond_t ended;       // the main thread waits on it for the workers
    int working;                // workers that have not ended
    struct conv_pool pool;
    struct conv_slot *open[CONV_FORM_COUNT]; // take images, by how their groups are coded
    struct conv_slot *ready, **ready_end;    // sealed groups for the streams
    struct conv_job_list found;              // in the source, nothing done yet
    struct conv_job_list announced;          // on their way from the disk, not yet read
    struct conv_job_list parked;             // read, waiting for staging memory
    struct conv_job_list to_encode;
    struct conv_job *spare_jobs;
    struct conv_file *spare_files;
    int live;       // jobs that somebody has begun and nobody finished
    int most;       // of them at once
    uint64_t begun; // images that somebody has begun, ever
    struct conv_decode_policy balance;
    bool walking; // a worker is in conv_source_next
    bool minding; // a worker waits with an eye on the open group
    bool walked;  // no more images will come
    bool streams_end;
    struct conv_device_state *devices; // one a device
    struct conv_err failure;           // what ended the run itself, if anything did
};

struct conv_worker {
    struct conv_scheduler *scheduler;
    int index;
    struct conv_png_codec *codec;
    struct conv_stream *stream; // of a backend that is not async
    struct conv_trace_row *row;
    pthread_t thread;
    bool started;
    atomic_int phase;     // phase.h
    struct conv_job *job; // on which it computes, while it does
    bool decodes;         // for a group with other images
    size_t reserved;      // of s->files, for the job
};

// A thread that takes groups, and the stream that it hands them to. Once its device is lost, it
// takes streams of others, in turn with their threads.
struct conv_stream_thread {
    struct conv_scheduler *scheduler;
    int device, index;
    bool wanted;                // the thread
    pthread_mutex_t in_turn;    // guards `stream` and `rows`; taken before all other locks
    struct conv_stream *stream; // NULL: the device had no room for one
    struct conv_stream *spare;  // made when first needed
    void *scratch;              // of the spare backend
    size_t scratch_size;
    struct conv_slot *slot; // whose group is under way
    struct conv_trace_row *rows[CONV_ENGINE_COUNT];
    pthread_t thread;
    bool started;
};

static inline bool conv_scheduler_is_stopping(const struct conv_scheduler *s)
{
    return atomic_load(s->config->stop) != 0;
}

// No new image is taken from now on; a signal that came before is not forgotten.
static inline void conv_scheduler_stop(const struct conv_scheduler *s)
{
    int expected = 0;
    atomic_compare_exchange_strong(s->config->stop, &expected, -1);
}

// Waits, without a signal no longer than `ns`; false: none came. Everybody looks around once a
// second at least: pthread_cond_signal() of glibc 2.25 to 2.40 may wake nobody when several wait
// (sourceware.org/bugzilla 25847), rarely, but a run may last all night. pipeline.c
bool conv_scheduler_wait(struct conv_scheduler *s, pthread_cond_t *condition, uint64_t ns);
#define CONV_SCHEDULER_LOOK_NS 1000000000

// --- jobs.c --------------------------------------------------------------------------------------

void conv_jobs_init(struct conv_job_list *list);
void conv_jobs_push(struct conv_job_list *list, struct conv_job *job);
void conv_jobs_put_back(struct conv_job_list *list, struct conv_job *job); // at the front
struct conv_job *conv_jobs_pop(struct conv_job_list *list);                // NULL if it is empty

// An empty job, or NULL without memory; and its way back if nothing came of it.
struct conv_job *conv_jobs_new(struct conv_scheduler *s);
void conv_jobs_put_away(struct conv_scheduler *s, struct conv_job *job);

// Gives the job a buffer for its file. False without memory.
bool conv_jobs_take_file(struct conv_scheduler *s, struct conv_job *job);
// Takes it back, with the job's share of the budget for files.
void conv_jobs_drop_file(struct conv_scheduler *s, struct conv_job *job);
void conv_jobs_drop(struct conv_scheduler *s, struct conv_job *job);

// Bytes of chunks that go from the image's input to its output, if they are worth counting.
size_t conv_jobs_carries(const struct conv_job *job);

// Reports the job and takes it back. Called WITHOUT the lock, returns with it.
void conv_jobs_finish(struct conv_scheduler *s, struct conv_job *job, enum conv_status status);

void conv_jobs_free_spares(struct conv_scheduler *s);

// --- groups.c ------------------------------------------------------------------------------------

// Between workers and devices: see CONV_CODER_AUTO.
void conv_groups_note_decoded(struct conv_scheduler *s, const struct conv_job *job);
void conv_groups_note_run(struct conv_scheduler *s, struct conv_slot *slot,
                          enum conv_status status);

// Gives the image its place in a group: true with job->slot set, or false if it has to wait. On
// failure *status is set.
bool conv_groups_place(struct conv_scheduler *s, struct conv_job *job, enum conv_status *status);

// A group that takes images and waits for none of its own. NULL if there is none.
struct conv_slot *conv_groups_find_idle(const struct conv_scheduler *s);
bool conv_groups_is_open(const struct conv_scheduler *s, const struct conv_slot *slot);

// The group takes no more images; once the last one is decoded it goes to the streams.
void conv_groups_seal(struct conv_scheduler *s, struct conv_slot *slot);

// The queue of groups for the streams. NULL if it is empty.
void conv_groups_put_ready(struct conv_scheduler *s, struct conv_slot *slot);
struct conv_slot *conv_groups_take_ready(struct conv_scheduler *s);

// True once all images have gone to the streams: hardly any group is to come.
bool conv_groups_are_over(const struct conv_scheduler *s);

// Takes the image out of its slot, which is free again once it was the last.
void conv_groups_leave(struct conv_scheduler *s, struct conv_job *job);

// --- threads -------------------------------------------------------------------------------------

void *conv_worker_main(void *worker); // struct conv_worker; worker.c
// True if the worker was computing and is left behind, with its job. The others go on without it.
bool conv_worker_leave(struct conv_worker *worker);
void *conv_stream_thread_main(void *stream_thread); // struct conv_stream_thread; stream_thread.c

// --- devices.c -----------------------------------------------------------------------------------

// Before the threads are started: opens streams on all devices that are there. Streams with less
// device memory than asked for, or fewer of them, are fine; with a spare backend none are.
// CONV_ERR_DEVICE with what is missing.
enum conv_status conv_devices_open(struct conv_scheduler *s, struct conv_err *err);
void conv_devices_close(struct conv_scheduler *s); // after the threads have ended

// A stream of the device, for this thread alone until it is put back: the thread's own where it can
// be. NULL, with the reason, if the device is lost, or with status CONV_OK if it is not there yet.
// Called WITHOUT the lock, as the functions
// below.
struct conv_stream_thread *conv_devices_take_stream(const struct conv_stream_thread *thread,
                                                    int device, struct conv_err *err);
void conv_devices_put_stream(struct conv_stream_thread *owner);

// Waits until a device is there, if any is on its way, and not after a stop. Those that are not
// there some seconds after the run's start are given up.
void conv_devices_await(struct conv_scheduler *s);

// The device has failed at a group: it had no room (CONV_ERR_MEMORY) or is lost. Says so once, if
// there is anybody who goes on.
void conv_devices_give_up(struct conv_scheduler *s, int device, enum conv_status status,
                          const struct conv_err *err);

// The device had no room for the coders of a group. Said once.
void conv_devices_note_crowded(struct conv_scheduler *s, int device, const struct conv_err *err);

// True, with the reason, once all devices are lost.
bool conv_devices_are_lost(struct conv_scheduler *s, struct conv_err *err);

#endif
