// SPDX-License-Identifier: MIT
// The memory budget of a run, whichever door starts it: one function decides how many bytes each
// use may take, and what input files and images in flight take is booked here. Staging memory is
// booked where its buffers are, in the pool, within `staging`.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/limits.h"
#include "base/lock.h"
#include "io/source.h"

struct conv_job;
struct conv_pipeline_config;

// --- what each use may take ----------------------------------------------------------------------

// Bytes, unless it says otherwise.
struct conv_division {
    size_t staging;  // buffers of groups, and metadata of their images; one input file, too
    size_t files;    // buffers of all input files
    size_t archives; // members of archives that wait, on either side, and copies of archives
    size_t keep;     // that a buffer of a coder, or of a file, keeps for the next image
    size_t live;     // jobs at once
    // Where a container, a batch system or a shell limits the memory of the run; else 0.
    size_t run;          // what is left of the limit, without `archives`
    size_t helpers;      // threads that help with one image
    bool refuses_beyond; // images that need more on their own fail; else they are tried
    // The same on a backend that is not async; else SIZE_MAX.
    size_t total; // input files and images in flight together; with a layer larger images alone
    size_t keep_staging; // that a buffer of the pool keeps from group to group
};

// What the division depends on.
struct conv_division_terms {
    const struct conv_limits *limits;
    size_t staging; // what the user asked for, or conv_budget_staging
    bool is_asked;  // then images that need more than is left are tried
    bool async;     // a device filters
    int jobs;
    int archives; // sides on which members of archives wait: 0, 1 or 2
};

// Staging memory, where the user does not say: half of the machine's memory, or less under a limit.
size_t conv_budget_staging(const struct conv_limits *limits, bool async);

void conv_budget_divide(struct conv_division *memory, const struct conv_division_terms *terms);

// To be called by each door before conv_pipeline_run, once config->ops, jobs and sink are set:
// divides what this process may use now, sets config->memory and config->codec.keep, and tells the
// source and the sink what members of archives may take. Returns true if mapped addresses count, so
// that arenas of malloc do, too.
bool conv_budget_set(struct conv_pipeline_config *config, struct conv_source *source,
                     size_t staging, bool is_asked);

// --- what an image takes -------------------------------------------------------------------------

// On a worker that decodes, filters and encodes it. For runs whose memory is limited.
struct conv_need {
    size_t work; // bytes from decoding to encoding, without the buffer of the input file
    size_t peak; // bytes at the worst moment, with that buffer as long as it exists
};

// `staging` is the image's part of either staging buffer. Upper bounds, except for some KiB and a
// few rows of the filter; an image that compresses well takes less while it is encoded. SIZE_MAX if
// a number does not fit. Any thread.
void conv_budget_estimate(struct conv_need *need, const struct conv_pipeline_config *config,
                          const struct conv_job *job, size_t staging);

// --- what is taken -------------------------------------------------------------------------------
// Threads take shares of the memory for files. A share that does not fit has to wait, except that
// one share at a time may exceed the limit. So a thread that has a share and needs a larger one
// gets it eventually, and so does a share that is larger than everything.
//
// Where the memory of the whole run is limited, images in flight reserve what they need from
// decoding to encoding; shares and reservations together stay within `total`. Only a single image
// that needs more exceeds it, while no other is in flight.
//
// Any thread may call any function.

struct conv_share {
    size_t bytes;
};

struct conv_budget {
    size_t limit; // of all shares
    size_t total; // of shares and reservations; SIZE_MAX: any number

    struct conv_lock lock; // guards all below
    pthread_cond_t freed;
    size_t used;
    size_t reserved;
    const struct conv_share *beyond; // the share that may exceed the limit; or NULL
};

// With memory->files and memory->total.
void conv_budget_open(struct conv_budget *budget, const struct conv_division *memory);
void conv_budget_close(struct conv_budget *budget);

// Enlarge the share to `bytes` in total; it is never made smaller. If that does not fit, `try`
// returns false and `grow` waits. A share belongs to one thread at a time. A NULL budget has no
// limit.
bool conv_budget_try(struct conv_budget *budget, struct conv_share *share, size_t bytes);
void conv_budget_grow(struct conv_budget *budget, struct conv_share *share, size_t bytes);
void conv_budget_release(struct conv_budget *budget, struct conv_share *share);

// Reserves memory for an image in flight. False if it has to wait until images or shares are
// released; that never happens while nothing is reserved.
bool conv_budget_reserve(struct conv_budget *budget, size_t bytes);
void conv_budget_unreserve(struct conv_budget *budget, size_t bytes);
