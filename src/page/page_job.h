// SPDX-License-Identifier: MIT
// A page that is being made: its file, opened before any work is done, and its text about machine,
// devices and filters.
#ifndef CONV_PAGE_PAGE_JOB_H
#define CONV_PAGE_PAGE_JOB_H

#include "base/limits.h"
#include "engine/engine.h"
#include "page/page.h"

#define CONV_PAGE_JOB_MOST_FACTS (24 + CONV_BACKEND_MOST_DEVICES)

struct conv_page_job {          // {0}: no page
    const char *path, *command; // of --html; the command line as typed
    FILE *file;                 // NULL: no page
    struct conv_page page;
    struct conv_page_fact facts[CONV_PAGE_JOB_MOST_FACTS];
    struct conv_page_filter filters[CONV_FILTER_MAX_CHAIN];
    struct conv_page_pair pairs[CONV_SAMPLES_MOST_PAIRS];
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
void conv_page_job_title(struct conv_page_job *job, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Adds a line such as "processor: ..." to the page; lines beyond the most are dropped.
void conv_page_job_fact(struct conv_page_job *job, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Adds the lines about filters, border, devices, kernels and machine.
void conv_page_job_describe(struct conv_page_job *job, const struct conv_page_setting *setting);

// Add parts of these lines, for a page without filters: a device, "cuda:0, NVIDIA H200"; host,
// processor, memory and system.
void conv_page_job_device(struct conv_page_job *job, const struct conv_device_ops *ops,
                          const char *name, int ordinal);
void conv_page_job_machine(struct conv_page_job *job, const struct conv_limits *limits);

// Reads the images of the samples again and crops them for the page. An image that cannot be read
// any more is skipped.
void conv_page_job_take_pairs(struct conv_page_job *job, const struct conv_samples *samples);

// Writes the page around `record` and closes the file. `record` NULL: out of memory.
// CONV_ERR_MEMORY, CONV_ERR_IO.
enum conv_status conv_page_job_finish(struct conv_page_job *job, const char *record,
                                      struct conv_err *err);

void conv_page_job_close(struct conv_page_job *job); // fine before opening and after finishing

#endif
