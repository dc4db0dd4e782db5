// SPDX-License-Identifier: MIT
#include "bench/bench_streams.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "bench/bench_cuda.h"
#include "engine/engine.h"
#include "io/walk/walk.h"
#include "report/record.h"
#include "run/pool.h"
#include "run/stages.h"

#define RUN_NS 500000000u
#define GROUPS_PER_STREAM 2
#define MOST_GROUPS 128

struct conv_bench_device {
    const struct conv_bench_options *options;
    const struct conv_device *device;
    struct conv_pool pool;
    struct conv_slot *groups[MOST_GROUPS];
    uint64_t images[MOST_GROUPS], pixels[MOST_GROUPS];
    int group_count;
    size_t image_bytes; // of the first image's planes

    struct conv_lock lock;        // guards all below
    int free_groups[MOST_GROUPS]; // not in any stream
    int free_count;
    uint64_t end;    // when streams stop
    uint64_t traced; // until when
    uint64_t last;   // when the last group was finished
    struct conv_totals totals;
    struct conv_overlap *overlaps[CONV_BACKEND_MOST_DEVICES]; // of an async device
    double bytes;
    struct conv_err failure;
};

struct stream_thread {
    struct conv_bench_device *bench;
    int device;
    struct conv_stream *stream;
    struct conv_trace_track *tracks[CONV_ENGINE_COUNT]; // NULL without a trace
};

// --- images ------------------------------------------------------------------------------------

// Places the image in the last group or in a new one. False: there is no more memory.
static bool place(struct conv_bench_device *bench, const struct conv_image *shape,
                  struct conv_placed *placed, int most, struct conv_err *err)
{
    const struct conv_device *device = bench->device;
    size_t table = device->ops->table_bytes(bench->options->filter_count, false);
    bool filter_alpha = bench->options->choice->filter.alpha != CONV_ALPHA_KEEP;
    size_t bytes = conv_group_need(shape, filter_alpha, table);
    struct conv_pool_need need = {.room = {bytes, bytes}};
    struct conv_slot *slot = bench->group_count ? bench->groups[bench->group_count - 1] : NULL;
    size_t used = slot ? slot->group.front + slot->group.back : 0;
    // As in the pipeline: groups for a device, single images for a core.
    bool full =
        !slot || !device->ops->async || (used > 0 && used + bytes > bench->options->group_bytes);
    if (full || !conv_group_place(&slot->group, shape, filter_alpha, table, placed)) {
        if (bench->group_count == most ||
            conv_pool_acquire(&bench->pool, &need, &slot, err) != CONV_OK || !slot)
            return false;
        bench->groups[bench->group_count++] = slot;
        conv_group_place(&slot->group, shape, filter_alpha, table, placed);
    }
    bench->images[bench->group_count - 1]++;
    bench->pixels[bench->group_count - 1] += (uint64_t)shape->width * (uint64_t)shape->height;
    return true;
}

// True if the image is placed and decoded.
static bool stage(struct conv_bench_device *bench, struct conv_job *job,
                  const struct conv_pipeline_config *config, struct conv_codecs *codec, int most)
{
    struct conv_err err;
    job->file->size = 0;
    if (conv_stages_read(config, job) ||
        !place(bench, &job->header.shape, &job->placed, most, &err))
        return false;
    const struct conv_image *in = &job->placed.in;
    if (bench->image_bytes == 0)
        bench->image_bytes = conv_image_bytes(in);
    // A damaged image leaves arbitrary samples, which take as long to filter.
    (void)conv_stages_decode(config, codec, job);
    return true;
}

// Reads the folder repeatedly until all groups are full, so that a folder of few images has as many
// groups as any other.
static enum conv_status fill(struct conv_bench_device *bench, int most, struct conv_err *err)
{
    const struct conv_bench_options *options = bench->options;
    struct conv_pipeline_config config = {
        .memory.staging = options->mem_limit,
        .max_pixels = options->choice->inputs.max_pixels,
        .alpha = options->choice->filter.alpha,
        .strip = CONV_STRIP_ALL,
        .first_frame = true,
        .no_save = true,
    };
    struct conv_file file = {0};
    struct conv_job *job = calloc(1, sizeof *job);
    struct conv_codecs *codec = NULL;
    enum conv_status status = job ? conv_codecs_open(&codec, &options->choice->outputs.codec, err)
                                  : conv_err_memory(err, "no memory for an image");
    bool room = true, any = true;
    while (!status && room && any && bench->group_count < most) {
        struct conv_walk *walk = NULL;
        enum conv_source_step step;
        any = false;
        status = conv_walk_open(&walk, &options->walk, err);
        while (!status && room &&
               (step = conv_source_next(conv_walk_source(walk), &job->item, &job->err)) !=
                   CONV_SOURCE_END) {
            job->file = &file;
            if (step == CONV_SOURCE_ITEM && stage(bench, job, &config, codec, most))
                any = true;
            else
                room = bench->group_count < most;
            conv_item_release(&job->item);
        }
        conv_walk_close(walk);
    }
    if (!status && bench->group_count == 0)
        status = conv_err_usage(err, "no image could be filtered in %s",
                                options->walk.operands.inputs[0]);
    conv_codecs_close(codec);
    free(file.data);
    free(job);
    return status;
}

