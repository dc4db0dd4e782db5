// SPDX-License-Identifier: MIT
#include "report/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *conv_record_stage_name(enum conv_stage stage)
{
    static const char *const names[CONV_STAGE_COUNT] = {"read",     "decode", "copy_in", "kernel",
                                                        "copy_out", "encode", "write"};
    return names[stage];
}

// --- figures -------------------------------------------------------------------------------------

// limits[0]: on the busier side (workers or streams), the stage with most time, which is returned,
// per worker or stream. limits[1]: among all other stages, the one with most such time.
static double find_limits(const struct conv_totals *totals, const struct conv_report_config *config,
                          int limits[2])
{
    int streams = config->device_async ? config->streams * config->device_count : 0;
    double load[CONV_STAGE_COUNT], busy[2] = {0, 0}; // per worker, or per stream
    bool on_device[CONV_STAGE_COUNT];
    for (int s = 0; s < CONV_STAGE_COUNT; s++) {
        on_device[s] = streams > 0 && s >= CONV_STAGE_COPY_IN && s <= CONV_STAGE_COPY_OUT;
        int share = on_device[s] ? streams : config->jobs;
        load[s] = (double)totals->ns[s] / (share > 0 ? share : 1);
        busy[on_device[s]] += load[s];
    }
    bool side = busy[1] > busy[0];
    limits[0] = limits[1] = -1;
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        if (on_device[s] == side && (limits[0] < 0 || load[s] > load[limits[0]]))
            limits[0] = s;
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        if (s != limits[0] && (limits[1] < 0 || load[s] > load[limits[1]]))
            limits[1] = s;
    return load[limits[0]] / 1e9;
}

// Less time says nothing about the next run: caches, clocks and the scheduler decide.
#define LEAST_SECONDS 1.0

// Decoding, encoding and filtering on the CPU, in seconds of one core, if no worker had waited for
// a core that another worker had.
static double computed_seconds(const struct conv_report_config *config,
                               const struct conv_totals *totals)
{
    uint64_t ns = totals->ns[CONV_STAGE_DECODE] + totals->ns[CONV_STAGE_ENCODE] +
                  (config->device_async ? 0 : totals->ns[CONV_STAGE_KERNEL]);
    double share = config->jobs > config->cores ? (double)config->cores / config->jobs : 1;
    return (double)ns / 1e9 * share;
}

// A stage limits a run in which stages are busy for most of the time, on the workers or on the
// device, and have the cores that they need. What takes less than a third of the run is no limit.
static void name_limit(const struct conv_report_config *config, const struct conv_totals *totals,
                       struct conv_figures *figures)
{
    double busy = 1 - figures->waiting, computed = computed_seconds(config, totals);
    for (int s = CONV_STAGE_COPY_IN; s <= CONV_STAGE_COPY_OUT && config->device_async; s++)
        busy = figures->busy[s] > busy ? figures->busy[s] : busy;
    if (!totals->done || totals->seconds < LEAST_SECONDS)
        return;
    if (busy < 0.5) {
        if (totals->start_seconds > totals->seconds / 3)
            figures->limit = config->device_async ? "starting the GPU" : "starting";
        return;
    }
    if (computed > 0.25 * totals->seconds *
                       (config->jobs < config->cores ? config->jobs : config->cores) &&
        totals->cpu_seconds < 0.5 * computed) {
        figures->limit = "other programs";
        return;
    }
    int limits[2];
    if (find_limits(totals, config, limits) < totals->seconds / 3)
        return;
    figures->limit = conv_record_stage_name((enum conv_stage)limits[0]);
    figures->next_limit = conv_record_stage_name((enum conv_stage)limits[1]);
}

bool conv_figures_device(const struct conv_report_config *config, const struct conv_totals *totals,
                         int i, char name[16], double *share)
{
    int count = config->device_count;
    const char *text = i < count ? config->device : config->fallback;
    uint64_t all = 0;
    for (int d = 0; d <= count; d++)
        all += totals->devices[d].bytes;
    if (i > count || count == 0 || (i == count && (!text || totals->devices[i].bytes == 0)))
        return false;
    for (int d = 0; d < i && i < count; d++)
        text = strchr(text, ',') + 1;
    snprintf(name, 16, "%.*s", (int)strcspn(text, ","), text);
    *share = all > 0 ? (double)totals->devices[i].bytes / (double)all : 0;
    return true;
}

static struct conv_overlap_times sum_overlap(const struct conv_totals *totals, int devices)
{
    struct conv_overlap_times sum = {0};
    for (int d = 0; d < devices; d++) {
        const struct conv_overlap_times *times = &totals->devices[d].overlap;
        for (int e = 0; e < CONV_ENGINE_COUNT; e++)
            sum.engine[e] += times->engine[e];
        sum.two += times->two;
        sum.three += times->three;
    }
    return sum;
}

