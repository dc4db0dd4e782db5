// SPDX-License-Identifier: MIT
#include "report/report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/standard.h"
#include "report/json.h"
#include "report/samples.h"
#include "report/terminal.h"

// Records of members of an archive that is not complete yet: they are done when it is.
struct held_record { // a copy, with its strings
    struct held_record *next;
    struct conv_record record;
    char names[]; // input and output
};

struct held_archive {
    int number; // record.archive
    struct conv_totals totals;
    struct held_record *first, **end;
    struct held_archive *next;
};

struct conv_report {
    struct conv_report_config config;
    struct conv_totals totals;
    struct conv_totals seen; // with what is held; for the progress
    struct held_archive *held;
    struct conv_digest_set failed; // --watch: inputs, with 1 if the last version has failed
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

static void free_report(struct conv_report *report)
{
    for (int d = 0; d < report->config.device_count; d++)
        conv_overlap_close(report->overlaps[d]);
    conv_digest_set_free(&report->failed);
    free(report);
}

enum conv_status conv_report_open(struct conv_report **out, const struct conv_report_config *config,
                                  struct conv_err *err)
{
    struct conv_report *report = calloc(1, sizeof *report);
    if (!report)
        return conv_err_memory(err, "no memory for the report");
    report->config = *config;
    report->failed.data_bytes = sizeof(uint64_t);
    if (config->json)
        report->streams[0] = stdout;
    if (config->json_path)
        report->streams[1] = conv_standard_create(config->json_path, CONV_HINT_REPORT, err);
    enum conv_status status = config->json_path && !report->streams[1] ? CONV_ERR_USAGE : CONV_OK;
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
    report->start_cpu = config->start_ns ? 0 : conv_clock_process_seconds();
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
                      record->outcome != CONV_OUTCOME_PLANNED ? "would skip"
                      : record->is_copy                       ? "would copy"
                                                              : "would filter",
                      record);
    } else if (config->verbose) {
        conv_progress_clear(&report->progress);
        print_in_turn(report, stderr,
                      record->outcome == CONV_OUTCOME_SKIPPED  ? "conv: skipped"
                      : record->outcome == CONV_OUTCOME_COPIED ? "conv: copied"
                                                               : "conv: done",
                      record);
    }
    conv_progress_update(&report->progress, &report->seen);
    conv_stall_end(report->print_stall);
}

static void write_record(struct conv_report *report, const struct conv_record *record)
{
    if (report->config.samples)
        conv_samples_add(report->config.samples, record);
    for (int i = 0; i < 2; i++)
        if (report->streams[i]) {
            conv_stall_begin(report->stall[i]);
            conv_json_file(report->streams[i], record);
            conv_stall_end(report->stall[i]);
        }
}

static void publish(struct conv_report *report, const struct conv_record *record)
{
    const struct conv_report_config *config = &report->config;
    write_record(report, record);
    if (config->listener)
        config->listener(config->listener_user, &report->totals, record);
    else
        print_file(report, record);
}

// --- records -------------------------------------------------------------------------------------

// `elapsed`: ns since the run began.
static void count_record(struct conv_totals *totals, const struct conv_record *record,
                         uint64_t elapsed)
{
    totals->replaced += record->replaced;
    totals->outcomes[record->outcome]++;
    if (record->outcome != CONV_OUTCOME_DONE)
        return;
    totals->pixels += (uint64_t)record->width * (uint64_t)record->height;
    totals->bytes_in += record->bytes_in;
    totals->bytes_out += record->bytes_out;
    totals->decoded_on_device += record->decoded_on_device;
    totals->encoded_on_device += record->encoded_on_device;
    uint64_t own = 0;
    for (int s = 0; s < CONV_STAGE_COUNT; s++) {
        totals->ns[s] += record->ns[s];
        own += record->ns[s];
    }
    // An image that never waited would have begun when this time was over.
    double before = ((double)elapsed - (double)own) / 1e9;
    if (totals->done == 1 || before < totals->start_seconds)
        totals->start_seconds = before > 0 ? before : 0;
}

// Adds what count_record has counted in *more.
static void add_totals(struct conv_totals *totals, const struct conv_totals *more)
{
    if (more->done && (!totals->done || more->start_seconds < totals->start_seconds))
        totals->start_seconds = more->start_seconds;
    totals->done += more->done;
    totals->copied += more->copied;
    totals->failed += more->failed;
    totals->pixels += more->pixels;
    totals->bytes_in += more->bytes_in;
    totals->bytes_out += more->bytes_out;
    totals->decoded_on_device += more->decoded_on_device;
    totals->encoded_on_device += more->encoded_on_device;
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        totals->ns[s] += more->ns[s];
}

static struct held_record *copy_record(const struct conv_record *record)
{
    const char *output = record->output ? record->output : "";
    size_t input_size = strlen(record->input) + 1, output_size = strlen(output) + 1;
    struct held_record *copy = malloc(sizeof *copy + input_size + output_size);
    if (!copy)
        return NULL;
    copy->next = NULL;
    copy->record = *record;
    copy->record.input = memcpy(copy->names, record->input, input_size);
    memcpy(copy->names + input_size, output, output_size);
    if (record->output)
        copy->record.output = copy->names + input_size;
    return copy;
}

#define REASON_SIZE (sizeof((struct conv_err *)NULL)->text + 128)

