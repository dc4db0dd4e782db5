// SPDX-License-Identifier: MIT
// conv bench kernels | streams FOLDER | codec FOLDER: what this machine does, measured here and now.
#include "cli/bench_codec.h"
#include "cli/commands.h"
#include "cli/contender.h"
#include "cli/run.h"
#include "cli/signals.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define LEAST_RUNS 3
#define MOST_RUNS 20
#define ENOUGH_NS 1500000000u // stop repeating a slow kernel after so long

// --- kernels -------------------------------------------------------------------------------------

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *ns, int count)
{
    qsort(ns, (size_t)count, sizeof *ns, compare_ns);
    return ns[count / 2];
}

// Noise around a gradient: rounding and clamping both happen, and nothing compresses.
static void fill(const struct conv_image *image)
{
    uint32_t state = 0x2545F491u;
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height; y++) {
            uint8_t *row = image->plane[c].data + y * image->plane[c].stride;
            for (int x = 0; x < image->width; x++) {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                row[x] = (uint8_t)((x + y) / 2 % 192 + (int)(state >> 26));
            }
        }
}

// Medians of the kernel and of the copy of the same bytes, taken turn by turn.
static enum conv_status time_kernel(struct conv_contender *contender, uint64_t *kernel,
                                    uint64_t *copy, struct conv_err *err)
{
    uint64_t kernels[MOST_RUNS], copies[MOST_RUNS], start = conv_clock_ns();
    int runs = 0;
    while (runs < MOST_RUNS && (runs < LEAST_RUNS || conv_clock_ns() - start < ENOUGH_NS)) {
        enum conv_status status =
            contender->ops->lane_copy(contender->lane, &contender->group, &copies[runs], err);
        if (!status)
            status = contender->ops->lane_run(contender->lane, &contender->group, err);
        if (status)
            return status;
        kernels[runs++] = contender->group.ns_kernel;
    }
    *kernel = median(kernels, runs);
    *copy = median(copies, runs);
    return CONV_OK;
}

// Opens a row's contender, holds it against the reference (NULL: it is the reference), times it and
// prints its line.
static enum conv_status bench_row(const struct conv_variant *row,
                                  const struct conv_options *options,
                                  const struct conv_filter *filters, int filter_count,
                                  struct conv_contender *reference, struct conv_err *err)
{
    struct conv_contender own = {0}, *contender = reference->ops ? &own : reference;
    struct conv_image shape = {
        .width = options->bench_width, .height = options->bench_height, .channels = 3, .depth = 8};
    struct conv_image in;
    enum conv_status status =
        conv_contender_open(contender, row, options, filters, filter_count, err);
    if (status == CONV_ERR_DEVICE || status == CONV_ERR_USAGE) {
        printf("%-20s left out: %s\n", row->name, err->text);
        conv_contender_close(contender);
        return contender == reference ? status : CONV_OK;
    }
    if (!status && contender == reference) {
        status = conv_contender_place(contender, &shape, false, &in, err);
        if (!status)
            fill(&in);
    } else if (!status) {
        status = conv_contender_copy(contender, reference, &shape, false, err);
    }
    if (!status) // also warms up
        status = contender->ops->lane_run(contender->lane, &contender->group, err);
    struct conv_difference first;
    if (!status && contender != reference && conv_contender_differs(reference, contender, &first))
        status =
            conv_err_set(err, CONV_ERR_DEVICE, "%s is wrong: channel %d, x %d, y %d: %u, not %u",
                         row->name, first.plane, first.x, first.y, first.got, first.expected);
    // The reference's result is what others are held against: its own timing leaves the same bytes.
    uint64_t kernel = 0, copy = 0;
    if (!status)
        status = time_kernel(contender, &kernel, &copy, err);
    if (!status) {
        double pixels = (double)shape.width * shape.height;
        printf("%-20s %10.3f %10.0f %9.2f %8.1f %%  %s\n", row->name, (double)kernel / 1e6,
               pixels / (double)kernel * 1e3, 6 * pixels / (double)kernel,
               100 * (double)copy / (double)kernel, row->summary);
        fflush(stdout);
    }
    if (contender == reference && !status) // time_kernel's copy has overwritten h_out
        status = contender->ops->lane_run(contender->lane, &contender->group, err);
    if (contender != reference)
        conv_contender_close(contender);
    return status;
}

static enum conv_status bench_kernels(const struct conv_options *options, struct conv_err *err)
{
    struct conv_filter filters[CONV_FILTER_MAX_CHAIN];
    int filter_count = 0, rows;
    struct conv_contender reference = {0};
    const struct conv_variant *const *variants = conv_stencil_variants(&rows);
    enum conv_status status =
        conv_commands_parse_chain(options, options->bench_filter, filters, &filter_count, err);
    if (status)
        return status;
    printf("%s, one picture of %dx%d, 3 planes of 8 bits; CPU kernels on one core\n"
           "%-20s %10s %10s %9s %10s\n",
           options->bench_filter, options->bench_width, options->bench_height, "kernel", "ms",
           "Mpix/s", "GB/s", "of a copy");
    for (int i = rows - 1; i >= 0 && !status; i--)
        if (i == rows - 1 || !options->variant || strcmp(variants[i]->name, options->variant) == 0)
            status = bench_row(variants[i], options, filters, filter_count, &reference, err);
    conv_contender_close(&reference);
    return status;
}

// --- streams -------------------------------------------------------------------------------------

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
    enum conv_status status = conv_walk_open(&walk, &walk_config, true, err);
    if (!status)
        status = conv_report_open(&report, &report_config, err);
    if (!status)
        status = conv_run_pictures(options, device, walk, report, stop, err);
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
static enum conv_status bench_streams(const struct conv_options *options, struct conv_err *err)
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

int conv_bench_main(const struct conv_options *options)
{
    struct conv_err err = {0};
    enum conv_status status;
    const char *what = options->operand_count > 0 ? options->operands[0] : "";
    if (strcmp(what, "kernels") == 0)
        status = bench_kernels(options, &err);
    else if (strcmp(what, "streams") == 0)
        status = bench_streams(options, &err);
    else if (strcmp(what, "codec") == 0)
        status = conv_bench_codec(options, &err);
    else
        status = conv_err_set(&err, CONV_ERR_USAGE,
                              "conv bench takes: kernels | streams FOLDER | codec FOLDER");
    if (status)
        return conv_commands_fail(&err);
    return conv_commands_flush();
}
