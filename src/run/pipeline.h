// SPDX-License-Identifier: MIT
// All images of a source through the program:
//   source -> read -> decode -> [upload -> filter -> download] -> encode -> write -> sink
// Workers (threads) do everything but the middle, which stream threads do. On a backend that is not
// async a worker does the middle too, so that an image stays in one core's cache.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "engine/engine.h"
#include "io/files/formats.h"
#include "io/sink.h"
#include "io/source.h"
#include "report/report.h"
#include "report/trace.h"
#include "run/budget.h"

// CONV_CODER_AUTO is for decoding only, during a run: on whichever is free (decode_policy.h).
enum conv_coder { CONV_CODER_CPU, CONV_CODER_AUTO, CONV_CODER_GPU };

struct conv_layer_stage; // layer_stage.h
struct conv_walk;

// What happens to images besides filtering (stages.h); {0}: nothing.
struct conv_blend {
    bool gray;    // colours become luminance before the first filter
    bool luma;    // the luminance of colours is filtered; its change is added to each of them
    bool linear;  // colours are filtered in linear light, of 16 bits (image/image.h)
    int original; // share of the image as it was in the output, of CONV_IMAGE_WHOLE
    // The region in which filters have an effect; the rest stays unchanged, but filters read it.
    // width 0: the whole image. The region may reach beyond the image.
    int width, height, x, y;
};

// Plain data that the caller fills in and keeps unchanged until the run has ended.
struct conv_pipeline_config {
    // --- where images are filtered
    const struct conv_device_ops *ops;
    // One for each device, at most CONV_BACKEND_MOST_DEVICES; several only if `ops` is async. A
    // group goes to the next device that is free, and to another one if that fails.
    struct conv_backend *const *backends;
    int device_count;
    const char (*device_names)[16];
    // For each entry of `backends` that is NULL: the device is used once it is open. Until then the
    // fallback, which is required, does the work.
    struct conv_async_open *const *openings;
    // Takes over images that all devices of `ops`, which is async, fail to process; NULL: such
    // images fail.
    const struct conv_device_ops *fallback_ops;
    struct conv_backend *fallback;
    int filter_count;
    enum conv_alpha_mode alpha;
    // Computed instead of filters; `ops` is then a backend that is not async and has no device
    // open, and output_type is CONV_OUTPUT_F32. NULL: images are filtered.
    const struct conv_layer_stage *layer;

    // --- threads and memory
    int jobs;           // workers, at least 1
    int streams;        // streams of each device of an async backend at first, at least 1
    int most_streams;   // that each may get while groups wait for it; no more than `streams`: none
    size_t group_bytes; // staging bytes that make a group full
    struct conv_division memory; // conv_budget_set

    // --- images
    uint64_t max_pixels;
    bool maps_inputs; // files that take much of the memory are mapped: conv_file_read.map_from
    struct conv_codec_config codec;
    // NULL: the one that the output's name stands for, or else the input's. Otherwise outputs in a
    // folder are named after it: a.jpg becomes a.png.
    const struct conv_format *output_format;
    // CONV_OUTPUT_F32: the backends were opened with `floats`, and outputs are .npy files.
    enum conv_output_type output_type;
    struct conv_blend blend;              // with CONV_OUTPUT_F32 only `gray`
    enum conv_coder decode_on, encode_on; // CONV_CODER_GPU: the CPU does what the device cannot
    enum conv_strip strip;                // metadata that are not carried over
    bool reproducible;                    // a device encodes only to the bytes of the CPU
    bool auto_orient;                     // turn images upright, by Exif, before they are filtered
    bool first_frame; // of an animated PNG the first image is taken; else it is refused

    // --- outputs, and images that need none
    struct conv_sink *sink;   // NULL: there are no outputs, and no_save is set
    uint64_t expected_images; // lower bound on the images of the source; 0: unknown
    // Images are skipped whose output exists, is not older than the input, or is noted by the
    // sink's journal.
    bool skip_existing, update, resume;
    bool dry_run; // images are planned, nothing is read
    bool no_save; // the sink is asked about outputs, but nothing is written

    // --- the run
    bool fail_fast;           // the first image that fails sets *stop
    struct conv_trace *trace; // gets a track for each worker and three for each stream; may be NULL
    // Non-zero: no new image is begun. Positive: those in flight are cancelled, too, unless they
    // are finished within a moment. The run itself sets -1. Must not be NULL.
    atomic_int *stop;
    // NULL: the run joins all its threads, also after a signal, which takes until the images in
    // flight are cancelled. Otherwise it waits only for a moment, and sets this to true if a thread
    // was still inside a long computation. The backends must then stay open, and the process has to
    // end soon.
    bool *left_threads;
    // The run does not free streams, device memory and staging memory, because the process is about
    // to end. The backends must stay open, too.
    bool leaves_memory;

    // What the source has handed out so far, without repeated images and copies; may be NULL.
    struct conv_report_total *found;

    // Called some thirty times a second by the thread that runs the pipeline, which otherwise
    // waits; the run continues meanwhile. NULL: not called.
    void (*look)(void *user);
    void *look_user;
};

// Runs every image of the source and hands a record of each to the report. An image that fails is
// reported and does not end the run. Failures of the run itself: CONV_ERR_MEMORY, CONV_ERR_DEVICE,
// CONV_ERR_IO (no thread could be started). *config, the source, the sink and the report belong to
// this run until it returns; several runs may be in progress in one process.
enum conv_status conv_pipeline_run(const struct conv_pipeline_config *config,
                                   struct conv_source *source, struct conv_report *report,
                                   struct conv_err *err);

// Once the sink is finished: members of archives that were written are done. Those of the others
// have failed because of `failure`; if that is NULL, or a stop, they count as not begun. `walk` may
// be NULL.
void conv_pipeline_settle(struct conv_report *report, struct conv_walk *walk,
                          const struct conv_err *failure);

// --- where the user does not say -----------------------------------------------------------------

// Streams of a device at the beginning of a run and at most, and the staging bytes of a group, for
// devices that decode or do not.
int conv_pipeline_streams(bool decodes);
int conv_pipeline_most_streams(bool decodes);
size_t conv_pipeline_group_bytes(bool decodes);
