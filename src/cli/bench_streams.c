// SPDX-License-Identifier: MIT
#include "cli/bench_streams.h"
#include "cli/commands.h"
#include "cli/run.h"
#include "cli/signals.h"

#include <string.h>

static enum conv_status run_once(const struct conv_options *options, const char *folder,
                                 const struct conv_device *device, atomic_int *stop,
                                 struct conv_totals *totals, struct conv_err *err)
{
    struct conv_walk_config walk_config = {
        .inputs = &folder,
        .input_count = 1,
        .recursive = options->recursive,
    };
    struct conv_report_config report_config = {
        .quiet = true,
        .progress = CONV_NEVER,
        .device = device->name,
        .device_async = device->ops->async,
        .jobs = options->jobs,
        .streams = options->streams,
    };
    struct conv_walk *walk = NULL;
    struct conv_report *report = NULL;
    enum conv_status status = conv_walk_open(&walk, &walk_config, err);
    if (!status)
        status = conv_report_open(&report, &report_config, err);
    if (!status)
        status = conv_run_pictures(options, device, walk, report, NULL, stop, err);
    if (report) {
        enum conv_status closed = conv_report_close(report, 0, totals, status ? NULL : err);
        if (!status)
            status = closed;
    }
    conv_walk_close(walk);
    if (!status && totals->done == 0)
        status = conv_err_set(err, CONV_ERR_USAGE, "no PNG could be filtered in %s", folder);
    return status;
}

static void print_streams_row(const struct conv_totals *totals, const struct conv_device *device,
                              int lanes, int jobs, double base)
{
    double rate = (double)totals->done / totals->seconds;
    printf("%7d %9.1f %10.1f %8.2fx  ", lanes, rate, (double)totals->pixels / totals->seconds / 1e6,
           rate / base);
    // Of the time that workers (or lanes) had, how much each stage took.
    for (int s = 0; s < CONV_STAGE_COUNT; s++) {
        bool on_device = device->ops->async && s >= CONV_STAGE_COPY_IN && s <= CONV_STAGE_COPY_OUT;
        double time = totals->seconds * 1e9 * (on_device ? lanes : jobs);
        printf(" %8.1f", 100 * (double)totals->ns[s] / time);
    }
    putchar('\n');
    fflush(stdout);
}

// On a GPU: 1, 2, 4, 8 streams with all workers. On the CPU: 1, 2, 4, ... workers.
enum conv_status conv_bench_streams(const struct conv_options *options, struct conv_err *err)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count = 0;
    struct conv_device device = {0};
    struct conv_totals totals = {0};
    double base = 0;
    atomic_int *stop = conv_signals_install();
    if (options->operand_count != 2)
        return conv_err_set(err, CONV_ERR_USAGE, "conv bench streams takes one folder of PNGs");
    const char *folder = options->operands[1];
    enum conv_status status =
        conv_commands_parse_chain(options, options->bench_filter, filters, &filter_count, err);
    if (!status)
        status = conv_device_open(&device, options, filters, filter_count, err);
    struct conv_options each = *options;
    each.no_save = true;
    if (!status) // warms up page cache, device and allocator
        status = run_once(&each, folder, &device, stop, &totals, err);
    if (!status) {
        printf("%s on %s, nothing written; stages in %% of the time that workers and streams had\n"
               "%7s %9s %10s %9s  ",
               options->bench_filter, device.name, device.ops->async ? "streams" : "workers",
               "img/s", "Mpix/s", "speed-up");
        for (int s = 0; s < CONV_STAGE_COUNT; s++)
            printf(" %8s", conv_report_stage_name((enum conv_stage)s));
        putchar('\n');
    }
    int most = !status && device.ops->async ? 16 : options->jobs;
    for (int n = 1; !status && n <= most && !atomic_load(stop); n *= 2) {
        if (device.ops->async)
            each.streams = n;
        else
            each.jobs = n;
        status = run_once(&each, folder, &device, stop, &totals, err);
        if (status)
            break;
        if (n == 1)
            base = (double)totals.done / totals.seconds;
        print_streams_row(&totals, &device, n, each.jobs, base);
    }
    conv_device_close(&device);
    return status;
}