enum conv_status conv_bench_device_open(struct conv_bench_device **out,
                                        const struct conv_bench_options *options, int streams,
                                        struct conv_err *err)
{
    const struct conv_device *device = options->device;
    struct conv_bench_device *bench = calloc(1, sizeof *bench);
    if (!bench)
        return conv_err_memory(err, "no memory for the benchmark");
    *out = bench;
    bench->options = options;
    bench->device = device;
    conv_lock_init(&bench->lock);
    int most = streams * device->count * GROUPS_PER_STREAM;
    most = most < MOST_GROUPS ? most : MOST_GROUPS;
    // Without a fallback: the device is measured.
    bench->pool = (struct conv_pool){
        .ops = device->ops,
        .limit = options->mem_limit,
        .usual_bytes = device->ops->async ? options->group_bytes : 1,
        .keep = SIZE_MAX,
    };
    enum conv_status status = conv_pool_open(&bench->pool, most, most, err);
    return status ? status : fill(bench, most, err);
}

void conv_bench_device_close(struct conv_bench_device *bench)
{
    if (!bench)
        return;
    conv_pool_close(&bench->pool);
    conv_lock_destroy(&bench->lock);
    free(bench);
}

// --- streams -------------------------------------------------------------------------------------

static void trace_group(const struct stream_thread *thread, int i)
{
    const struct conv_bench_device *bench = thread->bench;
    const struct conv_group *group = &bench->groups[i]->group;
    struct conv_trace_item item = {.images = (int)bench->images[i], .bytes = group->front};
    const uint64_t ns[CONV_ENGINE_COUNT] = {group->ns_copy_in, group->ns_kernel,
                                            group->ns_copy_out};
    uint64_t start = group->ns_start;
    if (start == 0 || start > bench->traced)
        return;
    for (int e = 0; e < CONV_ENGINE_COUNT; e++) {
        conv_trace_slice(thread->tracks[e], CONV_STAGE_COPY_IN + e, start, start + ns[e], &item);
        start += ns[e];
    }
}

// With the lock.
static void count(struct conv_bench_device *bench, int device, int i)
{
    struct conv_overlap *overlap = bench->overlaps[device];
    struct conv_device_totals *did = &bench->totals.devices[device];
    const struct conv_group *group = &bench->groups[i]->group;
    struct conv_totals *totals = &bench->totals;
    totals->done += bench->images[i];
    totals->pixels += bench->pixels[i];
    totals->ns[CONV_STAGE_COPY_IN] += group->ns_copy_in;
    totals->ns[CONV_STAGE_KERNEL] += group->ns_kernel;
    totals->ns[CONV_STAGE_COPY_OUT] += group->ns_copy_out;
    did->images += bench->images[i];
    did->bytes += group->front;
    bench->bytes += 2 * (double)group->front;
    bench->last = conv_clock_ns();
    if (!overlap || group->ns_start == 0)
        return;
    uint64_t copied = group->ns_start + group->ns_copy_in, filtered = copied + group->ns_kernel;
    conv_overlap_add(overlap, CONV_ENGINE_COPY_IN, group->ns_start, copied);
    conv_overlap_add(overlap, CONV_ENGINE_KERNEL, copied, filtered);
    conv_overlap_add(overlap, CONV_ENGINE_COPY_OUT, filtered, filtered + group->ns_copy_out);
}

static void run_stream(void *context, int, int number)
{
    struct stream_thread *thread = (struct stream_thread *)context + number;
    struct conv_bench_device *bench = thread->bench;
    conv_lock_acquire(&bench->lock);
    // There are at least as many groups as streams, so one is always free.
    while (conv_clock_ns() < bench->end && !bench->failure.status &&
           !atomic_load(bench->options->stop)) {
        int i = bench->free_groups[0];
        bench->free_count--;
        memmove(bench->free_groups, bench->free_groups + 1,
                (size_t)bench->free_count * sizeof bench->free_groups[0]);
        conv_lock_release(&bench->lock);
        struct conv_err err;
        enum conv_status status =
            bench->device->ops->stream_run(thread->stream, &bench->groups[i]->group, &err);
        conv_lock_acquire(&bench->lock);
        if (!status) // before another stream can take the group
            trace_group(thread, i);
        bench->free_groups[bench->free_count++] = i;
        if (status)
            bench->failure = err;
        else
            count(bench, thread->device, i);
    }
    conv_lock_release(&bench->lock);
}

