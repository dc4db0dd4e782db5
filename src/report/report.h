// SPDX-License-Identifier: MIT
// What the user is told: failures and the closing line on stderr, progress on a terminal, JSON
// Lines where asked for. The pipeline hands in one record an image; calls must come one at a time.
#ifndef CONV_REPORT_REPORT_H
#define CONV_REPORT_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "report/overlap.h"
#include "report/page_samples.h"

// The stages of an image's way, in order. copy and kernel times of a group are shared out to its
// images by their bytes.
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
const char *conv_report_stage_name(enum conv_stage stage);

enum conv_outcome {
    CONV_OUTCOME_DONE,
    CONV_OUTCOME_FAILED,
    CONV_OUTCOME_SKIPPED,
    CONV_OUTCOME_PLANNED, // --dry-run: would be filtered
};

// One image. Strings belong to the caller and live until the call returns.
struct conv_record {
    const char *input, *output; // output NULL: not known
    enum conv_outcome outcome;
    const char *reason;                 // why failed, skipped or planned; NULL when done
    const struct conv_err *err;         // with the hint that belongs to `reason`, or NULL
    bool notable;                       // skipped, and the user hears of it without --verbose
    int width, height, channels, depth; // 0 where unknown
    size_t bytes_in, bytes_out;
    bool decoded_on_device, encoded_on_device;
    uint64_t ns[CONV_STAGE_COUNT];
};

#define CONV_REPORT_MOST_DEVICES 64

// What a device did, over all its streams.
struct conv_device_totals {
    uint64_t images, bytes;            // filtered; bytes of their planes
    struct conv_overlap_times overlap; // of its engines
};

struct conv_totals {
    uint64_t done, failed, skipped, planned;
    uint64_t pixels, bytes_in, bytes_out; // of done images
    uint64_t decoded_on_device, encoded_on_device;
    uint64_t ns[CONV_STAGE_COUNT]; // of done images, summed over workers and streams
    // One a device, and behind them what a spare backend did (without overlap).
    struct conv_device_totals devices[CONV_REPORT_MOST_DEVICES + 1];
    double seconds;     // wall clock from open to close
    double cpu_seconds; // of all cores, from open to close
};

enum conv_when { CONV_AUTO, CONV_ALWAYS, CONV_NEVER };

struct conv_report_config {
    bool quiet, verbose, dry_run;
    bool single;           // one image only: if all is well, nothing is said about it
    bool json;             // JSON Lines on stdout
    const char *json_path; // JSON Lines into this file, or NULL
    enum conv_when progress;
    // Writes an error's text with its hint in the user's words, and returns `text`. NULL: hints are
    // not shown.
    char *(*explain)(char *text, size_t size, const struct conv_err *err);
    // For the begin record and the closing line:
    const char *filters; // "emboss,blur"
    const char *device;  // "cuda:0", "cpu", "cuda:0,cuda:1"
    bool device_async;   // groups are filtered by streams of a device, else images by workers
    int device_count;    // as many as names in `device`; 0 if they are not async
    const char *spare;   // "cpu": what does the work that devices fail to do; may be NULL
    int jobs, streams;   // streams: of each device
    struct conv_page_samples *kept; // gets what a page shows of single images, or NULL
    uint64_t start_ns;              // when the run began, on conv_clock_ns's clock; 0: now
};

// What follows from the totals: the one source of the JSON summary, the page and the tables.
struct conv_figures {
    double images_per_s, mpix_per_s;
    // Shares of 0 to 1. Of a worker's stage: of the time that the workers had. Of a device's: of
    // the run, with at least one stream at it; of several devices the mean.
    double busy[CONV_STAGE_COUNT];
    double waiting; // of the workers' time: in no stage
    // Of the run: engines of a device busy at once (of several devices the mean); -1: none.
    double overlap_two, overlap_three;
    int cores; // that this process may use
    // CPU time of this process, user and system, over seconds * cores; what other processes use
    // counts as unused. 0 to 1.
    double cpu_utilisation;
    const char *limit;      // the stage that holds everything up; NULL: nothing was done
    const char *next_limit; // the one that would, were that one faster
};

void conv_report_figures(const struct conv_report_config *config, const struct conv_totals *totals,
                         struct conv_figures *figures);

struct conv_report;

enum conv_status conv_report_open(struct conv_report **report,
                                  const struct conv_report_config *config, struct conv_err *err);

// Counts the record and says what has to be said. One caller at a time.
void conv_report_file(struct conv_report *report, const struct conv_record *given);

// A group, or a part of one, has been through a stream: copied in from `start` on (as conv_clock_ns
// counts), filtered, copied out, without a pause.
struct conv_report_work {
    int device;     // that did it; device_count: the spare backend
    int engines_of; // the device whose stream it was: what a spare backend did counts as filtering
    int images;     // that began in it
    size_t bytes;
    uint64_t start, ns[CONV_ENGINE_COUNT];
};

// One caller at a time, conv_report_file's calls included.
void conv_report_group(struct conv_report *report, const struct conv_report_work *work);

// Of the i-th device in config->device, the spare one behind the last: its name and its share of
// all that was filtered, 0 to 1. False: there is no such device, or it is a spare one that did
// nothing.
bool conv_report_device(const struct conv_report_config *config, const struct conv_totals *totals,
                        int i, char name[16], double *share);

// A warning on stderr, in one line: something went wrong and was made good. As conv_report_file.
void conv_report_warn(struct conv_report *report, const char *text);

// What has been counted so far, seconds included.
void conv_report_totals(const struct conv_report *report, struct conv_totals *totals);

// What a signal left undone: the closing line says so instead of figures.
struct conv_report_rest {
    bool known;         // `images` is all of it
    uint64_t images;    // neither done, failed nor skipped
    const char *advice; // how to go on, or NULL
};

// To be called before conv_report_close; `rest` lives until then.
void conv_report_interrupted(struct conv_report *report, const struct conv_report_rest *rest);

// Writes the JSON summary and the closing line, fills *totals (may be NULL), frees the report.
// `exit_code` goes into the summary. CONV_ERR_IO if the JSON could not be written whole.
enum conv_status conv_report_close(struct conv_report *report, int exit_code,
                                   struct conv_totals *totals, struct conv_err *err);

// Prints a path with control characters and backslashes escaped, so that a file name can neither
// break a line nor reach the terminal.
void conv_report_print_path(FILE *stream, const char *path);

// A message on stderr in one line, "conv: " before it; escaped as above, whatever the arguments
// are.
void conv_report_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
