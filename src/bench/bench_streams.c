// SPDX-License-Identifier: MIT
// On a GPU: 1, 2, 4, 8, 16 streams with all workers. On the CPU: 1, 2, 4, ... workers.
#include <stdlib.h>
#include <string.h>

#include "base/standard.h"
#include "bench/bench_streams.h"
#include "report/record.h"

#define MOST_STREAMS 16
#define TRACED_STREAMS 4 // on the page, beside a single one, or as many as there are

struct bench {
    const struct conv_bench_options *options;
    struct conv_bench_device *staged; // --stage device
    struct conv_report_config config; // of the current line
    struct conv_streams_table table;
    struct conv_trace *traces[CONV_PAGE_MOST_TIMELINES]; // of lines that the page shows
    int traced[CONV_PAGE_MOST_TIMELINES];                // their streams or workers
    int trace_count;
    bool has_run; // failures have been reported
    char inputs[512];
};

// --- one run -------------------------------------------------------------------------------------

static void ignore_record(void *, const struct conv_totals *, const struct conv_record *)
{
}

static enum conv_status run_pipeline(struct bench *bench, struct conv_trace *trace,
                                     struct conv_totals *totals, struct conv_err *err)
{
    const struct conv_bench_options *options = bench->options;
    struct conv_walk *walk = NULL;
    struct conv_report *report = NULL;
    enum conv_status status = conv_walk_open(&walk, &options->walk, err);
    bench->config.listener = bench->has_run ? ignore_record : NULL; // failures are reported once
    bench->has_run = true;
    if (!status)
        status = conv_report_open(&report, &bench->config, err);
    if (!status)
        status = options->run(options->run_context, bench->config.jobs, bench->config.streams,
                              conv_walk_source(walk), report, trace, err);
    if (report) {
        enum conv_status closed = conv_report_close(report, 0, totals, status ? NULL : err);
        if (!status)
            status = closed;
    }
    conv_walk_close(walk);
    if (!status && totals->done == 0)
        status = conv_err_usage(err, "no image could be filtered in %s", bench->table.folder);
    return status;
}

// Sets *trace for the line with `count` streams or workers, if the page shows it.
static enum conv_status add_trace(struct bench *bench, int count, struct conv_trace **trace,
                                  struct conv_err *err)
{
    int most = bench->table.async ? MOST_STREAMS : bench->options->jobs, traced = 1;
    while (2 * traced <= most && traced < TRACED_STREAMS)
        traced *= 2;
    if (!bench->options->page->file || (count != 1 && count != traced))
        return CONV_OK;
    enum conv_status status = conv_trace_open(trace, NULL, true, NULL, err);
    if (!status) {
        bench->traced[bench->trace_count] = count;
        bench->traces[bench->trace_count++] = *trace;
    }
    return status;
}

static void show_traces(const struct bench *bench, struct conv_page *page)
{
    for (int i = 0; i < bench->trace_count; i++) {
        int count = bench->traced[i];
        if (count > bench->table.lines[bench->table.count - 1].count)
            continue; // a signal cut it short
        struct conv_page_timeline *timeline = &page->timelines[page->timeline_count++];
        timeline->trace = bench->traces[i];
        snprintf(timeline->title, sizeof timeline->title, "%d %s%s", count,
                 bench->table.async ? "stream" : "worker", count == 1 ? "" : "s");
        if (bench->staged)
            conv_text_add(timeline->title, sizeof timeline->title, ": ",
                          "groups begun within %d ms", CONV_BENCH_DEVICE_TRACED_MS);
    }
}

// One run with `count` streams or workers.
static enum conv_status run_once(struct bench *bench, int count, bool traced,
                                 struct conv_streams_line *line, struct conv_err *err)
{
    double bytes = 0;
    struct conv_totals *totals = &line->totals;
    bool async = bench->table.async;
    bench->config.streams = async ? count : 0;
    bench->config.jobs = bench->staged || !async ? count : bench->options->jobs;
    struct conv_trace *trace = NULL;
    enum conv_status status = traced ? add_trace(bench, count, &trace, err) : CONV_OK;
    if (status)
        return status;
    conv_stall_end(bench->options->stall);
    status = bench->staged ? conv_bench_device_run(bench->staged, count, trace, totals, &bytes, err)
                           : run_pipeline(bench, trace, totals, err);
    conv_stall_begin(bench->options->stall);
    enum conv_status finished = conv_trace_finish(trace, status ? NULL : err);
    status = status ? status : finished;
    if (status)
        return status;
    line->count = count;
    line->jobs = bench->config.jobs;
    line->share_of_copy =
        bench->table.copied ? bytes / totals->seconds / 1e9 / bench->table.copies.both : -1;
    conv_figures_compute(&bench->config, totals, &line->figures);
    return CONV_OK;
}

static int compare_runs(const void *a, const void *b)
{
    const struct conv_streams_line *one = a, *other = b;
    double x = one->figures.images_per_s, y = other->figures.images_per_s;
    return (x > y) - (x < y);
}

