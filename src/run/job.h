// SPDX-License-Identifier: MIT
// A job is one image on its way from file to file. It is passed on, never copied: it belongs to the
// list that it is in, guarded by the scheduler's lock, or to the thread that has taken it.
//
//   FREE ► FOUND ► ANNOUNCED ► READING ► DECODING ► DECODED ► FILTERED ► ENCODING
//   READING ► PARKED ► DECODING      there was no staging memory at first
//   DECODING ► PARKED                its stream cannot be copied for a device: a worker decodes it
//   DECODED ► UNDECODED ► READING    the device could not decode it: it is read again, for a worker
//   READING ► WHOLE                  a backend that is not async
//
// From every state a job may end: it is FREE again.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/parallel.h"
#include "engine/group.h"
#include "io/files/file_read.h"
#include "io/sink.h"
#include "report/trace.h"
#include "run/budget.h"
#include "run/pipeline.h"

// --- whether a worker computes -------------------------------------------------------------------
// Whether a worker is inside a computation on one image: decoding, filtering, encoding. With
// conv_pipeline_config.left_threads, a run that a signal ends does not wait for that: the worker is
// left behind, and the process ends without it.

enum { CONV_PHASE_OTHER, CONV_PHASE_COMPUTES, CONV_PHASE_LEFT };

// To be called before and after a computation that touches nothing but the job, its slot, its
// stream and its codec, all of which stay if the worker is left behind. NULL outside of a run, as
// in `conv verify`.
static inline void conv_phase_begin(atomic_int *phase)
{
    if (phase)
        atomic_store(phase, CONV_PHASE_COMPUTES);
}

// Does not return if the worker has been left behind: the rest of the run may be gone.
static inline void conv_phase_end(atomic_int *phase)
{
    int expected = CONV_PHASE_COMPUTES;
    if (!phase || atomic_compare_exchange_strong(phase, &expected, CONV_PHASE_OTHER))
        return;
    for (;;)
        pause();
}

// True if the worker was computing; from then on it is left behind.
static inline bool conv_phase_leave(atomic_int *phase)
{
    int expected = CONV_PHASE_COMPUTES;
    return atomic_compare_exchange_strong(phase, &expected, CONV_PHASE_LEFT);
}

// --- a job ---------------------------------------------------------------------------------------

// An image of the run: found in the source, announced (the system fetches its file), and read. Then
// one worker does all the rest, or the image is decoded into a group, if need be after waiting for
// staging memory (parked), is filtered with it, and waits for a worker to encode it. What a device
// could not decode is read again. A free job is to be used again; only its metadata buffer has a
// defined value.
struct conv_job {
    struct conv_item item;     // from the source
    struct conv_output output; // where the sink puts it
    struct conv_err err;       // why it failed
    // What is reported of it; without its names and its shape, which are added at its end.
    struct conv_record record;
    bool is_written;            // the sink has its output
    struct conv_input input;    // the item, from announcing to reading; its identity after that
    struct conv_budget *budget; // of `share`; may be NULL
    struct conv_share share;    // for the file's buffer
    size_t want;            // bytes that `share` will need, by the file's size before it is read
    struct conv_file *file; // until decoded, so that a few buffers serve all jobs
    const struct conv_format *format;        // of the input; NULL until its first bytes are read
    const struct conv_format *output_format; // known when the header is read
    struct conv_image_header header;         // its shape as the image is filtered: output_plan.c
    int file_depth;                          // bits per sample of the decoded file
    int file_channels;   // of the decoded file; more than are filtered: output_plan.c
    int output_channels; // of the output; more than are filtered if only luminance is
    struct conv_metadata meta;
    struct conv_device_encoding encoding; // of the output; if its format has coders for devices
    struct conv_slot *slot;               // while it has staging memory
    struct conv_placed placed;            // its place there
    int image;                            // its number in a group that is coded
    enum conv_coder decode_on; // CONV_CODER_CPU once a device could not decode it, else AUTO
    uint64_t slice;            // when the current slice of a stage that may be interrupted began
    struct conv_trace_track *track;  // of the worker that has it; may be NULL
    atomic_int *phase;               // of the same worker: job.h
    struct conv_parallel *parallel;  // threads that may help to read it, meanwhile; else NULL
    struct conv_job *next;           // in the one list it is in
    struct conv_job *before, *after; // in conv_jobs.in_line
};

// --- lists of jobs -------------------------------------------------------------------------------

struct conv_job_list {
    struct conv_job *first, **end;
    int count;
};

// A list belongs to the caller or is guarded by the scheduler's lock. A job is in one at a time.
void conv_job_push(struct conv_job_list *list, struct conv_job *job);
void conv_job_put_back(struct conv_job_list *list, struct conv_job *job); // at the front
void conv_job_insert(struct conv_job_list *list, struct conv_job *job);   // by item.number
struct conv_job *conv_job_pop(struct conv_job_list *list);                // NULL if it is empty

// Adds jobs that are linked by `next` at the end, or `by_number`, if both are sorted, in order.
void conv_job_join(struct conv_job_list *list, struct conv_job *first, bool by_number);

// Sorts jobs that are linked by `next` by their items' numbers.
struct conv_job *conv_job_sort(struct conv_job *first);
