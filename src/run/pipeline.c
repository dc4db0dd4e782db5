// SPDX-License-Identifier: MIT
// The start and the end of a run: staging memory, threads, and what a signal ends.
#include "run/pipeline.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/parallel.h"
#include "io/walk/walk.h"
#include "run/devices.h"
#include "run/scheduler.h"
#include "run/worker.h"

// After a signal: how long images in flight may take to be finished, how often the main thread
// looks for the signal before, and for workers to leave behind after that. Together with the report
// an answer takes less than 200 ms.
#define GRACE_NS 60000000
#define LOOK_NS 30000000
#define AGAIN_NS 5000000

_Static_assert(CONV_REPORT_MOST_DEVICES == CONV_BACKEND_MOST_DEVICES,
               "the report has room for every device");

// --- the scheduler -------------------------------------------------------------------------------

// The lists are empty; the caller sets the other members, which are zero.
static void init_scheduler(struct conv_scheduler *s, const struct conv_pipeline_config *config,
                           struct conv_source *source, struct conv_report *report)
{
    bool coded = config->decode_on != CONV_CODER_CPU || config->encode_on != CONV_CODER_CPU;
    *s = (struct conv_scheduler){
        .config = config,
        .source = source,
        .report = report,
        .table_bytes = config->ops->table_bytes(config->filter_count, coded),
        .filter_alpha = config->alpha != CONV_ALPHA_KEEP,
        .lock = CONV_LOCK_INITIALIZER,
        .report_lock = CONV_LOCK_INITIALIZER,
        .wake = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER,
                 PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER},
    };
    s->groups.ready_end = &s->groups.ready;
    conv_jobs_init(&s->jobs);
    conv_decode_policy_init(&s->policy, config->jobs, conv_clock_ns());
    s->policy.stream_bytes = conv_devices_group_bytes(config);
    s->policy.device_required = config->encode_on == CONV_CODER_GPU;
    conv_budget_open(&s->budget, &config->memory);
}

static void destroy_scheduler(struct conv_scheduler *s)
{
    conv_budget_close(&s->budget);
    conv_lock_destroy(&s->report_lock);
    conv_lock_destroy(&s->lock);
    pthread_cond_t *const conditions[] = {&s->wake.workers, &s->wake.memory, &s->wake.streams,
                                          &s->wake.devices, &s->wake.ended};
    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++)
        pthread_cond_destroy(conditions[i]);
}

// --- slots ---------------------------------------------------------------------------------------

// Slots on an asynchronous backend: for each stream one that it works on and one that is filled
// meanwhile, and two whose results are written. If the device decodes, one more for each stream,
// for groups that wait for the device (decode_policy.h). If it also encodes, these are not needed:
// a group on the device then has no staging memory, so its slot can wait. On other backends each
// worker holds one slot.
static int slot_count(const struct conv_scheduler *s, int streams)
{
    const struct conv_pipeline_config *config = s->config;
    return config->ops->async ? s->slots_per_stream * streams * config->device_count + 2
                              : config->jobs;
}

// If a device both decodes and encodes, its output may be larger than its input: embossed or
// sharpened photographs take 1.4 to 1.5 times the bytes of their files. A buffer serves in both
// directions, so all buffers have room for that.
#define ROUGHENED(bytes) ((bytes) + (bytes) / 2)

static enum conv_status open_pool(struct conv_scheduler *s, struct conv_err *err)
{
    const struct conv_pipeline_config *config = s->config;
    bool decodes = config->decode_on != CONV_CODER_CPU;
    bool encodes = config->encode_on != CONV_CODER_CPU;
    size_t usual = decodes && encodes ? ROUGHENED(config->group_bytes) : config->group_bytes;
    s->slots_per_stream = config->ops->async ? (decodes && !encodes ? 3 : 2) : 0;
    size_t slots = (size_t)s->slots_per_stream * (size_t)config->device_count;
    s->most_streams = conv_growth_most(config->streams, config->most_streams, 2 * usual * slots,
                                       config->memory.staging / 2);
    s->pool = (struct conv_pool){
        .ops = config->ops,
        .limit = config->memory.staging,
        .usual_bytes = usual,
        .keep = config->memory.keep_staging,
        .codes = decodes || encodes,
    };
    int most = slot_count(s, s->most_streams);
    const struct conv_device_ops *ops = config->ops;
    if (ops->async && ops->together && decodes && encodes && config->device_count == 1)
        most += (CONV_BACKEND_MOST_TOGETHER - 1) * s->most_streams; // which have a slot each
    return conv_pool_open(&s->pool, slot_count(s, config->streams), most, err);
}

