// SPDX-License-Identifier: MIT
// --html: one page, complete in itself, about a run or a benchmark. Its figures are those of the
// JSON record, which it also carries. The HTML, CSS and JavaScript are files under
// src/page/web/.
#ifndef CONV_PAGE_PAGE_H
#define CONV_PAGE_PAGE_H

#include "report/figures.h"
#include "report/samples.h"
#include "report/trace.h"

struct conv_page_fact {
    char label[32], value[512];
};

struct conv_page_filter {
    const char *name;
    int width, height;
    const double *coef; // row by row
    double scale, offset;
    bool magnitude; // of the gradient: this matrix and its transpose
};

// A part of an image before and after filtering, as PNG files.
struct conv_page_pair {
    const char *name;
    int width, height; // of the image
    int crop_width, crop_height, crop_x, crop_y;
    uint8_t *before, *after;
    size_t before_size, after_size;
};

// A line of `conv bench streams`.
struct conv_page_line {
    int count; // streams or workers
    struct conv_figures figures;
    double speed_up;      // over the first line
    double share_of_copy; // of the speed of copies both ways; -1: not measured
};

// Speed of copies alone, for --stage device.
struct conv_page_copies {
    double in, out, both; // GB/s; 0: not measured
    int small_count, small_streams;
    double small_one, small_many, small_group; // ms
};

// A line of `conv bench kernels`.
struct conv_page_kernel {
    const char *name, *summary;
    const char *kind; // "copy", "variant", "shape", "competitor"
    int place;        // of the ladder's places
    double ms;        // median; 0: not measured, `summary` has the reason
    double ms_min, ms_max;
    int runs;
    double gb_per_s, share_of_copy, step;
    double tflop_per_s; // 0: not shown
    double old_ms;      // of an earlier benchmark; 0: unknown
    const char *change; // since then: "faster", "slower", "same"; NULL: unknown
};

#define CONV_PAGE_MOST_PLACES 3

// All lines of one workload, in the order of the record's rows. Each place has a chart of its own.
struct conv_page_ladder {
    const struct conv_page_kernel *kernels;
    int kernel_count;
    const char *places[CONV_PAGE_MOST_PLACES];   // where kernels ran: "one core of AMD EPYC"
    double copy_gb_per_s[CONV_PAGE_MOST_PLACES]; // 0: the copy is one of the kernels
    const char *images;                          // "2 images of 300×200"
    const char *compared; // "old.json (2026-11-22, conv 0.1.0)"; NULL: with nothing
};

// The timeline of threads and engines in one run.
struct conv_page_timeline {
    char title[48]; // "4 streams"; "": the page has one timeline
    const struct conv_trace *trace;
};

#define CONV_PAGE_MOST_TIMELINES 2

struct conv_page {
    const char *kind;    // "conv bench streams", ...
    char title[256];     // what happened: "96 images filtered with emboss in 0.92 s"
    const char *command; // as typed
    const char *note;    // "ended by a signal", a warning, or NULL
    char when[32];       // "2026-11-21 14:03"
    const struct conv_page_fact *facts;
    int fact_count;
    const struct conv_page_filter *filters;
    int filter_count;

    // Of a run; config NULL: the page is about something else.
    const struct conv_report_config *config;
    const struct conv_totals *totals;
    const struct conv_samples *samples;
    const struct conv_page_pair *pairs;
    int pair_count;

    struct conv_page_timeline timelines[CONV_PAGE_MOST_TIMELINES]; // on one scale of time
    int timeline_count;

    const struct conv_page_line *lines;
    int line_count;
    bool counts_streams, lines_have_limit;
    bool device_only;                      // nothing was read, decoded or encoded
    const struct conv_page_copies *copies; // or NULL

    const struct conv_page_ladder *ladders;
    int ladder_count;

    const char *record;       // JSON; an array of objects if there are several ladders
    struct conv_stall *stall; // counts waits for the reader of `file`; may be NULL
};

// Writes the page to `file` and closes it. CONV_ERR_IO.
enum conv_status conv_page_write(const struct conv_page *page, FILE *file, const char *path,
                                 struct conv_err *err);

#endif
