// SPDX-License-Identifier: MIT
// --trace and --html on the command line's side: opens the files before anything is done, gathers
// what a page says about machine, device and filters, and writes it at the end.
#ifndef CONV_CLI_RUN_PAGE_H
#define CONV_CLI_RUN_PAGE_H

#include "cli/device.h"
#include "cli/options.h"
#include "page/page.h"

#define CONV_PAGE_MOST_FACTS (24 + CONV_BACKEND_MOST_DEVICES)

struct conv_page_job {
    const struct conv_options *options;
    FILE *file; // of --html; NULL: no page is wanted
    struct conv_page page;
    struct conv_page_fact facts[CONV_PAGE_MOST_FACTS];
    struct conv_page_filter filters[CONV_FILTER_MAX_CHAIN];
    struct conv_page_pair pairs[CONV_SAMPLES_MOST_PAIRS];
};

// Opens the file of --html, if that is given.
enum conv_status conv_page_open(struct conv_page_job *job, const struct conv_options *options,
                                struct conv_err *err);
void conv_page_close(struct conv_page_job *job); // never opened is fine

// "Processor: ..."
void conv_page_fact(struct conv_page_job *job, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// What is told of every run and benchmark: filters, border, device and machine. `filters` must live
// until the page is written.
void conv_page_describe(struct conv_page_job *job, const struct conv_device *device,
                        const struct conv_filter *filters, int filter_count);

// Makes the pieces of images that the page shows. What cannot be read any more is left out.
void conv_page_take_pairs(struct conv_page_job *job, const struct conv_samples *kept);

// Writes the page with `record` as its record; NULL: there was no memory for that. CONV_ERR_MEMORY,
// CONV_ERR_IO.
enum conv_status conv_page_finish(struct conv_page_job *job, const char *record,
                                  struct conv_err *err);

#endif
