// SPDX-License-Identifier: MIT
// What a run of the pipeline is to do: plain data that its caller fills in and keeps unchanged
// until the run has ended.
#ifndef CONV_PIPELINE_CONFIG_H
#define CONV_PIPELINE_CONFIG_H

#include <stdatomic.h>
#include <stdint.h>

#include "backend/async_open.h"
#include "io/formats.h"
#include "io/sink.h"
#include "report/trace.h"

// Who decodes or encodes image data. CONV_CODER_AUTO is for decoding only: whoever is free, as
// balance.h says.
enum conv_coder { CONV_CODER_CPU, CONV_CODER_AUTO, CONV_CODER_GPU };

struct conv_pipeline_config {
    const struct conv_backend_ops *ops;
    // One a device, at most CONV_BACKEND_MOST_DEVICES; several only if `ops` is async. Groups go to
    // whichever asks next, and those of a device that fails to the others.
    struct conv_backend *const *backends;
    int device_count;
    const char (*device_names)[16];
    // Of an entry of `backends` that is NULL: the device joins in once it is open. Till then the
    // spare backend, of which there must be one, does the work.
    struct conv_async_open *const *openings;
    int filter_count;
    // Takes over what all devices of `ops`, which is async, fail to do; NULL: such images fail.
    const struct conv_backend_ops *spare_ops;
    struct conv_backend *spare;
    int jobs;           // workers, at least 1
    int streams;        // streams of each device of an async backend, at least 1
    size_t group_bytes; // staging bytes that make a group full
    size_t mem_limit;   // bytes of staging memory in all
    // Bytes that the whole run may take, where a container, a job or a shell limits that; 0: not
    // known. On a backend that is not async, images wait for each other to stay within it.
    size_t memory;
    bool refuse_beyond; // images that alone take more fail; without it they are tried
    uint64_t max_pixels;
    struct conv_codec_config codec;
    const struct conv_format *output_format; // NULL: the first of conv_formats
    enum conv_alpha_mode alpha;
    enum conv_coder decode_on, encode_on; // CONV_CODER_GPU: what the device cannot, the CPU does
    bool strip;
    bool first_frame;         // an animated PNG is its first image; else it is refused
    struct conv_sink *sink;   // NULL: there are no outputs, and no_save is set
    uint64_t expected_images; // lower bound on the images of the source; 0: unknown
    // Which images need not be filtered: those whose output exists, is not older than the input, is
    // noted by the sink's journal.
    bool skip_existing, update, resume;
    bool dry_run; // images are planned, nothing is read
    bool no_save; // the sink is asked about outputs, but nothing is written
    bool fail_fast;
    struct conv_trace *trace; // gets a row a worker and three a stream; may be NULL
    // Becomes non-zero when no new image is to be begun. If positive, those in flight are given up,
    // too, unless they are finished within a moment.
    atomic_int *stop;
    // NULL: the run joins all its threads, after a signal too, which takes until the images in
    // flight are given up. Else it waits for a moment only: set to true if a thread was still
    // inside a long computation. Then the backends must stay open, and the process is to end soon.
    bool *left_threads;
};

#endif
