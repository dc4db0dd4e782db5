// SPDX-License-Identifier: MIT
// A run over images, of filters or of a layer: from options to a run of the pipeline, its report,
// trace and page, and the settings that decide its results.
#pragma once

#include "base/digest.h"
#include "cli/device.h"
#include "cli/layer_command.h"
#include "io/files/journal.h"
#include "page/page.h"
#include "report/report.h"

// --- the run: run.c ------------------------------------------------------------------------------

// Runs the pipeline over the source with the options' settings. `sink` may be NULL if nothing is
// saved; `trace` may be NULL. `expected`: lower bound on the images, 0 if unknown. *stop is the
// flag of cli/signals.h.
enum conv_status conv_run_images(const struct conv_options *options, struct conv_device *device,
                                 struct conv_source *source, struct conv_sink *sink,
                                 uint64_t expected, struct conv_report *report,
                                 struct conv_trace *trace, atomic_int *stop, struct conv_err *err);

// The main job with a layer or a bank instead of filters; NULL: with filters. Returns the exit
// code.
int conv_run_layer(const struct conv_options *options, const struct conv_layer_setup *setup);

// --- what is said about a run: run_report.c ------------------------------------------------------

struct conv_run_report { // {0} is closed
    const struct conv_options *options;
    struct conv_report_config config;
    struct conv_report *report;
    struct conv_trace *trace; // NULL: none is kept
    struct conv_page page;
    struct conv_samples samples;
    struct conv_totals totals; // once the run has finished
    int stop, code;            // the signal that ended it, or 0; the exit code
};

// Opens the file of --html, if that is given. CONV_ERR_USAGE if it cannot be opened.
enum conv_status conv_run_report_open_page(struct conv_page *page,
                                           const struct conv_report_options *options,
                                           struct conv_err *err);

// Opens page, trace and report, and prints the begin record. The caller has set the members of
// report->config that depend on device and inputs. To be closed also after a failure.
// CONV_ERR_USAGE, CONV_ERR_IO, CONV_ERR_MEMORY.
enum conv_status conv_run_report_open(struct conv_run_report *report,
                                      const struct conv_options *options, struct conv_err *err);

// Ends the run: says `failure`, which is not that of one image, if there is one; closes the trace
// and fills in the totals. `code` is the exit code so far.
void conv_run_report_finish(struct conv_run_report *report, int stop, int code,
                            const struct conv_err *failure);

// Adds the lines about the start, and about pixels and bytes, to the page.
void conv_run_report_describe_images(struct conv_run_report *report);

// After it has finished: writes the page, which the caller has described, and the summary, each
// even if the other fails. The closing line follows all messages. Returns the exit code.
int conv_run_report_end(struct conv_run_report *report);

// Frees everything, also if no run took place.
void conv_run_report_close(struct conv_run_report *report);

// --- settings that decide a result: settings.c ---------------------------------------------------

// They have one canonical text, from which the journal's digest comes. Settings that give the same
// bytes have the same text, however they were spelled, as far as the parser knows. The table of
// options says which ones decide; what has its default is not printed, so that a text stays the
// same when options are added.
struct conv_settings {
    const struct conv_options *options; // as given
    const struct conv_filter *filters;
    int filter_count;
    const struct conv_layer_setup *layer; // of conv layer, instead of filters; or NULL
    // Outputs are archives: what decides their members is printed as well.
    bool members;
    const char *const *inputs; // whose members one archive gets, in this order
    int input_count;           // 0: each archive has the members of one input
    const char *journal;       // its path; NULL: in memory
};

// One setting per line; to be freed. CONV_ERR_MEMORY.
enum conv_status conv_settings_text(char **text, const struct conv_settings *settings,
                                    struct conv_err *err);

// Opens the journal for outputs of these settings and reports damaged lines. Errors as
// conv_journal_open.
enum conv_status conv_settings_open_journal(struct conv_journal **journal,
                                            const struct conv_settings *settings, atomic_int *stop,
                                            struct conv_err *err);