// --- threads -------------------------------------------------------------------------------------

static int stream_count(const struct conv_scheduler *s)
{
    return s->config->ops->async ? s->config->device_count * s->most_streams : 0;
}

// Fewer threads than asked for are fine; to get none is a failure.
static enum conv_status start_streams(struct conv_scheduler *s, struct conv_err *err)
{
    int errnum = 0, started = 0, count = stream_count(s);
    for (int i = 0; i < count; i++) {
        struct conv_stream_thread *owner = &s->stream_threads[i];
        if (!owner->is_needed)
            continue;
        int failed = pthread_create(&owner->thread, NULL, conv_stream_thread_main, owner);
        owner->started = failed == 0;
        started += owner->started;
        errnum = failed ? failed : errnum;
    }
    return started || !count ? CONV_OK : conv_err_thread(err, errnum);
}

static bool is_left(const struct conv_worker *worker)
{
    return atomic_load(&worker->phase) == CONV_PHASE_LEFT;
}

static enum conv_status start_threads(struct conv_scheduler *s, struct conv_worker *workers,
                                      struct conv_err *err)
{
    const struct conv_pipeline_config *config = s->config;
    enum conv_status status = conv_devices_open(s, err);
    for (int i = 0; i < stream_count(s) && !status; i++)
        if (s->stream_threads[i].is_needed)
            conv_stream_thread_add_tracks(&s->stream_threads[i]);
    for (int i = 0; i < config->jobs && !status; i++) {
        workers[i].scheduler = s;
        workers[i].index = i;
        workers[i].track = conv_trace_add_track(config->trace, "worker", i, "");
        conv_worker_init_help(&workers[i]);
        struct conv_codec_config codec = config->codec;
        codec.parallel = &workers[i].parallel;
        status = conv_codecs_open(&workers[i].codecs, &codec, err);
        if (!status && !config->ops->async && !config->layer)
            status = config->ops->stream_open(config->backends[0], &workers[i].stream, 0, err);
        if (status == CONV_ERR_MEMORY && i > 0)
            status = conv_err_workers(err, config->jobs);
    }
    if (!status)
        status = start_streams(s, err);
    // As with streams; if the first cannot be started, the others are not tried.
    for (int i = 0; i < config->jobs && !status; i++) {
        conv_lock_acquire(&s->lock);
        int errnum = pthread_create(&workers[i].thread, NULL, conv_worker_main, &workers[i]);
        workers[i].started = errnum == 0;
        s->working += workers[i].started;
        conv_lock_release(&s->lock);
        if (errnum && i == 0)
            status = conv_err_thread(err, errnum);
    }
    return status;
}

static void tick(struct conv_scheduler *s) CONV_NEEDS(s->lock) CONV_TAKES(s->report_lock)
{
    if (!conv_report_has_progress(s->report))
        return;
    conv_lock_release(&s->lock);
    conv_lock_acquire(&s->report_lock);
    conv_report_tick(s->report);
    conv_lock_release(&s->report_lock);
    conv_lock_acquire(&s->lock);
}

// Waits for the workers. Those that compute for too long after a signal are left behind where that
// is allowed.
static void await_workers(struct conv_scheduler *s, struct conv_worker *workers)
{
    bool *left = s->config->left_threads;
    uint64_t asked = 0;
    conv_lock_acquire(&s->lock);
    while (s->working > 0) {
        if (s->config->look) {
            conv_lock_release(&s->lock);
            s->config->look(s->config->look_user);
            conv_lock_acquire(&s->lock);
        }
        uint64_t now = conv_clock_ns();
        if (!asked && conv_cancel_is_asked(s->config->stop))
            asked = now;
        bool is_late = left && asked && now - asked >= GRACE_NS;
        for (int i = 0; is_late && i < s->config->jobs; i++)
            if (workers[i].started && conv_worker_leave(s, &workers[i]))
                *left = true;
        if (!asked)
            tick(s);
        if (s->working > 0)
            conv_scheduler_wait(s, &s->wake.ended, asked ? AGAIN_NS : LOOK_NS);
    }
    conv_lock_release(&s->lock);
    for (int i = 0; i < s->config->jobs; i++)
        if (workers[i].started && !is_left(&workers[i]))
            pthread_join(workers[i].thread, NULL);
}

