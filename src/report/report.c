// SPDX-License-Identifier: MIT
#include "report/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/features.h"
#include "base/standard.h"
#include "report/held.h"
#include "report/json.h"
#include "report/samples.h"
#include "report/terminal.h"
#include "report/text.h"

struct conv_report {
    struct conv_report_config config;
    struct conv_totals totals;
    struct conv_totals seen; // with what is held; for the progress
    struct conv_held held;
    struct conv_progress progress;
    struct conv_order order; // of lines about images that are done or planned
    struct conv_overlap *overlaps[CONV_REPORT_MOST_DEVICES]; // one per device
    uint64_t start_ns;
    double start_cpu;
    bool interrupted;               // by a signal
    struct conv_report_rest rest;   // if so
    FILE *streams[2];               // of JSON Lines: stdout, the file of --report; or NULL
    struct conv_stall *stall[2];    // of their readers; NULL where there is no need
    struct conv_stall *print_stall; // the same of stdout and stderr
};

// CPU time of this process.
static double cpu_seconds(void)
{
    struct timespec used = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

void conv_report_print_path(FILE *stream, const char *path)
{
    conv_text_terminal(stream, path);
}

void conv_report_say(const char *format, ...)
{
    char text[2 * sizeof((struct conv_err *)NULL)->text]; // a path and a reason
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fputs("conv: ", stderr);
    conv_text_terminal(stderr, text);
    fputc('\n', stderr);
}

static enum conv_status open_json_file(struct conv_report *report, struct conv_err *err)
{
    const char *path = report->config.json_path;
    report->streams[1] = fopen(path, "we");
    if (report->streams[1])
        return CONV_OK;
    conv_err_errno(err, errno, "%s", path);
    return conv_err_hint(err, CONV_HINT_REPORT, 0, err->status = CONV_ERR_USAGE);
}

static void free_report(struct conv_report *report)
{
    for (int d = 0; d < report->config.device_count; d++)
        conv_overlap_close(report->overlaps[d]);
    free(report);
}

enum conv_status conv_report_open(struct conv_report **out, const struct conv_report_config *config,
                                  struct conv_err *err)
{
    struct conv_report *report = calloc(1, sizeof *report);
    if (!report)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the report");
    report->config = *config;
    if (config->json)
        report->streams[0] = stdout;
    enum conv_status status = config->json_path ? open_json_file(report, err) : CONV_OK;
    for (int d = 0; d < config->device_count && !status; d++)
        status = conv_overlap_open(&report->overlaps[d], err);
    if (status) {
        if (report->streams[1])
            fclose(report->streams[1]);
        free_report(report);
        return status;
    }
    for (int i = 0; i < 2; i++) {
        if (!report->streams[i])
            continue;
        report->stall[i] = conv_stall_of(config->stall, report->streams[i]);
        if (config->each_line)
            (void)setvbuf(report->streams[i], NULL, _IOLBF, 0);
        conv_json_begin(report->streams[i], config);
        if (report->streams[i] != stdout)
            fflush(report->streams[i]); // so that a killed run's report can be identified
    }
    report->print_stall = conv_stall_of(config->stall, stdout);
    if (!report->print_stall)
        report->print_stall = conv_stall_of(config->stall, stderr);
    // One image has no progress, and lines about planned images show it.
    bool shows = config->progress == CONV_ALWAYS ||
                 (!config->single && !config->dry_run && !config->listener);
    conv_progress_init(&report->progress,
                       shows && conv_progress_is_wanted(config->progress, config->quiet),
                       config->total);
    report->start_ns = config->start_ns ? config->start_ns : conv_clock_ns();
    report->start_cpu = config->start_ns ? 0 : cpu_seconds();
    *out = report;
    return CONV_OK;
}

// "LEAD INPUT -> OUTPUT (REASON)"
static void print_event(FILE *stream, const char *lead, const struct conv_record *record)
{
    fprintf(stream, "%s ", lead);
    conv_text_terminal(stream, record->input);
    if (record->output) {
        fputs(" -> ", stream);
        conv_text_terminal(stream, record->output);
    }
    if (record->reason) {
        fputs(" (", stream);
        conv_text_terminal(stream, record->reason);
        fputc(')', stream);
    }
    fputc('\n', stream);
}

// The stream for lines about images that are done or planned.
static FILE *order_stream(const struct conv_report_config *config)
{
    return config->dry_run && !config->json && !config->quiet ? stdout : stderr;
}

// Takes the turn of the record and prints the event, if its turn has come; `lead` NULL: nothing.
static void print_in_turn(struct conv_report *report, FILE *stream, const char *lead,
                          const struct conv_record *record)
{
    char *text = NULL;
    size_t size;
    FILE *memory = lead && record->number ? open_memstream(&text, &size) : NULL;
    if (memory) {
        print_event(memory, lead, record);
        fclose(memory);
    }
    if (lead && !text) // also without memory
        print_event(stream, lead, record);
    if (record->number && (report->config.verbose || report->config.dry_run))
        conv_order_add(&report->order, stream, record->number, text);
}

// Messages about one image, if any are due.
static void print_file(struct conv_report *report, const struct conv_record *record)
{
    const struct conv_report_config *config = &report->config;
    bool plain = config->dry_run || config->verbose || config->quiet; // print all or none of these
    bool reported = record->outcome == CONV_OUTCOME_FAILED || (record->notable && !plain);
    if (!reported && !config->dry_run && !config->verbose && !report->progress.active)
        return;
    conv_stall_begin(report->print_stall);
    if (reported) {
        conv_progress_clear(&report->progress);
        fputs("conv: ", stderr);
        conv_text_terminal(stderr, record->title ? record->title : record->input);
        fputs(": ", stderr);
        conv_text_terminal(stderr, record->reason);
        fputc('\n', stderr);
        print_in_turn(report, order_stream(config), NULL, record);
    } else if (config->dry_run && !config->json && !config->quiet) {
        print_in_turn(report, stdout,
                      record->outcome == CONV_OUTCOME_PLANNED ? "would filter" : "would skip",
                      record);
    } else if (config->verbose) {
        conv_progress_clear(&report->progress);
        print_in_turn(report, stderr,
                      record->outcome == CONV_OUTCOME_SKIPPED ? "conv: skipped" : "conv: done",
                      record);
    }
    conv_progress_update(&report->progress, &report->seen);
    conv_stall_end(report->print_stall);
}

static void publish(struct conv_report *report, const struct conv_record *record)
{
    const struct conv_report_config *config = &report->config;
    if (config->samples)
        conv_samples_add(config->samples, record);
    for (int i = 0; i < 2; i++)
        if (report->streams[i]) {
            conv_stall_begin(report->stall[i]);
            conv_json_file(report->streams[i], record);
            conv_stall_end(report->stall[i]);
        }
    if (config->listener)
        config->listener(config->listener_user, &report->totals, record);
    else
        print_file(report, record);
}

// True if something shows each record.
static bool shows_records(const struct conv_report_config *config)
{
    return config->samples || config->json || config->json_path || config->listener ||
           config->verbose;
}

void conv_report_file(struct conv_report *report, const struct conv_record *given)
{
    const struct conv_report_config *config = &report->config;
    struct conv_record explained = *given;
    const struct conv_record *record = &explained;
    bool is_kept = given->outcome == CONV_OUTCOME_DONE || given->outcome == CONV_OUTCOME_COPIED;
    char text[sizeof record->err->text + 128];
    uint64_t elapsed = conv_clock_ns() - report->start_ns;
    conv_held_count(&report->seen, record, elapsed);
    if (is_kept && given->archive &&
        conv_held_add(&report->held, record, elapsed, shows_records(config))) {
        conv_report_tick(report);
        return;
    }
    if (config->explain && given->err)
        explained.reason = config->explain(text, sizeof text, given->err);
    conv_held_count(&report->totals, record, elapsed);
    publish(report, record);
}

void conv_report_pass(struct conv_report *report, uint64_t number)
{
    if (number && (report->config.verbose || report->config.dry_run))
        conv_order_add(&report->order, order_stream(&report->config), number, NULL);
}

int conv_report_held(const struct conv_report *report)
{
    return report->held.first ? report->held.first->archive : 0;
}

static void publish_held(void *user, struct conv_record *record)
{
    publish(user, record);
}

static void forget_held(void *user, struct conv_record *record)
{
    (void)user;
    (void)record;
}

struct loss {
    struct conv_report *report;
    const char *reason;
};

static void publish_lost(void *user, struct conv_record *record)
{
    struct loss *loss = user;
    record->outcome = CONV_OUTCOME_FAILED;
    record->reason = loss->reason;
    for (int i = 0; i < 2; i++)
        if (loss->report->streams[i])
            conv_json_file(loss->report->streams[i], record);
    if (loss->report->config.samples)
        conv_samples_add(loss->report->config.samples, record);
}

void conv_report_settle(struct conv_report *report, int number, enum conv_report_fate fate,
                        const char *reason)
{
    struct conv_held_archive *archive = conv_held_take(&report->held, number);
    struct loss loss = {report, reason};
    if (!archive)
        return;
    struct conv_totals *totals = &archive->totals;
    if (fate == CONV_REPORT_LOST)
        *totals = (struct conv_totals){.failed = totals->done + totals->copied};
    if (fate != CONV_REPORT_FORGOTTEN)
        conv_held_sum(&report->totals, totals);
    if (fate == CONV_REPORT_KEPT)
        conv_held_release(archive, publish_held, report);
    else if (fate == CONV_REPORT_LOST)
        conv_held_release(archive, publish_lost, &loss);
    else
        conv_held_release(archive, forget_held, NULL);
}

bool conv_report_has_progress(const struct conv_report *report)
{
    return report->progress.active;
}

void conv_report_tick(struct conv_report *report)
{
    conv_stall_begin(report->print_stall);
    conv_progress_update(&report->progress, &report->seen);
    conv_stall_end(report->print_stall);
}

void conv_report_warn(struct conv_report *report, const char *text)
{
    if (report->config.samples)
        conv_samples_warn(report->config.samples, text);
    if (report->config.listener)
        return;
    conv_stall_begin(report->print_stall);
    conv_progress_clear(&report->progress);
    conv_report_say("%s", text);
    conv_stall_end(report->print_stall);
}

void conv_report_group(struct conv_report *report, const struct conv_report_work *work)
{
    struct conv_device_totals *did = &report->totals.devices[work->device];
    did->images += (uint64_t)work->images;
    did->bytes += work->bytes;
    uint64_t start = work->start;
    for (int e = 0; e < CONV_ENGINE_COUNT; e++) {
        conv_overlap_add(report->overlaps[work->engines_of], (enum conv_engine)e, start,
                         start + work->ns[e]);
        start += work->ns[e];
    }
}

void conv_report_totals(const struct conv_report *report, struct conv_totals *totals)
{
    *totals = report->totals;
    totals->seconds = (double)(conv_clock_ns() - report->start_ns) / 1e9;
    totals->cpu_seconds = cpu_seconds() - report->start_cpu;
    for (int d = 0; d < report->config.device_count; d++)
        conv_overlap_read(report->overlaps[d], &totals->devices[d].overlap);
}

void conv_report_finish(struct conv_report *report, struct conv_totals *totals)
{
    conv_report_totals(report, &report->totals);
    if (totals)
        *totals = report->totals;
}

void conv_report_streams(struct conv_report *report, int streams)
{
    if (report->config.streams < streams)
        report->config.streams = streams;
}

int conv_report_most_streams(const struct conv_report *report)
{
    return report->config.streams;
}

void conv_report_listing(struct conv_report *report, const struct conv_record_listing *listing)
{
    report->totals.listing = *listing;
}

void conv_report_interrupted(struct conv_report *report, const struct conv_report_rest *rest)
{
    report->interrupted = true;
    report->rest = *rest;
}

void conv_report_passed(struct conv_report *report, const struct conv_record_passed *passed)
{
    report->totals.passed = *passed;
}

enum conv_status conv_report_summarize(struct conv_report *report, int exit_code,
                                       struct conv_totals *totals, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    if (report->totals.seconds == 0)
        conv_report_finish(report, NULL);
    conv_stall_begin(report->print_stall);
    conv_progress_clear(&report->progress);
    conv_order_flush(&report->order, order_stream(&report->config)); // a signal leaves gaps
    conv_stall_end(report->print_stall);
    for (int i = 0; i < 2; i++) {
        FILE *stream = report->streams[i];
        if (!stream)
            continue;
        conv_stall_begin(report->stall[i]);
        conv_json_summary(stream, &report->config, &report->totals, exit_code);
        bool bad = ferror(stream) != 0;
        errno = 0;
        bad |= stream != stdout && fclose(stream) != 0;
        conv_stall_end(report->stall[i]);
        if (stream == stdout)
            continue;
        if (bad && errno)
            status = conv_err_errno(err, errno, "cannot write the report to %s",
                                    report->config.json_path);
        else if (bad) // an earlier write failed
            status = conv_err_set(err, CONV_ERR_IO, "cannot write the report to %s",
                                  report->config.json_path);
    }
    if (!report->config.listener) {
        // A dry run prints its list on stdout.
        conv_stall_begin(report->print_stall);
        enum conv_status flushed = conv_standard_flush(status ? NULL : err);
        conv_stall_end(report->print_stall);
        status = status ? status : flushed;
    }
    if (totals)
        *totals = report->totals;
    return status;
}

void conv_report_end(struct conv_report *report)
{
    if (!report->config.listener && !report->config.quiet) {
        conv_stall_begin(report->print_stall);
        conv_closing_print(&report->config, &report->totals,
                           report->interrupted ? &report->rest : NULL);
        conv_stall_end(report->print_stall);
    }
    for (int archive; (archive = conv_report_held(report));)
        conv_report_settle(report, archive, CONV_REPORT_FORGOTTEN, NULL);
    free_report(report);
}

enum conv_status conv_report_close(struct conv_report *report, int exit_code,
                                   struct conv_totals *totals, struct conv_err *err)
{
    enum conv_status status = conv_report_summarize(report, exit_code, totals, err);
    conv_report_end(report);
    return status;
}
