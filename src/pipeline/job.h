// SPDX-License-Identifier: MIT
// A job is one image on its way from file to file. It travels; it is never copied.
#ifndef CONV_PIPELINE_JOB_H
#define CONV_PIPELINE_JOB_H

#include <stdatomic.h>

#include "backend/group.h"
#include "io/sink.h"
#include "io/source.h"
#include "pipeline/budget.h"
#include "png/png.h"
#include "report/report.h"
#include "report/trace.h"

// The bytes of an input file. They are wanted only until the image is decoded, so a few buffers
// serve all jobs.
struct conv_file {
    uint8_t *data;
    size_t size, capacity;
    struct conv_file *next;
};

struct conv_job {
    struct conv_item item;     // from the source
    struct conv_output output; // where the sink puts it
    struct conv_err err;       // why it failed
    enum conv_outcome outcome;
    const char *reason;         // why skipped or planned
    bool notable;               // as in struct conv_record
    struct conv_input input;    // the item, from announcing to reading; its identity after that
    struct conv_budget *budget; // that `share` is from; may be NULL
    struct conv_share share;    // for the file's buffer
    size_t want;                // of that, as far as the file says before it is read
    struct conv_file *file;     // until decoded
    struct conv_png_header header;
    struct conv_metadata meta;
    struct conv_image in; // where decoding writes
    size_t out_offset[CONV_IMAGE_MAX_CHANNELS];
    struct conv_slot *slot; // staging, while it holds some
    int image;              // its number in a group that is coded
    bool on_cpu;            // the device could not decode it
    bool decoded, encoded;  // by the device
    size_t bytes_in, bytes_out;
    uint64_t ns[CONV_STAGE_COUNT];
    struct conv_trace_row *row; // of the worker that has it; may be NULL
    atomic_int *phase;          // of the same worker: phase.h
    struct conv_job *next;      // in the one list it is in
};

struct conv_job_list {
    struct conv_job *first, **end;
    int count;
};

#endif
