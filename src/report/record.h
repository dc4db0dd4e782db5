// SPDX-License-Identifier: MIT
// The data of reports about a run: one record per image, the totals, the settings that reports
// repeat, and the figures that are derived from them.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/standard.h"

// When something is shown; CONV_AUTO: if it is shown on a terminal.
enum conv_when { CONV_AUTO, CONV_ALWAYS, CONV_NEVER };

// The stages that an image passes, in order.
enum conv_stage {
    CONV_STAGE_READ,
    CONV_STAGE_DECODE,
    CONV_STAGE_COPY_IN,
    CONV_STAGE_KERNEL,
    CONV_STAGE_COPY_OUT,
    CONV_STAGE_ENCODE,
    CONV_STAGE_WRITE,
    CONV_STAGE_COUNT,
};

// "read", "decode", "copy_in", ...
const char *conv_record_stage_name(enum conv_stage stage);

// The engines of a device.
enum conv_engine {
    CONV_ENGINE_COPY_IN,
    CONV_ENGINE_KERNEL,
    CONV_ENGINE_COPY_OUT,
    CONV_ENGINE_COUNT
};

struct conv_overlap_times {
    uint64_t engine[CONV_ENGINE_COUNT]; // ns with work of at least one stream
    uint64_t two, three;                // ns with at least two, with all three busy
};

enum conv_outcome {
    CONV_OUTCOME_DONE,
    CONV_OUTCOME_FAILED,
    CONV_OUTCOME_SKIPPED,
    CONV_OUTCOME_PLANNED, // --dry-run: would be filtered
    CONV_OUTCOME_COPIED,  // not an image: it was copied to the output
};

// One image. The strings belong to the caller.
struct conv_record {
    uint64_t number;            // in the order of the source, from 1 without gaps; 0: there is none
    const char *input, *output; // output NULL: unknown
    const char *title;          // what messages call the input; NULL: `input`
    int archive;                // done or copied only once this archive is complete; 0: none
    bool are_files;             // input and output can be read by these names
    enum conv_outcome outcome;
    const char *reason;                 // why failed, skipped or planned; when done a note or NULL
    const struct conv_err *err;         // with the hint that belongs to `reason`, or NULL
    bool is_copy;                       // not an image: it is or would be copied
    bool notable;                       // the reason is printed even without --verbose
    bool replaced;                      // a file that had the output's name
    int width, height, channels, depth; // 0 where unknown
    size_t bytes_in, bytes_out;
    bool decoded_on_device, encoded_on_device;
    // The times of a group's copies and kernels are divided among its images by their bytes.
    uint64_t ns[CONV_STAGE_COUNT];
};

#define CONV_REPORT_MOST_DEVICES 64

// What one device did, over all its streams.
struct conv_device_totals {
    uint64_t images, bytes;            // filtered; bytes of their planes
    struct conv_overlap_times overlap; // of its engines
};

// The part of the images that a run of a larger job processes.
struct conv_record_shard {
    int index, count; // 0 <= index < count; count 0: none
    const char *by;   // "bytes", "name"
};

// All images of the job of which the shard is a part; equal in all runs that saw the same images.
struct conv_record_listing {
    uint64_t images;
    char digest[33]; // of the names, hexadecimal; "" if it is unknown
};

// What the source passed over.
struct conv_record_passed {
    uint64_t ignored;  // files and folders of other programs
    uint64_t images;   // of formats that are not read
    char formats[192]; // these formats, with commas between them
    uint64_t folders;  // not entered
};

struct conv_totals {
    union {
        uint64_t outcomes[CONV_OUTCOME_COPIED + 1];
        struct {
            uint64_t done, failed, skipped, planned, copied;
        };
    };
    uint64_t replaced; // files, by outputs
    struct conv_record_passed passed;
    uint64_t pixels, bytes_in, bytes_out; // of done images
    uint64_t decoded_on_device, encoded_on_device;
    uint64_t ns[CONV_STAGE_COUNT]; // of done images, summed over workers and streams
    // One per device; the entry after the last is the fallback backend's (without overlap).
    struct conv_device_totals devices[CONV_REPORT_MOST_DEVICES + 1];
    double seconds; // wall clock from open to close
    // Of that, before the first stage of an image, or spent by all images in waiting for a device
    // that starts.
    double start_seconds;
    double cpu_seconds; // of all cores, from open to close
    struct conv_record_listing listing;
};