void conv_figures_compute(const struct conv_report_config *config, const struct conv_totals *totals,
                          struct conv_figures *figures)
{
    double run = totals->seconds > 0 ? totals->seconds * 1e9 : 1;
    double workers = run * (config->jobs > 0 ? config->jobs : 1), worked = 0;
    double devices = run * config->device_count;
    struct conv_overlap_times overlap = sum_overlap(totals, config->device_count);
    *figures = (struct conv_figures){
        .images_per_s = (double)totals->done / run * 1e9,
        .mpix_per_s = (double)totals->pixels / run * 1e3,
        .overlap_two = -1,
        .overlap_three = -1,
        .cores = config->cores,
        .start_seconds = totals->start_seconds,
    };
    for (int s = 0; s < CONV_STAGE_COUNT; s++) {
        if (config->device_async && s >= CONV_STAGE_COPY_IN && s <= CONV_STAGE_COPY_OUT) {
            figures->busy[s] = (double)overlap.engine[s - CONV_STAGE_COPY_IN] / devices;
        } else {
            figures->busy[s] = (double)totals->ns[s] / workers;
            worked += figures->busy[s];
        }
    }
    figures->waiting = worked < 1 ? 1 - worked : 0;
    if (config->device_async) {
        figures->overlap_two = (double)overlap.two / devices;
        figures->overlap_three = (double)overlap.three / devices;
    }
    double used = totals->cpu_seconds * 1e9 / (run * figures->cores);
    figures->cpu_utilisation = used < 1 ? used : 1; // clocks differ by a tick
    name_limit(config, totals, figures);
}

// --- overlap -------------------------------------------------------------------------------------

// At this number of intervals the older half is counted. Streams report groups nearly in order.
#define MOST 32768

struct work {
    uint64_t start, end;
    int engine;
};

struct edge {
    uint64_t at;
    int engine, step; // +1: work begins
};

struct conv_overlap {
    struct conv_overlap_times times; // counted so far
    uint64_t counted;                // until this moment
    int count;
    struct work work[MOST];
    struct edge edges[2 * MOST];
};

enum conv_status conv_overlap_open(struct conv_overlap **out, struct conv_err *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? CONV_OK : conv_err_memory(err, "no memory for the report");
}

void conv_overlap_close(struct conv_overlap *overlap)
{
    free(overlap);
}

static int compare_starts(const void *a, const void *b)
{
    const struct work *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static void count_time(struct conv_overlap_times *times, const int running[CONV_ENGINE_COUNT],
                       uint64_t ns)
{
    int busy = 0;
    for (int e = 0; e < CONV_ENGINE_COUNT; e++) {
        if (running[e] > 0) {
            times->engine[e] += ns;
            busy++;
        }
    }
    times->two += busy >= 2 ? ns : 0;
    times->three += busy == 3 ? ns : 0;
}

// Counts everything before `until` and removes it from the intervals.
static void sweep(struct conv_overlap *overlap, uint64_t until)
{
    int edges = 0, left = 0, running[CONV_ENGINE_COUNT] = {0};
    for (int i = 0; i < overlap->count; i++) {
        struct work work = overlap->work[i];
        uint64_t end = work.end < until ? work.end : until;
        if (work.start < end) {
            overlap->edges[edges++] = (struct edge){work.start, work.engine, 1};
            overlap->edges[edges++] = (struct edge){end, work.engine, -1};
        }
        if (work.end > until) {
            work.start = work.start > until ? work.start : until;
            overlap->work[left++] = work;
        }
    }
    qsort(overlap->edges, (size_t)edges, sizeof *overlap->edges, compare_edges);
    for (int i = 0; i < edges; i++) {
        if (i > 0)
            count_time(&overlap->times, running, overlap->edges[i].at - overlap->edges[i - 1].at);
        running[overlap->edges[i].engine] += overlap->edges[i].step;
    }
    overlap->count = left;
    overlap->counted = until;
}

void conv_overlap_add(struct conv_overlap *overlap, enum conv_engine engine, uint64_t start,
                      uint64_t end)
{
    start = start > overlap->counted ? start : overlap->counted;
    if (start >= end)
        return;
    if (overlap->count == MOST) {
        qsort(overlap->work, MOST, sizeof *overlap->work, compare_starts);
        sweep(overlap, overlap->work[MOST / 2].start);
    }
    if (overlap->count == MOST) // all began at once, which no real run does
        return;
    overlap->work[overlap->count++] = (struct work){start, end, (int)engine};
}

void conv_overlap_read(struct conv_overlap *overlap, struct conv_overlap_times *times)
{
    uint64_t last = overlap->counted;
    for (int i = 0; i < overlap->count; i++)
        last = overlap->work[i].end > last ? overlap->work[i].end : last;
    sweep(overlap, last);
    *times = overlap->times;
}
