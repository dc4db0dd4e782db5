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
    enum conv_status status =
        copies ? conv_workers_open(&workers, devices->count, err)
               : conv_err_set(err, CONV_ERR_MEMORY, "no memory for the benchmark");
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

static enum conv_status time_small_copies(const struct conv_device *devices,
                                          struct conv_copy_test test, double *ms,
                                          struct conv_err *err)
{
    struct copies copies = {.ordinal = devices->ordinals[0], .test = test};
    time_copies(&copies, 0, 0);
    *ms = (double)copies.ns / 1e6;
    return copies.err.status ? conv_err_set(err, copies.err.status, "%s", copies.err.text)
                             : CONV_OK;
}

// The same bytes as single images and as groups, on the first device.
static enum conv_status time_small(struct conv_bench_copies *copies,
                                   const struct conv_device *devices, size_t bytes, size_t group,
                                   struct conv_err *err)
{
    size_t fit = ((size_t)256 << 20) / bytes;
    int count = fit < 1 ? 1 : fit < MOST_SMALL ? (int)fit : MOST_SMALL;
    struct conv_copy_test test = {.way = CONV_COPY_AND_BACK, .bytes = bytes, .count = count};
    copies->small_count = count;
    copies->small_streams = SMALL_STREAMS;
    test.streams = 1;
    test.one_by_one = true;
    enum conv_status status = time_small_copies(devices, test, &copies->small_one, err);
    test.streams = SMALL_STREAMS;
    test.one_by_one = false;
    if (!status)
        status = time_small_copies(devices, test, &copies->small_many, err);
    size_t all = bytes * (size_t)count;
    test.count = (int)((all + group - 1) / group);
    test.bytes = all / (size_t)test.count;
    if (!status)
        status = time_small_copies(devices, test, &copies->small_group, err);
    return status;
}

enum conv_status conv_bench_copies_time(struct conv_bench_copies *copies,
                                        const struct conv_device *devices, size_t image_bytes,
                                        size_t group_bytes, struct conv_err *err)
{
    enum conv_status status = time_large(devices, CONV_COPY_IN, &copies->in, err);
    if (!status)
        status = time_large(devices, CONV_COPY_OUT, &copies->out, err);
    if (!status)
        status = time_large(devices, CONV_COPY_BOTH, &copies->both, err);
    return status ? status : time_small(copies, devices, image_bytes, group_bytes, err);
}
