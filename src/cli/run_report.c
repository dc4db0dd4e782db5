// SPDX-License-Identifier: MIT
// --json, --report, --trace and --html of one run.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/run.h"
#include "cli/signals.h"
#include "report/json.h"

// --- opening -------------------------------------------------------------------------------------

enum conv_status conv_run_report_open_page(struct conv_page *page,
                                           const struct conv_report_options *options,
                                           struct conv_err *err)
{
    *page = (struct conv_page){
        .path = options->html_path,
        .command = options->command_line,
        .stall = conv_signals_stall(),
    };
    if (!options->html_path)
        return CONV_OK;
    page->file = fopen(options->html_path, "we");
    if (page->file)
        return CONV_OK;
    conv_err_errno(err, errno, "--html %s", options->html_path);
    return err->status = CONV_ERR_USAGE;
}

enum conv_status conv_run_report_open(struct conv_run_report *report,
                                      const struct conv_options *options, struct conv_err *err)
{
    struct conv_report_config *config = &report->config;
    report->options = options;
    conv_stall_begin(conv_signals_stall()); // opening a pipe may wait
    enum conv_status status = conv_run_report_open_page(&report->page, &options->report, err);
    if (!status && (options->report.trace_path || options->report.html_path))
        status = conv_trace_open(&report->trace, options->report.trace_path, report->page.file,
                                 conv_signals_stall(), err);
    config->quiet = options->report.quiet;
    config->verbose = options->report.verbose;
    config->dry_run = options->outputs.dry_run;
    config->each_line = options->inputs.watch;
    config->json = options->report.json;
    config->json_path = options->report.path;
    config->explain = conv_errors_explain;
    config->filters = options->operands[0];
    config->jobs = options->machine.jobs;
    config->cores = options->machine.limits->cores;
    config->samples = report->page.file ? &report->samples : NULL;
    config->shard = (struct conv_record_shard){
        .index = options->inputs.shard.index,
        .count = options->inputs.shard.count,
        .by = options->inputs.shard.by == CONV_SHARD_BY_NAME ? "name" : "bytes",
    };
    config->stall = conv_signals_stall();
    if (!status)
        status = conv_report_open(&report->report, config, err);
    conv_stall_end(conv_signals_stall());
    return status;
}

// --- the end of the run --------------------------------------------------------------------------

// A failure that is not one image's.
static void say_failure(struct conv_run_report *report, const struct conv_err *failure)
{
    char text[CONV_ERRORS_SIZE];
    bool interrupted = report->code >= CONV_EXIT_SIGNAL;
    if (!failure->status || (interrupted && failure->status == CONV_ERR_CANCELLED))
        return;
    conv_report_warn(report->report, conv_errors_explain(text, sizeof text, failure));
    report->code = interrupted ? report->code : conv_errors_code_of(failure);
}

void conv_run_report_finish(struct conv_run_report *report, int stop, int code,
                            const struct conv_err *failure)
{
    struct conv_err err = {0};
    report->stop = stop;
    report->code = code;
    if (failure)
        say_failure(report, failure);
    report->config.streams = conv_report_most_streams(report->report); // for the page
    if (conv_trace_finish(report->trace, &err))
        say_failure(report, &err);
    report->totals = *conv_report_totals(report->report);
}

// --- the page ------------------------------------------------------------------------------------

void conv_run_report_describe_images(struct conv_run_report *report)
{
    const struct conv_totals *totals = &report->totals;
    time_t start = time(NULL) - (time_t)totals->seconds;
    char text[40];
    struct tm local;
    if (localtime_r(&start, &local) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %z", &local))
        conv_page_fact(&report->page, "started", "%s", text);
    conv_page_fact(&report->page, "images", "%g Mpix, %.4g MB read, %.4g MB written",
                   (double)(totals->pixels / 10000) / 100, (double)totals->bytes_in / 1e6,
                   report->options->outputs.no_save ? 0 : (double)totals->bytes_out / 1e6);
}

// "96 images filtered with emboss in 0.92 s, 15 failed"
static void write_title(struct conv_run_report *report, const char *verb)
{
    char failed[48] = "";
    struct conv_page *page = &report->page;
    const struct conv_totals *totals = &report->totals;
    const char *filters = report->config.filters;
    uint64_t count = report->config.dry_run ? totals->planned : totals->done;
    if (totals->failed)
        snprintf(failed, sizeof failed, ", %" PRIu64 " failed", totals->failed);
    if (report->config.dry_run)
        conv_page_title(page, "Dry run: %" PRIu64 " %s would be %s %.160s%s", count,
                        count == 1 ? "image" : "images", verb, filters, failed);
    else
        conv_page_title(page, "%s%" PRIu64 " %s %s %.160s in %.*f s%s",
                        report->stop > 0 ? "Interrupted: " : "", count,
                        count == 1 ? "image" : "images", verb, filters,
                        totals->seconds < 100 ? 2 : 0, totals->seconds, failed);
}

static void print_summary(const void *context, FILE *stream)
{
    const struct conv_run_report *report = context;
    conv_json_summary(stream, &report->config, &report->totals, report->code);
}

static enum conv_status write_page(struct conv_run_report *report, struct conv_err *err)
{
    struct conv_page *page = &report->page;
    bool dry = report->config.dry_run, layer = report->options->command == CONV_COMMAND_LAYER;
    page->kind = layer ? (dry ? "conv layer, a dry run" : "conv layer, a run")
                       : (dry ? "conv, a dry run" : "conv, a run");
    page->timelines[0].trace = report->trace;
    page->timeline_count = 1;
    page->samples = &report->samples;
    write_title(report, layer ? "passed through" : "filtered with");
    page->note = report->stop > 0 ? "A signal ended the run: this is what was done until then."
                                  : report->samples.warning;
    page->config = &report->config;
    return conv_page_finish(page, print_summary, report, err);
}

// -------------------------------------------------------------------------------------------------

int conv_run_report_end(struct conv_run_report *report)
{
    struct conv_err err = {0};
    if (report->page.file && write_page(report, &err))
        say_failure(report, &err);
    if (conv_report_summarize(report->report, report->code, &err))
        say_failure(report, &err);
    conv_report_end(report->report);
    report->report = NULL;
    return report->code;
}

void conv_run_report_close(struct conv_run_report *report)
{
    conv_page_close(&report->page);
    conv_trace_free(report->trace);
    conv_samples_free(&report->samples);
}
