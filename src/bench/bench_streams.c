// SPDX-License-Identifier: MIT
// On a GPU: 1, 2, 4, 8, 16 streams with all workers. On the CPU: 1, 2, 4, ... workers.
#include "bench/bench_streams.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/stall.h"
#include "bench/bench_device.h"
#include "bench/streams_table.h"
#include "cli/commands.h"
#include "cli/hints.h"
#include "cli/own_files.h"
#include "cli/run.h"
#include "cli/run_page.h"
#include "cli/signals.h"
#include "io/walk.h"

#define MOST_STREAMS 16

struct bench {
    struct conv_options options; // with the streams or workers of the line
    const char *folder;
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count;
    struct conv_device device;
    struct conv_bench_device *staged; // --stage device
    struct conv_report_config config;
    struct conv_streams_table table;
    struct conv_page_job page;
};

// --- one run -------------------------------------------------------------------------------------

static enum conv_status run_pipeline(struct bench *bench, atomic_int *stop,
                                     struct conv_totals *totals, struct conv_err *err)
{
    struct conv_walk_config walk_config = {
        .operands = {.inputs = &bench->folder,
                     .input_count = 1,
                     .recursive = bench->options.recursive},
        .include = bench->options.include.items,
        .include_count = bench->options.include.count,
        .exclude = bench->options.exclude.items,
        .exclude_count = bench->options.exclude.count,
    };
    struct conv_walk *walk = NULL;
    struct conv_report *report = NULL;
    enum conv_status status = conv_walk_open(&walk, &walk_config, err);
    if (!status)
        status = conv_report_open(&report, &bench->config, err);
    if (!status)
        status = conv_run_images(&bench->options, &bench->device, conv_walk_source(walk), NULL, 0,
                                 report, NULL, stop, err);
    if (report) {
        enum conv_status closed = conv_report_close(report, 0, totals, status ? NULL : err);
        if (!status)
            status = closed;
    }
    conv_walk_close(walk);
    if (!status && totals->done == 0)
        status = conv_err_set(err, CONV_ERR_USAGE, "no PNG could be filtered in %s", bench->folder);
    return status;
}

// With `streams` streams or workers; a line of the table is filled unless it is NULL.
static enum conv_status run_once(struct bench *bench, int streams, atomic_int *stop,
                                 struct conv_page_line *line, struct conv_totals *totals,
                                 struct conv_err *err)
{
    double bytes = 0;
    if (bench->device.ops->async)
        bench->options.streams = streams;
    else
        bench->options.jobs = streams;
    bench->config.streams = bench->options.streams;
    bench->config.jobs = bench->staged ? streams : bench->options.jobs;
    conv_stall_end(true);
    enum conv_status status =
        bench->staged ? conv_bench_device_run(bench->staged, streams, stop, totals, &bytes, err)
                      : run_pipeline(bench, stop, totals, err);
    conv_stall_begin(true);
    if (status || !line)
        return status;
    line->count = streams;
    line->share_of_copy =
        bench->table.copied ? bytes / totals->seconds / 1e9 / bench->table.copies.both : -1;
    conv_figures_compute(&bench->config, totals, &line->figures);
    return CONV_OK;
}

// --- all of it -----------------------------------------------------------------------------------

static enum conv_status prepare(struct bench *bench, const struct conv_options *options,
                                atomic_int *stop, struct conv_err *err)
{
    bench->options = *options;
    bench->options.no_save = true;
    bench->options.first_frame = true;
    // What is compared is streams: who codes stays the same, whatever pays.
    if (bench->options.decode_on == CONV_CODER_AUTO)
        bench->options.decode_on = CONV_CODER_CPU;
    if (bench->options.encode_on == CONV_CODER_AUTO)
        bench->options.encode_on = CONV_CODER_CPU;
    if (options->operand_count != 2)
        return conv_err_set(err, CONV_ERR_USAGE, "conv bench streams takes one folder of PNGs");
    bench->folder = options->operands[1];
    struct conv_own_files_use use = {options->bench_filter, &bench->folder, 1, NULL};
    enum conv_status status = conv_own_files_check(options, &use, err);
    if (!status)
        status = conv_commands_parse_chain(options, options->bench_filter, bench->filters,
                                           &bench->filter_count, err);
    if (!status)
        status = conv_device_open(&bench->device, &bench->options, bench->filters,
                                  bench->filter_count, false, CONV_AMOUNT_MUCH, stop, err);
    if (!status)
        status = conv_page_open(&bench->page, options, err);
    if (status)
        return status;
    bench->config = (struct conv_report_config){
        .quiet = true,
        .progress = CONV_NEVER,
        .explain = conv_hints_explain,
        .device = bench->device.name,
        .device_async = bench->device.ops->async,
        .device_count = bench->device.ops->async ? bench->device.count : 0,
    };
    bench->table.filter = options->bench_filter;
    bench->table.folder = bench->folder;
    bench->table.device = bench->device.name;
    bench->table.async = bench->device.ops->async;
    bench->table.device_only = options->bench_stage == CONV_BENCH_DEVICE;
    return CONV_OK;
}