// Makes all runs of a line, which gets the median; only the first is traced.
static enum conv_status run_line(struct bench *bench, int count, struct conv_streams_line *line,
                                 struct conv_err *err)
{
    struct conv_streams_line runs[CONV_STREAMS_RUNS] = {0};
    enum conv_status status = CONV_OK;
    for (int i = 0; i < CONV_STREAMS_RUNS && !status && !atomic_load(bench->options->stop); i++)
        status = run_once(bench, count, i == 0, &runs[i], err);
    qsort(runs, CONV_STREAMS_RUNS, sizeof *runs, compare_runs);
    *line = runs[CONV_STREAMS_RUNS / 2];
    line->slowest = runs[0].figures.images_per_s;
    line->fastest = runs[CONV_STREAMS_RUNS - 1].figures.images_per_s;
    return status;
}

// --- all of it -----------------------------------------------------------------------------------

static enum conv_status measure(struct bench *bench, int most, struct conv_err *err)
{
    struct conv_streams_table *table = &bench->table;
    const struct conv_bench_options *options = bench->options;
    bool text = options->format == CONV_BENCH_TEXT;
    struct conv_streams_line warm_up = {0};
    enum conv_status status = CONV_OK;
    if (table->device_only) {
        status = conv_bench_device_open(&bench->staged, options, most, err);
        if (!status)
            status = conv_bench_device_copies(bench->staged, &table->copied, &table->copies, err);
    } else { // warms up page cache, device and allocator
        status =
            run_once(bench, table->async ? options->usual_streams : most, false, &warm_up, err);
    }
    if (!status && text)
        conv_streams_table_print_head(table);
    for (int n = 1; !status && n <= most && table->count < CONV_STREAMS_MOST_LINES; n *= 2) {
        struct conv_streams_line *line = &table->lines[table->count];
        status = run_line(bench, n, line, err);
        if (status || atomic_load(options->stop)) // a signal cut this line short
            break;
        line->speed_up = line->figures.images_per_s / table->lines[0].figures.images_per_s;
        table->count++;
        if (text)
            conv_streams_table_print_line(table, table->count - 1);
    }
    return status;
}

static enum conv_status write_page(struct bench *bench, struct conv_err *err)
{
    const struct conv_streams_table *table = &bench->table;
    const struct conv_bench_options *options = bench->options;
    const struct conv_device *devices = options->device;
    struct conv_page *page = options->page;
    page->kind = table->device_only ? "conv bench streams, the device alone" : "conv bench streams";
    int most = table->lines[table->count - 1].count;
    conv_page_title(page, "%.100s with 1 %s %d %s on %s", table->filter,
                    table->count == 2 ? "and" : "to", most, table->async ? "streams" : "workers",
                    table->device);
    show_traces(bench, page);
    conv_page_fact(page, "images", "%s", table->folder);
    conv_page_fact(page, "outputs", "%s",
                   table->device_only ? "discarded, not encoded" : "encoded, not written");
    conv_page_describe(page, &(struct conv_page_setting){
                                 .filters = options->filters,
                                 .filter_count = options->filter_count,
                                 .border = options->choice->filter.border,
                                 .border_value = options->choice->filter.border_value,
                                 .names = devices->names,
                                 .ordinals = devices->ordinals,
                                 .backends = devices->backends,
                                 .device_count = devices->count,
                                 .ops = devices->ops,
                                 .limits = options->choice->machine.limits,
                             });
    return conv_page_finish(page, conv_streams_table_print_json, table, err);
}

enum conv_status conv_bench_streams(const struct conv_bench_options *options, struct conv_err *err)
{
    const struct conv_device *devices = options->device;
    bool async = devices->ops->async;
    struct bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return conv_err_memory(err, "no memory for the benchmark");
    bench->options = options;
    bench->config = (struct conv_report_config){
        .quiet = true,
        .progress = CONV_NEVER,
        .explain = options->explain,
        .stall = options->stall,
        .cores = options->choice->machine.limits->cores,
        .device = devices->name,
        .device_async = async,
        .device_count = async ? devices->count : 0,
    };
    bench->table.filter = options->choice->bench.filter;
    const struct conv_operands *operands = &options->walk.operands;
    snprintf(bench->inputs, sizeof bench->inputs, "%.400s", operands->inputs[0]);
    if (operands->input_count > 1)
        snprintf(bench->inputs, sizeof bench->inputs, "%.400s and %d more", operands->inputs[0],
                 operands->input_count - 1);
    bench->table.folder = bench->inputs;
    bench->table.device = devices->name;
    bench->table.async = async;
    bench->table.device_only = options->choice->bench.stage == CONV_BENCH_DEVICE;
    conv_stall_begin(
        options->stall); // except in run_once: readers of the table or the page may be slow
    enum conv_status status = measure(bench, async ? MOST_STREAMS : options->jobs, err);
    if (!status && options->format == CONV_BENCH_JSON)
        conv_streams_table_print_json(&bench->table, stdout);
    if (!status && options->format == CONV_BENCH_CSV)
        conv_streams_table_print_csv(&bench->table);
    if (!status && options->page->file)
        status = write_page(bench, err);
    conv_bench_device_close(bench->staged);
    for (int i = 0; i < bench->trace_count; i++)
        conv_trace_free(bench->traces[i]);
    free(bench);
    return status;
}