// How many images a run will have, counted while it lasts.
struct conv_report_total {
    atomic_uint_fast64_t images; // so far
    atomic_bool is_complete;
};

struct conv_report_config {
    // Gets each record, with the totals so far; nothing is printed then. One call at a time, from
    // any thread. NULL: none.
    void (*listener)(void *user, const struct conv_totals *totals,
                     const struct conv_record *record);
    void *listener_user;
    bool quiet, verbose, dry_run;
    // The run has no foreseeable end: JSON Lines leave the program one by one, and of an input that
    // comes again the last version decides whether it counts as failed.
    bool each_line;
    bool single;           // one image only: without a failure nothing is printed about it
    bool json;             // JSON Lines on stdout
    const char *json_path; // JSON Lines into this file, or NULL
    enum conv_when progress;
    const struct conv_report_total *total; // for the progress; NULL: unknown
    // Writes an error's text with its hint in the user's words and returns `text`. NULL: hints are
    // not shown.
    char *(*explain)(char *text, size_t size, const struct conv_err *err);
    // For the begin record and the closing line:
    const char *filters; // "emboss,blur"
    const char *device;  // "cuda:0", "cpu", "cuda:0,cuda:1"
    const char *where;   // " -> embossed/", " replaced", ""
    bool device_async;   // streams of devices filter; false: the workers do
    int device_count;    // of the names in `device`; 0 unless device_async
    struct conv_record_shard shard;
    const char *fallback;         // "cpu": takes over from devices that fail; may be NULL
    int jobs, streams;            // streams: per device
    int cores;                    // that this process may use, at least 1
    struct conv_samples *samples; // receives what a page shows of single images, or NULL
    uint64_t start_ns;            // when the run began, on conv_clock_ns's clock; 0: now
    struct conv_stall *stall;     // counts waits for readers of the output; may be NULL
};

// --- figures -------------------------------------------------------------------------------------

// Rates, shares, the stage that limits the run. The one source of the closing line, the JSON
// summary, the page and the table of streams.
struct conv_figures {
    double images_per_s, mpix_per_s;
    // Shares of 0 to 1. A worker's stage: of the workers' time. A device's stage: of the run, with
    // at least one stream in it; the mean of several devices.
    double busy[CONV_STAGE_COUNT];
    double waiting; // of the workers' time: in no stage
    // Of the run: two, three engines of a device busy at once (mean of several devices); -1: none.
    double overlap_two, overlap_three;
    int cores; // that this process may use
    // CPU time of this process, user and system, over seconds * cores. 0 to 1.
    double cpu_utilisation;
    double start_seconds; // as in the totals
    // What limits the run: a stage, "starting", "starting the GPU" or "other programs". NULL:
    // nothing was done, it took less than a second, or nothing was busy for most of the time.
    const char *limit;
    const char *next_limit; // the stage that would, if that one were faster; NULL: no stage limits
};

// Fills *figures; if the run did nothing, all rates and shares are 0.
void conv_figures_compute(const struct conv_report_config *config, const struct conv_totals *totals,
                          struct conv_figures *figures);

// Name of the i-th device in config->device (after the last: the fallback), and its share of all
// that was filtered, 0 to 1. False: no such device, or a fallback that did nothing.
bool conv_figures_device(const struct conv_report_config *config, const struct conv_totals *totals,
                         int i, char name[16], double *share);

// --- overlap -------------------------------------------------------------------------------------

// How long a device's engines (copy in, kernel, copy out) were busy, alone and together, over all
// streams: a sweep over intervals. Its memory is bounded: old intervals are counted and dropped.

struct conv_overlap;

// CONV_ERR_MEMORY; *overlap is then NULL.
enum conv_status conv_overlap_open(struct conv_overlap **overlap, struct conv_err *err);
void conv_overlap_close(struct conv_overlap *overlap); // NULL is fine

// Adds an interval of work, on one clock for all. Intervals may come in any order as long as none
// comes after more than about ten thousand that began later.
void conv_overlap_add(struct conv_overlap *overlap, enum conv_engine engine, uint64_t start,
                      uint64_t end);

// Everything added so far.
void conv_overlap_read(struct conv_overlap *overlap, struct conv_overlap_times *times);