// The text of an error, with its hint if that has words; REASON_SIZE bytes.
static const char *explain(const struct conv_report *report, char *text, const struct conv_err *err)
{
    return report->config.explain ? report->config.explain(text, REASON_SIZE, err) : err->text;
}

// Where the archive is, or NULL where it belongs.
static struct held_archive **find_held(struct conv_report *report, int number)
{
    struct held_archive **place = &report->held;
    while (*place && (*place)->number != number)
        place = &(*place)->next;
    return place;
}

// Counts the record as one of its archive; keeps a copy, some 300 bytes, if something shows it
// later. False without memory: nothing was done.
static bool hold(struct conv_report *report, const struct conv_record *record, uint64_t elapsed)
{
    const struct conv_report_config *config = &report->config;
    bool is_shown =
        config->samples || config->json || config->json_path || config->listener || config->verbose;
    struct held_archive **place = find_held(report, record->archive);
    if (!*place && (*place = calloc(1, sizeof **place))) {
        (*place)->number = record->archive;
        (*place)->end = &(*place)->first;
    }
    struct held_archive *archive = *place;
    struct held_record *copy = archive && is_shown ? copy_record(record) : NULL;
    if (!archive || (is_shown && !copy))
        return false;
    count_record(&archive->totals, record, elapsed);
    if (copy) {
        *archive->end = copy;
        archive->end = &copy->next;
    }
    return true;
}

// Of an input that comes again, the last version counts: a failure of an earlier one no longer
// does. Without memory it stays.
static void forget_failure(struct conv_report *report, const struct conv_record *record)
{
    struct conv_digest name = {0};
    bool has_failed = record->outcome == CONV_OUTCOME_FAILED;
    conv_hash_add(&name, record->input, strlen(record->input));
    if (has_failed)
        (void)conv_digest_set_add(&report->failed, &name, NULL, NULL);
    uint64_t *failed = conv_digest_set_data(&report->failed, &name);
    if (!failed)
        return;
    report->totals.failed -= *failed;
    report->seen.failed -= *failed;
    *failed = has_failed;
}

void conv_report_file(struct conv_report *report, const struct conv_record *given)
{
    const struct conv_report_config *config = &report->config;
    struct conv_record explained = *given;
    const struct conv_record *record = &explained;
    bool is_kept = given->outcome == CONV_OUTCOME_DONE || given->outcome == CONV_OUTCOME_COPIED;
    char text[REASON_SIZE];
    uint64_t elapsed = conv_clock_ns() - report->start_ns;
    if (config->each_line)
        forget_failure(report, record);
    count_record(&report->seen, record, elapsed);
    if (is_kept && given->archive && hold(report, record, elapsed)) {
        conv_report_tick(report);
        return;
    }
    if (config->explain && given->err)
        explained.reason = explain(report, text, given->err);
    count_record(&report->totals, record, elapsed);
    publish(report, record);
}

void conv_report_pass(struct conv_report *report, uint64_t number)
{
    if (number && (report->config.verbose || report->config.dry_run))
        conv_order_add(&report->order, order_stream(&report->config), number, NULL);
}

int conv_report_held(const struct conv_report *report)
{
    return report->held ? report->held->number : 0;
}

void conv_report_settle(struct conv_report *report, int number, enum conv_report_fate fate,
                        const struct conv_err *failure)
{
    char text[REASON_SIZE];
    struct held_archive **place = find_held(report, number), *archive = *place;
    if (!archive)
        return;
    *place = archive->next;
    struct conv_totals *totals = &archive->totals;
    if (fate == CONV_REPORT_LOST)
        *totals = (struct conv_totals){.failed = totals->done + totals->copied};
    if (fate != CONV_REPORT_FORGOTTEN)
        add_totals(&report->totals, totals);
    for (struct held_record *copy = archive->first, *next; copy; copy = next) {
        next = copy->next;
        if (fate == CONV_REPORT_KEPT)
            publish(report, &copy->record);
        if (fate == CONV_REPORT_LOST) { // the run says so once
            copy->record.outcome = CONV_OUTCOME_FAILED;
            copy->record.reason = explain(report, text, failure);
            write_record(report, &copy->record);
        }
        free(copy);
    }
    free(archive);
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

struct conv_totals *conv_report_totals(struct conv_report *report)
{
    struct conv_totals *totals = &report->totals;
    totals->seconds = (double)(conv_clock_ns() - report->start_ns) / 1e9;
    totals->cpu_seconds = conv_clock_process_seconds() - report->start_cpu;
    for (int d = 0; d < report->config.device_count; d++)
        conv_overlap_read(report->overlaps[d], &totals->devices[d].overlap);
    return totals;
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

void conv_report_interrupted(struct conv_report *report, const struct conv_report_rest *rest)
{
    report->interrupted = true;
    report->rest = *rest;
}

enum conv_status conv_report_summarize(struct conv_report *report, int exit_code,
                                       struct conv_err *err)
{
    enum conv_status status = CONV_OK;
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
        if (stream != stdout)
            status = conv_standard_close(stream, "the report ", report->config.json_path, err);
        conv_stall_end(report->stall[i]);
    }
    if (!report->config.listener) {
        // A dry run prints its list on stdout.
        conv_stall_begin(report->print_stall);
        enum conv_status flushed = conv_standard_flush(status ? NULL : err);
        conv_stall_end(report->print_stall);
        status = status ? status : flushed;
    }
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
    *totals = *conv_report_totals(report);
    enum conv_status status = conv_report_summarize(report, exit_code, err);
    conv_report_end(report);
    return status;
}
