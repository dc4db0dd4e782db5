// SPDX-License-Identifier: MIT
#include "bench/bench_streams.h"

#include <stdlib.h>

#include "bench/bench_cuda.h"
#include "engine/memory.h"

#define MOST_SMALL 1000          // images in the test of small copies
#define SMALL_STREAMS 4          // conv's default
#define LARGE ((size_t)64 << 20) // shows the link's rate; on an H200 1 MiB reaches 85 % of it
#define LARGE_COUNT 8
#define REPEATS 5

// Copies of one device, timed while the other devices copy, too.
struct copies {
    int ordinal;
    struct conv_copy_test test;
    uint64_t ns;
    struct conv_err err;
};

static void time_copies(void *context, int, int device)
{
    struct copies *copies = (struct copies *)context + device;
    copies->ns = 1;
    copies->test.repeats = REPEATS;
    conv_bench_cuda()->time_copies(copies->ordinal, &copies->test, &copies->ns, &copies->err);
}

// The sum over all devices, copying at the same time.
static enum conv_status time_large(const struct conv_device *devices, enum conv_copy_way way,
                                   double *gb_per_s, struct conv_err *err)
{
    struct conv_workers *workers = NULL;
    struct copies *copies = calloc((size_t)devices->count, sizeof *copies);
    enum conv_status status = copies ? conv_workers_open(&workers, devices->count, err)
                                     : conv_err_memory(err, "no memory for the benchmark");
    *gb_per_s = 0;
    for (int d = 0; d < devices->count && !status; d++)
        copies[d] = (struct copies){
            .ordinal = devices->ordinals[d],
            .test = {.way = way, .bytes = LARGE, .count = LARGE_COUNT, .streams = 1},
        };
    if (!status)
        conv_workers_run(workers, devices->count, time_copies, copies, devices->count);
    conv_workers_close(workers);
    for (int d = 0; d < devices->count && !status; d++) {
        if (copies[d].err.status)
            status = conv_err_set(err, copies[d].err.status, "%s", copies[d].err.text);
        *gb_per_s +=
            (double)LARGE * LARGE_COUNT * (way == CONV_COPY_BOTH ? 2 : 1) / (double)copies[d].ns;
    }
    free(copies);
    return status;
}

// The same bytes as single images and as groups, on the first device.
static enum conv_status time_small(struct conv_bench_copies *copies,
                                   const struct conv_device *devices, size_t bytes, size_t group,
                                   struct conv_err *err)
{
    size_t fit = ((size_t)256 << 20) / bytes;
    int count = fit < 1 ? 1 : fit < MOST_SMALL ? (int)fit : MOST_SMALL;
    size_t all = bytes * (size_t)count, groups = (all + group - 1) / group;
    copies->small_count = count;
    copies->small_streams = SMALL_STREAMS;
    const struct conv_copy_test tests[] = {
        {CONV_COPY_AND_BACK, bytes, count, .streams = 1, .one_by_one = true},
        {CONV_COPY_AND_BACK, bytes, count, .streams = SMALL_STREAMS},
        {CONV_COPY_AND_BACK, all / groups, (int)groups, .streams = SMALL_STREAMS},
    };
    double *const ms[] = {&copies->small_one, &copies->small_many, &copies->small_group};
    enum conv_status status = CONV_OK;
    for (int i = 0; i < 3 && !status; i++) {
        struct copies each = {.ordinal = devices->ordinals[0], .test = tests[i]};
        time_copies(&each, 0, 0);
        *ms[i] = (double)each.ns / 1e6;
        if (each.err.status)
            status = conv_err_set(err, each.err.status, "%s", each.err.text);
    }
    return status;
}

enum conv_status conv_bench_copies_time(struct conv_bench_copies *copies,
                                        const struct conv_device *devices, size_t image_bytes,
                                        size_t group_bytes, struct conv_err *err)
{
    double *const rates[] = {&copies->in, &copies->out, &copies->both};
    enum conv_status status = CONV_OK;
    for (int way = CONV_COPY_IN; way <= CONV_COPY_BOTH && !status; way++)
        status = time_large(devices, (enum conv_copy_way)way, rates[way], err);
    return status ? status : time_small(copies, devices, image_bytes, group_bytes, err);
}