static enum conv_status measure(struct bench *bench, int most, atomic_int *stop,
                                struct conv_err *err)
{
    struct conv_streams_table *table = &bench->table;
    const struct conv_options *options = &bench->options;
    bool text = !options->json && !options->csv;
    struct conv_totals totals = {0};
    enum conv_status status = CONV_OK;
    if (table->device_only) {
        status = conv_bench_device_open(&bench->staged, options, &bench->device, bench->folder,
                                        most, err);
        if (!status)
            status = conv_bench_device_copies(bench->staged, &table->copied, &table->copies, err);
    } else { // warms up page cache, device and allocator
        int usual = conv_options_streams(options, bench->device.decode_on != CONV_CODER_CPU);
        status = run_once(bench, bench->device.ops->async ? usual : most, stop, NULL, &totals, err);
    }
    if (!status && text)
        conv_streams_table_print_head(table);
    for (int n = 1; !status && n <= most && table->count < CONV_STREAMS_MOST_LINES; n *= 2) {
        struct conv_page_line *line = &table->lines[table->count];
        struct conv_totals *of_line = &table->totals[table->count];
        status = run_once(bench, n, stop, line, of_line, err);
        if (status || atomic_load(stop)) // a line that a signal cut short says nothing
            break;
        line->speed_up = line->figures.images_per_s / table->lines[0].figures.images_per_s;
        table->jobs[table->count++] = bench->config.jobs;
        if (text)
            conv_streams_table_print_line(table, table->count - 1);
    }
    return status;
}

static enum conv_status write_page(struct bench *bench, struct conv_err *err)
{
    const struct conv_streams_table *table = &bench->table;
    struct conv_page *page = &bench->page.page;
    char *record = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&record, &size);
    if (!memory)
        return conv_err_errno(err, errno, "cannot write the page");
    conv_streams_table_print_json(table, memory);
    if (fclose(memory) != 0) {
        free(record);
        return conv_err_errno(err, errno, "cannot write the page");
    }
    page->kind = table->device_only ? "conv bench streams, the device alone" : "conv bench streams";
    page->title = table->filter;
    page->lines = table->lines;
    page->line_count = table->count;
    page->counts_streams = table->async;
    page->device_only = table->device_only;
    page->lines_have_limit = table->copied;
    page->copies = table->copied ? &table->copies : NULL;
    conv_page_fact(&bench->page, "images", "%s", bench->folder);
    conv_page_fact(&bench->page, "outputs", "%s",
                   table->device_only ? "dropped on the device's side" : "encoded, not written");
    conv_page_describe(&bench->page, &bench->device, bench->filters, bench->filter_count);
    enum conv_status status = conv_page_finish(&bench->page, record, err);
    free(record);
    return status;
}

enum conv_status conv_bench_streams(const struct conv_options *options, struct conv_err *err)
{
    atomic_int *stop = conv_signals_install();
    conv_stall_begin(true); // but in run_once: for the readers of the table and of a page
    struct bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the benchmark");
    enum conv_status status = prepare(bench, options, stop, err);
    if (!status)
        status = measure(bench, bench->table.async ? MOST_STREAMS : options->jobs, stop, err);
    if (!status && options->json)
        conv_streams_table_print_json(&bench->table, stdout);
    if (!status && options->csv)
        conv_streams_table_print_csv(&bench->table);
    if (!status && bench->page.file)
        status = write_page(bench, err);
    conv_page_close(&bench->page);
    conv_bench_device_close(bench->staged);
    conv_device_close(&bench->device);
    free(bench);
    return status;
}
