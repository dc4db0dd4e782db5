// SPDX-License-Identifier: MIT
// The way of all pictures through the program:
//   walk -> read -> decode -> [stage -> filter -> fetch] -> encode -> write -> rename
// Workers (threads) do everything but the middle; lanes do that. On a backend that is not async a
// worker runs the middle itself, so that a picture stays in one core's cache from file to file.
#ifndef CONV_PIPELINE_PIPELINE_H
#define CONV_PIPELINE_PIPELINE_H

#include <stdatomic.h>
#include <stdint.h>

#include "backend/opening.h"
#include "pipeline/journal.h"
#include "pipeline/walk.h"
#include "png/png.h"
#include "report/report.h"
#include "report/trace.h"

// Who decodes or encodes picture data. CONV_CODER_AUTO is for decoding only: whoever is free, as
// balance.h says.
enum conv_coder { CONV_CODER_CPU, CONV_CODER_AUTO, CONV_CODER_GPU };

enum conv_alpha_mode { CONV_ALPHA_KEEP, CONV_ALPHA_FILTER, CONV_ALPHA_PREMULTIPLY };

struct conv_pipeline_config {
    const struct conv_backend_ops *ops;
    // One a device, at most CONV_BACKEND_MOST_DEVICES; several only if `ops` is async. Groups go to
    // whichever asks next, and those of a device that fails to the others.
    struct conv_backend *const *backends;
    int device_count;
    const char (*device_names)[16];
    // Of an entry of `backends` that is NULL: the device joins in once it is open. Till then the
    // spare backend, of which there must be one, does the work.
    struct conv_opening *const *openings;
    int filter_count;
    // Takes over what all devices of `ops`, which is async, fail to do; NULL: such pictures fail.
    const struct conv_backend_ops *spare_ops;
    struct conv_backend *spare;
    int jobs;           // workers, at least 1
    int streams;        // lanes of each device of an async backend, at least 1
    size_t group_bytes; // staging bytes that make a group full
    size_t mem_limit;   // bytes of staging memory in all
    uint64_t max_pixels;
    struct conv_png_config png;
    enum conv_alpha_mode alpha;
    enum conv_coder decode_on, encode_on; // CONV_CODER_GPU: what the device cannot, the CPU does
    bool strip, preserve, fsync;
    bool in_place;                // outputs replace inputs
    struct conv_journal *journal; // of --resume; NULL without
    bool skip_existing, update, dry_run, no_save, fail_fast;
    struct conv_trace *trace; // gets a row a worker and three a lane; may be NULL
    atomic_int *stop;         // becomes non-zero when no new picture shall be taken
};

// Runs every picture of the walk and hands a record of each to the report. Pictures that fail are
// reported and do not end the run; the return value speaks of the run itself (no memory, no thread,
// no device).
enum conv_status conv_pipeline_run(const struct conv_pipeline_config *config,
                                   struct conv_walk *walk, struct conv_report *report,
                                   struct conv_err *err);

#endif