// Each stream runs once before the clock starts, to take its memory.
static enum conv_status open_streams(struct conv_bench_device *bench, struct stream_thread *threads,
                                     int count, struct conv_err *err)
{
    const struct conv_device *device = bench->device;
    enum conv_status status = CONV_OK;
    for (int i = 0; i < count && !status; i++) {
        threads[i].bench = bench;
        threads[i].device = i % device->count;
        status = device->ops->stream_open(device->backends[threads[i].device], &threads[i].stream,
                                          bench->options->group_bytes, err);
        for (int g = i; g < bench->group_count && !status; g += count) {
            conv_pool_pin(&bench->pool, bench->groups[g], device->backends[threads[i].device]);
            status = device->ops->stream_run(threads[i].stream, &bench->groups[g]->group, err);
        }
    }
    return status;
}

static enum conv_status run_streams(struct conv_bench_device *bench, struct stream_thread *threads,
                                    int count, struct conv_err *err)
{
    struct conv_workers *workers = NULL;
    enum conv_status status = conv_workers_open(&workers, count, err);
    if (!status)
        conv_workers_run(workers, count, run_stream, threads, count);
    conv_workers_close(workers);
    if (!status && bench->failure.status)
        status = conv_err_set(err, bench->failure.status, "%s", bench->failure.text);
    return status;
}

static enum conv_status open_overlaps(struct conv_bench_device *bench, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    for (int d = 0; d < bench->device->count && bench->device->ops->async && !status; d++)
        status = conv_overlap_open(&bench->overlaps[d], err);
    return status;
}

static void close_overlaps(struct conv_bench_device *bench)
{
    for (int d = 0; d < bench->device->count; d++) {
        if (bench->overlaps[d])
            conv_overlap_read(bench->overlaps[d], &bench->totals.devices[d].overlap);
        conv_overlap_close(bench->overlaps[d]);
        bench->overlaps[d] = NULL;
    }
}

static void add_tracks(struct stream_thread *threads, int count, struct conv_trace *trace)
{
    static const char *const engines[CONV_ENGINE_COUNT] = {"copy in", "kernel", "copy out"};
    for (int i = 0; i < count; i++)
        for (int e = 0; e < CONV_ENGINE_COUNT; e++)
            threads[i].tracks[e] = conv_trace_add_track(trace, "stream", i, engines[e]);
}

enum conv_status conv_bench_device_run(struct conv_bench_device *bench, int streams,
                                       struct conv_trace *trace, struct conv_totals *totals,
                                       double *bytes, struct conv_err *err)
{
    int stream_count = streams * bench->device->count;
    struct stream_thread *threads = calloc((size_t)stream_count, sizeof *threads);
    if (!threads)
        return conv_err_memory(err, "no memory for %d streams", stream_count);
    if (stream_count > bench->group_count)
        stream_count = bench->group_count; // --mem-limit allows no more
    bench->totals = (struct conv_totals){0};
    bench->bytes = 0;
    bench->failure = (struct conv_err){0};
    bench->free_count = bench->group_count;
    for (int i = 0; i < bench->group_count; i++)
        bench->free_groups[i] = i;
    enum conv_status status = open_overlaps(bench, err);
    if (!status)
        status = open_streams(bench, threads, stream_count, err);
    add_tracks(threads, stream_count, trace);
    double cpu = conv_clock_process_seconds();
    conv_trace_restart(trace);
    uint64_t start = bench->last = conv_clock_ns();
    bench->end = start + RUN_NS;
    bench->traced = start + CONV_BENCH_DEVICE_TRACED_MS * (uint64_t)1000000;
    if (!status)
        status = run_streams(bench, threads, stream_count, err);
    bench->totals.seconds = (double)(bench->last - start) / 1e9;
    bench->totals.cpu_seconds = conv_clock_process_seconds() - cpu;
    close_overlaps(bench);
    for (int i = 0; i < stream_count; i++)
        bench->device->ops->stream_close(threads[i].stream);
    free(threads);
    *totals = bench->totals;
    *bytes = bench->bytes;
    return status;
}

enum conv_status conv_bench_device_copies(struct conv_bench_device *bench, bool *measured,
                                          struct conv_bench_copies *copies, struct conv_err *err)
{
    // A backend of the tests in the place of CUDA has no copies to time.
    *measured = bench->device->ops == conv_engine_devices[CONV_ON_CUDA] && conv_bench_cuda();
    return *measured ? conv_bench_copies_time(copies, bench->device, bench->image_bytes,
                                              bench->options->group_bytes, err)
                     : CONV_OK;
}
