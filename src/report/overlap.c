// SPDX-License-Identifier: MIT
#include "report/overlap.h"

#include <stdlib.h>

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
    return *out ? CONV_OK : conv_err_set(err, CONV_ERR_MEMORY, "no memory for the report");
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