static void stop_threads(struct conv_scheduler *s, struct conv_worker *workers)
{
    await_workers(s, workers);
    conv_lock_acquire(&s->lock);
    s->streams_end = true;
    pthread_cond_broadcast(&s->wake.streams);
    conv_lock_release(&s->lock);
    for (int i = 0; i < stream_count(s); i++)
        if (s->stream_threads[i].started)
            pthread_join(s->stream_threads[i].thread, NULL);
    conv_devices_forget(s);
    if (!s->config->leaves_memory)
        conv_devices_close(s);
    for (int i = 0; i < s->config->jobs; i++) {
        if (is_left(&workers[i]))
            continue;
        if (workers[i].stream)
            s->config->ops->stream_close(workers[i].stream);
        conv_codecs_close(workers[i].codecs);
        conv_layer_worker_close(&workers[i].layer, s->config->layer);
    }
}

static enum conv_status run_threads(struct conv_scheduler *s, struct conv_worker *workers,
                                    struct conv_err *err)
{
    conv_descriptors_begin(s->config->jobs, s->config->stop);
    enum conv_status status = start_threads(s, workers, err);
    stop_threads(s, workers);
    conv_descriptors_end(s->config->jobs, s->config->stop);
    if (!status && s->failure.status) {
        status = s->failure.status;
        if (err)
            *err = s->failure;
    }
    return status;
}

enum conv_status conv_pipeline_run(const struct conv_pipeline_config *config,
                                   struct conv_source *source, struct conv_report *report,
                                   struct conv_err *err)
{
    struct conv_scheduler s;
    enum conv_status status = CONV_OK;
    init_scheduler(&s, config, source, report);
    struct conv_worker *workers = calloc((size_t)config->jobs, sizeof *workers);
    s.devices = calloc((size_t)config->device_count, sizeof *s.devices);
    if (workers && s.devices && !config->layer)
        status = open_pool(&s, err);
    if (!status)
        s.stream_threads = calloc((size_t)stream_count(&s) + 1, sizeof *s.stream_threads);
    if (!workers || !s.devices || (!status && !s.stream_threads))
        status = conv_err_workers(err, config->jobs);
    if (!status)
        status = run_threads(&s, workers, err);
    // Threads that were left behind use their slots and their workers' memory.
    bool left = config->left_threads && *config->left_threads;
    if (!left && !config->leaves_memory)
        conv_pool_close(&s.pool);
    conv_jobs_free(&s.jobs);
    if (!left)
        free(workers);
    free(s.stream_threads);
    free(s.devices);
    destroy_scheduler(&s);
    return status;
}

// --- records of members of archives --------------------------------------------------------------

void conv_pipeline_settle(struct conv_report *report, struct conv_walk *walk,
                          const struct conv_err *failure)
{
    int count, held;
    bool is_lost = failure && failure->status != CONV_ERR_CANCELLED;
    const struct conv_archive_target *targets = walk ? conv_walk_targets(walk, &count) : NULL;
    while ((held = conv_report_held(report)))
        conv_report_settle(report, held,
                           atomic_load(&targets[held - 1].is_written) ? CONV_REPORT_KEPT
                           : is_lost                                  ? CONV_REPORT_LOST
                                                                      : CONV_REPORT_FORGOTTEN,
                           failure);
}

// --- where the user does not say -----------------------------------------------------------------

// Copies of 16 MiB reach nine tenths of the speed of large ones. The time to decode a group on the
// GPU hardly depends on the number of its images, so larger groups are better there (10,000
// photographs on an H200: 0.84 s with 32 MiB, 1.07 s with 16).
#define GROUP ((size_t)16 << 20)
#define CODED_GROUP ((size_t)32 << 20)
#define STREAMS 4
#define CODED_STREAMS 6
#define MOST_STREAMS 8
#define MOST_CODED_STREAMS 12

int conv_pipeline_streams(bool decodes)
{
    return decodes ? CODED_STREAMS : STREAMS;
}

int conv_pipeline_most_streams(bool decodes)
{
    return decodes ? MOST_CODED_STREAMS : MOST_STREAMS;
}

size_t conv_pipeline_group_bytes(bool decodes)
{
    return decodes ? CODED_GROUP : GROUP;
}
