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
#ifndef CONV_RUN_JOB_H
#define CONV_RUN_JOB_H

#include <stdatomic.h>

#include "base/parallel.h"
#include "engine/group.h"
#include "io/files/file_read.h"
#include "io/sink.h"
#include "report/report.h"
#include "report/trace.h"
#include "run/budget.h"
#include "run/config.h"

enum conv_job_state {
    CONV_JOB_FREE,      // to be reused; only its metadata buffer has a defined value
    CONV_JOB_FOUND,     // in the source
    CONV_JOB_ANNOUNCED, // the system fetches its file
    CONV_JOB_READING,   // its file is being read, or has been
    CONV_JOB_PARKED,    // read; waits for staging memory
    CONV_JOB_DECODING,  // has its place in a group, or has its stream copied there
    CONV_JOB_DECODED,   // waits for its group to be run, or is run with it
    CONV_JOB_UNDECODED, // the device could not decode it; as ANNOUNCED
    CONV_JOB_FILTERED,  // waits for a worker
    CONV_JOB_ENCODING,  // is encoded and written
    CONV_JOB_WHOLE,     // is decoded, filtered, encoded and written by one worker
};

struct conv_job {
    enum conv_job_state state; // changed by conv_job_move only
    uint64_t number;           // as in struct conv_record
    struct conv_item item;     // from the source
    struct conv_output output; // where the sink puts it
    struct conv_err err;       // why it failed
    enum conv_outcome outcome;
    const char *reason;         // why skipped or planned
    bool notable;               // as in struct conv_record
    bool is_written;            // the sink has its output
    struct conv_input input;    // the item, from announcing to reading; its identity after that
    struct conv_budget *budget; // of `share`; may be NULL
    struct conv_share share;    // for the file's buffer
    size_t want;            // bytes that `share` will need, by the file's size before it is read
    struct conv_file *file; // until decoded, so that a few buffers serve all jobs
    const struct conv_format *format;        // of the input; NULL until its first bytes are read
    const struct conv_format *output_format; // known when the header is read
    struct conv_image_header header; // its shape with the depths at which the image is filtered
    int file_depth;                  // bits per sample of the decoded file
    int file_channels;               // of the decoded file; more than are filtered: blend.h
    struct conv_metadata meta;
    struct conv_slot *slot;    // while it has staging memory
    struct conv_placed placed; // its place there
    int image;                 // its number in a group that is coded
    enum conv_coder decode_on; // CONV_CODER_CPU once a device could not decode it, else AUTO
    bool decoded_on_device, encoded_on_device; // as in struct conv_record
    size_t bytes_in, bytes_out;
    uint64_t ns[CONV_STAGE_COUNT];
    struct conv_trace_track *track; // of the worker that has it; may be NULL
    atomic_int *phase;              // of the same worker: phase.h
    struct conv_parallel *parallel; // threads that may help to read it, meanwhile; else NULL
    struct conv_job *next;          // in the one list it is in
};

// True for the transitions above, and from every state but FREE to FREE.
bool conv_job_may_move(enum conv_job_state from, enum conv_job_state to);

// Asserts that the transition is allowed.
void conv_job_move(struct conv_job *job, enum conv_job_state state);

struct conv_job_list {
    struct conv_job *first, **end;
    int count;
};

#endif
