// SPDX-License-Identifier: MIT
// --html: one page, complete in itself, about a run or a benchmark. It is a viewer, the files under
// src/page/web/, and one JSON object that it shows: the command's record, and what that has not:
// machine, filters, timelines, failures, the slowest images, images before and after.
#pragma once

#include "base/limits.h"
#include "engine/engine.h"
#include "report/record.h"
#include "report/samples.h"
#include "report/trace.h"

// A part of an image before and after filtering, as PNG files.
struct conv_page_pair {
    const char *name;
    int width, height; // of the image
    int crop_width, crop_height, crop_x, crop_y;
    uint8_t *before, *after;
    size_t before_size, after_size;
};

// The timeline of threads and engines in one run.
struct conv_page_timeline {
    char title[48]; // "4 streams"; "": the page has one timeline
    const struct conv_trace *trace;
};

#define CONV_PAGE_MOST_TIMELINES 2

// A page that is being made. Its file is opened before any work is done.
struct conv_page {              // {0}: no page
    const char *path, *command; // of --html; the command line as typed
    FILE *file;                 // NULL: no page
    struct conv_stall *stall;   // counts waits for the reader of `file`; may be NULL
    const char *kind;           // "conv bench streams", ...
    char title[256];            // what happened: "96 images filtered with emboss in 0.92 s"
    const char *note;           // "ended by a signal", a warning, or NULL
    FILE *facts;                // conv_page_fact: JSON in memory, NULL before the first
    char *facts_text;
    size_t facts_size;
    const struct conv_filter *filters;
    int filter_count;

    // Of a run; config NULL: the page is about something else.
    const struct conv_report_config *config;
    const struct conv_samples *samples;
    struct conv_page_pair pairs[CONV_SAMPLES_MOST_PAIRS];
    int pair_count;

    struct conv_page_timeline timelines[CONV_PAGE_MOST_TIMELINES]; // on one scale of time
    int timeline_count;
};

// What every page describes.
struct conv_page_setting {
    const struct conv_filter *filters; // must live until the page is written
    int filter_count;
    enum conv_border border;
    int border_value;
    // Devices that filtered; NULL names: not described.
    const char (*names)[16];
    const int *ordinals;
    struct conv_backend *const *backends; // an entry is NULL if the device did not open in time
    int device_count;
    const struct conv_device_ops *ops;
    // The fallback, which filtered if no device opened.
    const struct conv_device_ops *fallback_ops;
    const struct conv_backend *fallback;
    const struct conv_limits *limits; // of this process
};

// Says what happened, for the heading: "96 images filtered with emboss in 0.92 s".
void conv_page_title(struct conv_page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Adds a line such as "processor: ..." to the page.
void conv_page_fact(struct conv_page *page, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Adds the lines about filters, border, devices, kernels and machine.
void conv_page_describe(struct conv_page *page, const struct conv_page_setting *setting);

// Add parts of these lines, for a page without filters: a device, "cuda:0, NVIDIA H200"; host,
// processor, memory and system.
void conv_page_device(struct conv_page *page, const struct conv_device_ops *ops, const char *name,
                      int ordinal);
void conv_page_machine(struct conv_page *page, const struct conv_limits *limits);

// Reads the images of the samples again and crops them for the page. An image that cannot be read
// any more is skipped. page_crops.c
void conv_page_take_pairs(struct conv_page *page, const struct conv_samples *samples);

// Writes the page around what `record` prints, a JSON value, and closes the file. CONV_ERR_MEMORY,
// CONV_ERR_IO.
enum conv_status conv_page_finish(struct conv_page *page,
                                  void (*record)(const void *context, FILE *stream),
                                  const void *context, struct conv_err *err);

void conv_page_close(struct conv_page *page); // fine before opening and after finishing
