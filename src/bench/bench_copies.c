// SPDX-License-Identifier: MIT
#include "bench/bench_streams.h"

#include <pthread.h>
#include <stdlib.h>

#include "bench/bench_cuda.h"

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
    pthread_t thread;
    bool started;
};

static void *time_copies(void *argument)
{
    struct copies *copies = argument;
    copies->ns = 1;
    copies->test.repeats = REPEATS;
    copies->err.status =
        conv_bench_cuda()->time_copies(copies->ordinal, &copies->test, &copies->ns, &copies->err);
    return NULL;
}

// The sum over all devices, copying at the same time.
static enum conv_status time_large(const struct conv_bench_devices *devices, enum conv_copy_way way,
                                   double *gb_per_s, struct conv_err *err)
{
    struct copies *copies = calloc((size_t)devices->count, sizeof *copies);
    if (!copies)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the benchmark");
    enum conv_status status = CONV_OK;
    *gb_per_s = 0;
    for (int d = 0; d < devices->count; d++) {
        copies[d].ordinal = devices->ordinals[d];
        copies[d].test =
            (struct conv_copy_test){.way = way, .bytes = LARGE, .count = LARGE_COUNT, .streams = 1};
        int errnum = pthread_create(&copies[d].thread, NULL, time_copies, &copies[d]);
        copies[d].started = errnum == 0;
        if (errnum && !status)
            status = conv_err_thread(err, errnum);
    }
    for (int d = 0; d < devices->count; d++) {
        if (!copies[d].started)
            continue;
        pthread_join(copies[d].thread, NULL);
        if (copies[d].err.status && !status)
            status = conv_err_set(err, copies[d].err.status, "%s", copies[d].err.text);
        *gb_per_s +=
            (double)LARGE * LARGE_COUNT * (way == CONV_COPY_BOTH ? 2 : 1) / (double)copies[d].ns;
    }
    free(copies);
    return status;
}

static enum conv_status time_small_copies(const struct conv_bench_devices *devices,
                                          struct conv_copy_test test, double *ms,
                                          struct conv_err *err)
{
    struct copies copies = {.ordinal = devices->ordinals[0], .test = test};
    time_copies(&copies);
    *ms = (double)copies.ns / 1e6;
    return copies.err.status ? conv_err_set(err, copies.err.status, "%s", copies.err.text)
                             : CONV_OK;
}

// The same bytes as single images and as groups, on the first device.
static enum conv_status time_small(struct conv_bench_copies *copies,
                                   const struct conv_bench_devices *devices, size_t bytes,
                                   size_t group, struct conv_err *err)
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
                                        const struct conv_bench_devices *devices,
                                        size_t image_bytes, size_t group_bytes,
                                        struct conv_err *err)
{
    enum conv_status status = time_large(devices, CONV_COPY_IN, &copies->in, err);
    if (!status)
        status = time_large(devices, CONV_COPY_OUT, &copies->out, err);
    if (!status)
        status = time_large(devices, CONV_COPY_BOTH, &copies->both, err);
    return status ? status : time_small(copies, devices, image_bytes, group_bytes, err);
}
